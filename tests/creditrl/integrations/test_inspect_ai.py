"""inspect_ai's own evaluation plays our environments, with its mock of a model."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import ran

from creditrl.errors import ConfigError, DataError
from creditrl.integrations import inspect_ai as ours
from creditrl.integrations.play import Play

pytestmark = pytest.mark.reference("inspect_ai")

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "integrations.md"


def log_of(task: Any, folder: Path, replies: list[str], **limits: Any) -> Any:
    """Return the log of an evaluation by a model that gives these replies in order."""
    import inspect_ai
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    outputs = [ModelOutput.from_content("mockllm", text) for text in replies]
    for output in outputs:
        output.usage = ModelUsage()  # it would download a tokenizer to count
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_ai.eval(
        task, model=model, log_dir=str(folder), display="none", max_samples=1, **limits
    )
    assert log.status == "success", log.error
    return log


def test_the_experts_replies_win_in_inspects_own_evaluation(env, experts, tmp_path):
    task = ours.classes().suite(env=env, episodes=1)
    (told,) = [sample.metadata for sample in task.dataset]
    play = Play(told["env"], **told["options"])
    play.begin(told["task"], told["seed"])
    replies = experts(play)
    (played,) = log_of(task, tmp_path, replies).samples
    score = played.scores["episode"]
    assert score.value == {name: float(play.result()[name]) for name in ours.MEASURES}
    assert score.metadata == play.result() and score.value["grounding_accuracy"] == 1.0
    assert [m.text for m in played.messages if m.role == "assistant"][-len(replies) :] == replies


def test_a_suites_episodes_are_those_of_our_own_evaluation(tmp_path):
    from creditrl.agents import evaluate
    from creditrl.suites import load_suite

    said = "Thought: Why not.\nAction: up"
    log = log_of(ours.classes().suite(env="VisualSokoban", episodes=3), tmp_path, [said] * 300)
    (listing,) = load_suite("standard").choose("CreditRL/VisualSokoban-v0", "valid_unseen")
    own = evaluate(
        "VisualSokoban",
        lambda observation, info: "up",
        form="react",
        tasks=listing.first(3).tasks,
        seed=listing.seed,
        env_options=listing.options,
    )
    found = [(s.scores["episode"].value, s.metadata["task"]) for s in log.samples]
    assert [(v["success"], v["score"], v["reward"], v["turns"], task) for v, task in found] == [
        (e.success, e.score, pytest.approx(e.episode_return), e.turns, e.task) for e in own.episodes
    ]


def test_a_message_limit_keeps_the_turns_played_so_far(tmp_path):
    task = ours.classes().environment(env="VisualSokoban", episodes=1)
    opening = len(next(iter(task.dataset)).input)
    log = log_of(task, tmp_path, ["Action: dance"] * 9, message_limit=opening + 4)
    (played,) = log.samples
    assert played.limit.type == "message"
    assert played.scores["episode"].value["turns"] == 2
    assert played.scores["episode"].value["grounding_accuracy"] == 0


def test_tasks_that_differ_from_the_suites_are_refused(tmp_path):
    import json

    from creditrl.suites import Suite, load_suite, write_suite

    (listing,) = load_suite("standard").choose("CreditRL/VisualSokoban-v0", "valid_unseen")
    write_suite(Suite("mine", "", (listing.first(1),)), tmp_path / "mine.json")
    content = json.loads((tmp_path / "mine.json").read_text())
    content["listings"][0]["hashes"] = ["0" * 16]
    (tmp_path / "mine.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="the list says 0000000000000000"):
        ours.classes().suite(name=str(tmp_path / "mine.json"))


def test_a_form_that_rebuilds_every_prompt_is_refused():
    with pytest.raises(ConfigError, match="'tags' rebuilds the prompt at every turn"):
        ours.classes().environment(env="VisualSokoban", episodes=1, form="tags")


def test_the_guides_command_asks_any_endpoint(endpoint, tmp_path):
    from inspect_ai.log import read_eval_log

    (command,) = re.findall(r"^inspect eval .*$", GUIDE.read_text("utf-8"), re.M)
    words = shlex.split(command)
    endpoint.answer = lambda body: "Thought: Why not.\nAction: look"
    done = ran(
        *(Path(sys.executable).parent / words[0], *words[1:], "--display", "plain"),
        cwd=tmp_path,
        env={"ENDPOINT_BASE_URL": endpoint.url, "ENDPOINT_API_KEY": "none"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(path))
    assert log.status == "success", log.error
    assert len(log.samples) == 20
    measured = {s.name: s.metrics["mean"].value for s in log.results.scores}
    assert set(measured) == set(ours.MEASURES) and measured["turns"] * 20 == len(endpoint.requests)
