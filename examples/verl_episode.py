"""Write verl's data, and play an episode in its own agent loop (`pip install -e ".[train]" verl`).

`python -m verl.trainer.main_ppo` takes the files as `data.train_files` and
`actor_rollout_ref.rollout.agent.agent_loop_config_path`. Here transformers generate, on a CPU.
"""

import argparse
import asyncio
from typing import Any

import hydra
import pyarrow.parquet as pq
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from creditrl.integrations.verl import write_files


class Generator:
    """Stands for verl's servers: one reply at a time."""

    def __init__(self, model: str, tokens: int) -> None:
        self.model, self.tokens = AutoModelForCausalLM.from_pretrained(model), tokens

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        """Return the tokens of a reply."""
        ids = torch.tensor([prompt_ids])
        out = self.model.generate(ids, max_new_tokens=self.tokens)
        return TokenOutput(token_ids=out[0, len(prompt_ids) :].tolist())


async def play(told: argparse.Namespace) -> Any:
    """Play the first row's episode and return what verl's worker would get."""
    data, loop = write_files("verl", told.env, episodes=100, seed=7)
    row = pq.read_table(data).to_pylist()[0]
    lengths = {"prompt_length": 8192, "response_length": 8192}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": lengths}, "data": {}})
    agent = hydra.utils.instantiate(
        OmegaConf.load(loop)[0],
        trainer_config=DictConfigWrap(config),
        server_manager=Generator(told.model, told.tokens),
        tokenizer=AutoTokenizer.from_pretrained(told.model),
        data_config=DictConfigWrap(config.data),
        **dict(processor=None, hf_model_type=None, tools=None, dataset_cls=RLHFDataset),
    )
    return await agent.run({}, raw_prompt=row["prompt"], extra_info=row["extra_info"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play an episode in verl's own agent loop.")
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B", help="name, or folder")
    parser.add_argument("--env", default="VisualSokoban", help="id, or short name")
    parser.add_argument("--tokens", type=int, default=128, help="of a reply, at most")
    out = asyncio.run(play(parser.parse_args()))
    print(f"{sum(out.response_mask)} tokens to train on, return {out.reward_score:.1f}")
