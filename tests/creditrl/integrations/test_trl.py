"""TRL's own trainer drives our environments; a scripted model plays."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from creditrl.integrations.play import Play
from creditrl.integrations.trl import (
    TRLFactory,
    dataset,
    environment_factory,
    grounding_accuracy,
    success,
)


def test_the_expert_wins_by_the_tool(env):
    environment = TRLFactory(env, list_actions=True)()
    told = environment.reset(task=0, seed=7, prompt=[])
    assert "calling the tool `act`" in told
    play = environment._play
    while not play.over:
        seen = environment.act(play.env.expert_action() or "nothing")
    assert seen.endswith("The episode is over.")
    assert environment.get_reward() == play.total > 0
    assert grounding_accuracy([environment]) == [1.0]
    assert success([environment]) == [float(environment.result["success"])]
    assert "no further action" in environment.act("up") and play.over


def test_only_act_is_a_tool():
    import inspect

    environment = TRLFactory("VisualSokoban")()
    public = [
        n for n, _ in inspect.getmembers(type(environment), inspect.isfunction) if n[0] != "_"
    ]
    assert sorted(public) == ["act", "get_reward", "reset"]
    assert pickle.loads(pickle.dumps(TRLFactory("ALFWorld"))) == TRLFactory("ALFWorld")


def scripted_model(tokenizer: Any, shape: Any) -> Any:
    """A small Qwen3 whose ``generate`` calls the tool twice, ``up`` and ``dance``, and stops."""
    import torch
    from transformers import Qwen3ForCausalLM

    call = '<tool_call>\n{"name": "act", "arguments": {"action": "%s"}}\n</tool_call>'

    class Scripted(Qwen3ForCausalLM):
        seen: list[str] = []

        def generate(self, input_ids: Any = None, **_: Any) -> Any:
            rows = []
            for row in input_ids:
                text = tokenizer.decode(row)
                self.seen.append(text)
                said = [call % "up", call % "dance", "I stop."][text.count("<tool_response>")]
                rows.append(tokenizer(f"{said}<|im_end|>")["input_ids"])
            width = max(map(len, rows))
            padded = [row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows]
            return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    return Scripted(shape)


@pytest.mark.slow
@pytest.mark.reference("trl")
@pytest.mark.filterwarnings("ignore")
def test_grpo_trains_two_steps_on_our_rewards(byte_tokenizer, shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template

    byte_tokenizer.chat_template = qwen3_chat_template
    model = scripted_model(byte_tokenizer, shape)
    rows = dataset("VisualSokoban", 4, seed=7)
    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(
            "out",
            **{"per_device_train_batch_size": 4, "num_generations": 2, "max_steps": 2},
            **{"max_completion_length": 600, "reward_weights": [0.0], "logging_steps": 1},
            **{"report_to": [], "save_strategy": "no", "use_cpu": True},
        ),
        reward_funcs=[grounding_accuracy],
        train_dataset=rows,
        environment_factory=environment_factory("VisualSokoban"),
        processing_class=byte_tokenizer,
    )
    trainer.train()
    steps = [line for line in trainer.state.log_history if "loss" in line]
    assert len(steps) == 2
    # Two turns at -0.1 each, whatever the level; `up` may be blocked, `dance` never works.
    accuracies = []
    for row in rows:
        play = Play("VisualSokoban")
        play.begin(row["task"], row["seed"])
        play.act("up")
        play.act("dance")
        assert play.total == pytest.approx(-0.2)
        accuracies.append(play.grounding_accuracy)
    for line in steps:
        assert line["rewards/TRLEnvironment/mean"] == pytest.approx(-0.2)
        assert line["reward"] == pytest.approx(-0.2)
        assert line["tools/call_frequency"] == 2.0 and line["tools/failure_frequency"] == 0.0
    # Two of the four rows a step, each played by both members of its group.
    told = sum(line["rewards/grounding_accuracy/mean"] for line in steps) / 2
    assert told == pytest.approx(sum(accuracies) / 4)
    first = [text for text in model.seen if "<tool_response>" not in text]
    assert len(first) == 8 and len(set(first)) == 4


@pytest.mark.reference("trl")
def test_rows_can_name_their_environment():
    rows = dataset("WebShop", 2, seed=3, name="shop")
    assert rows.column_names == ["prompt", "task", "seed", "environment"]
    assert rows[1]["seed"] == 4 and rows[1]["environment"] == "shop"


@pytest.mark.slow
@pytest.mark.reference("trl")
def test_the_example_trains_a_model_of_a_folder(small_model, run_example, tmp_path):
    run_example(
        "trl_grpo.py",
        *("--model", str(small_model), "--env", "VisualSokoban", "--steps", "2", "--cpu"),
        *("--group-size", "2", "--tokens", "8", "--out", "trained"),
    )
    state = json.loads((tmp_path / "trained/checkpoint-2/trainer_state.json").read_text())
    assert [row["step"] for row in state["log_history"] if "loss" in row] == [1, 2]
    assert "rewards/success/mean" in state["log_history"][0]
    assert (tmp_path / "trained/model.safetensors").is_file()
