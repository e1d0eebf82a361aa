"""verifiers' own rollout drives our environments; a chat endpoint on this machine plays."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import ran

from creditrl.integrations.play import Play

pytestmark = pytest.mark.reference("verifiers")

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "integrations.md"


def episodes(endpoint: Any, number: int, **taskset: Any) -> list[Any]:
    """Return the episodes of the first tasks, as verifiers records them."""
    from verifiers.v1.clients import EvalClientConfig, ModelContext
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    told = {"id": "creditrl-verifiers", "seed": 7, "episodes": number, **taskset}
    env = load_environment(resolve_env_config({"taskset": told}))
    client = EvalClientConfig(base_url=endpoint.url, api_key_var="NO_SUCH_KEY")
    context = ModelContext(model="m", client=client)

    async def run() -> list[Any]:
        async with env.serving():
            return [await env.run_episode(task, context) for task in env.taskset]

    return asyncio.run(run())


def test_the_experts_replies_win_in_verifiers_own_rollout(env, experts, endpoint):
    from creditrl.integrations import plan_episodes

    (row,) = plan_episodes(env, 1, seed=7)
    play = Play(env)
    play.begin(**row)
    replies = experts(play)
    endpoint.plans = list(replies)
    (episode,) = episodes(endpoint, 1, env=env)
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert trace.reward == pytest.approx(play.total)
    assert trace.metrics["grounding_accuracy"] == 1.0
    assert trace.metrics["success"] == float(play.result()["success"])
    assert trace.metrics["turns"] == len(replies) == len(endpoint.requests)
    assert trace.info["creditrl"] == play.result()
    # The growing conversation equals the one in training.
    last = endpoint.requests[-1]["messages"]
    said = [m["content"] for m in last if m["role"] == "assistant"]
    assert said[len(said) - len(replies) + 1 :] == replies[:-1]


def test_failed_actions_are_a_metric(endpoint):
    endpoint.answer = lambda body: "Thought: Why not.\nAction: dance"
    (episode,) = episodes(endpoint, 1, env="VisualSokoban", options={"max_turns": 4})
    (trace,) = episode.traces
    assert episode.ok and trace.metrics["turns"] == 4 and trace.metrics["grounding_accuracy"] == 0
    assert trace.reward == pytest.approx(-0.4)


def test_rows_are_seeded(endpoint):
    endpoint.answer = lambda body: "Thought: Why not.\nAction: up"
    one, two = (
        [e.traces[0].info["creditrl"] for e in episodes(endpoint, 2, env="VisualSokoban")]
        for _ in range(2)
    )
    assert one == two and one[0]["task_id"] != one[1]["task_id"]
    assert [r["seed"] for r in one] == [7, 8]


def test_the_guides_command_asks_the_endpoint_and_uploads_nothing(endpoint, tmp_path):
    (command,) = re.findall(r"^vf-eval .*$", GUIDE.read_text("utf-8"), re.M)
    command = command.replace("http://127.0.0.1:8000/v1", endpoint.url)
    name, *words = shlex.split(command.replace("episodes 20", "episodes 2"))
    endpoint.answer = lambda body: "Thought: Why not.\nAction: click[back to search]"
    with socket.create_server(("127.0.0.1", 0)) as platform:
        platform.setblocking(False)
        done = ran(
            str(Path(sys.executable).parent / name),
            *words,
            cwd=tmp_path,
            env={
                "OPENAI_API_KEY": "none",
                "PRIME_API_KEY": "none",
                "PRIME_API_BASE_URL": f"http://127.0.0.1:{platform.getsockname()[1]}",
            },
        )
        with pytest.raises(BlockingIOError):  # no connection was opened
            platform.accept()
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.rglob("traces.jsonl")
    episodes = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    turns = [trace["metrics"]["turns"] for row in episodes for trace in row["traces"]]
    assert len(turns) == 2 and sum(turns) == len(endpoint.requests)
