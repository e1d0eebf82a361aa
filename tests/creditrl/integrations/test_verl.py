"""verl's own loop class, made as its workers make it, drives our environments."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from creditrl.integrations.play import Play
from creditrl.integrations.verl import write_files

pytestmark = [pytest.mark.reference("verl.experimental.agent_loop"), pytest.mark.slow]


class Said:
    """Stands in for verl's servers and gives scripted replies."""

    def __init__(self, tokenizer: Any, replies: list[str]) -> None:
        self.tokenizer, self.replies = tokenizer, list(replies)
        self.prompts: list[list[int]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.prompts.append(list(prompt_ids))
        ids = self.tokenizer(f"{self.replies.pop(0)}<|im_end|>")["input_ids"]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


def run(
    folder: Path, tokenizer: Any, env: str, replies: list[str], most: int = 100_000
) -> tuple[Any, Said]:
    """Play the first row of the files with the loop that they name."""
    import hydra
    import numpy as np
    import pyarrow.parquet as pq
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    data, loop = write_files(folder, env, 1, seed=7)
    (row,) = pq.read_table(data).to_pylist()
    rollout = {"prompt_length": 100_000, "response_length": most, "full_determinism": False}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    server = Said(tokenizer, replies)

    async def play() -> Any:
        made = hydra.utils.instantiate(
            config=OmegaConf.load(loop)[0],
            trainer_config=DictConfigWrap(config),
            server_manager=server,
            tokenizer=tokenizer,
            processor=None,
            hf_model_type=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=None,
        )
        return await made.run(
            {}, raw_prompt=row["prompt"], extra_info=row["extra_info"], priority=np.int64(0)
        )

    return asyncio.run(play()), server


def test_only_the_experts_replies_are_trained_on(env, byte_tokenizer, tmp_path):
    from creditrl.integrations import plan_episodes

    (row,) = plan_episodes(env, 1, seed=7)
    play = Play(env)
    play.begin(**row)
    replies, grounded = [], []
    while not play.over:
        replies.append(play.form.reply(play.env.expert_action() or "nothing"))
        play.reply(replies[-1])
        grounded.append(play.info["grounded"])
    out, server = run(tmp_path, byte_tokenizer, env, replies)
    assert out.reward_score == pytest.approx(play.total)
    own = [t for t, mask in zip(out.response_ids, out.response_mask, strict=True) if mask]
    assert byte_tokenizer.decode(own) == "".join(f"{text}<|im_end|>" for text in replies)
    assert len(out.response_logprobs) == len(out.response_ids)
    extra = out.extra_fields
    assert extra["turn_scores"] == play.rewards and extra["turn_grounded"] == grounded
    assert [out.response_ids[i] for i in extra["turn_ends"]] == (
        [byte_tokenizer.eos_token_id] * len(replies)
    )
    assert json.loads(extra["creditrl"]) == play.result()
    # Every prompt is the previous one plus the new messages: nothing is tokenised again.
    for before, after in zip(server.prompts, server.prompts[1:], strict=False):
        assert after[: len(before)] == before
    assert server.prompts[0] == out.prompt_ids


def test_a_reply_that_does_not_fit_is_not_played(byte_tokenizer, tmp_path):
    replies = ["Thought: Why not.\nAction: up"] * 9
    out, _ = run(tmp_path, byte_tokenizer, "VisualSokoban", replies, most=100)
    # A reply has 29 bytes and an end, an observation some 60: the second does not fit.
    assert len(out.extra_fields["turn_scores"]) == 1 and len(out.response_ids) <= 100
    assert out.reward_score == pytest.approx(-0.1)


def test_the_example_plays_in_verls_loop(small_model, run_example):
    words = ("--model", str(small_model), "--env", "VisualSokoban", "--tokens", "8")
    told = run_example("verl_episode.py", *words).splitlines()[-1]
    assert re.fullmatch(r"[1-9]\d* tokens to train on, return -?[\d.]+", told)
