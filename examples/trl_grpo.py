"""Train a model with TRL's GRPO on an environment; it acts by calling a tool.

pip install -e ".[trl]" && python examples/trl_grpo.py --model Qwen/Qwen3-0.6B

`--model` takes a folder as well, and then nothing is downloaded.
"""

from __future__ import annotations

import argparse

from trl import GRPOConfig, GRPOTrainer

from creditrl.integrations.trl import dataset, environment_factory, grounding_accuracy, success

parser = argparse.ArgumentParser(description="Train a model with TRL's GRPO on an environment.")
parser.add_argument("--model", default="Qwen/Qwen3-0.6B", help="name, or folder")
parser.add_argument("--env", default="VisualSokoban", help="id, or short name")
parser.add_argument("--steps", type=int, default=200, help="updates")
parser.add_argument("--group-size", type=int, default=8, help="episodes of each task")
parser.add_argument("--tokens", type=int, default=2048, help="of an episode's replies, at most")
parser.add_argument("--cpu", action="store_true", help="train without a GPU")
parser.add_argument("--out", default="runs/trl", help="folder of the trained model")


if __name__ == "__main__":
    told = parser.parse_args()
    trainer = GRPOTrainer(
        model=told.model,
        args=GRPOConfig(
            told.out,
            max_steps=told.steps,
            num_generations=told.group_size,
            per_device_train_batch_size=told.group_size,
            max_completion_length=told.tokens,
            # Weight 0: logged, beside the sum of the environment's own rewards.
            reward_weights=[0.0, 0.0],
            logging_steps=1,
            report_to=[],
            use_cpu=told.cpu,
        ),
        reward_funcs=[grounding_accuracy, success],
        train_dataset=dataset(told.env, episodes=1000, seed=7),
        environment_factory=environment_factory(told.env),
    )
    trainer.train()
    trainer.save_model(told.out)
