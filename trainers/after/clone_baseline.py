"""A policy cloned for as long as another one was cloned and trained: what RL has to beat.

The baseline is a run of its own in a process of its own, with the same policy, demonstrations and
held-out levels, and method ``sft``. Where training has a core to spare and a known length, both run
side by side.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from creditrl.agents.evaluate import EvalResult
from creditrl.children import end_with_parent, stop
from creditrl.config import to_mapping, write_toml
from creditrl.errors import CreditRLError
from creditrl.runs import RunFolder
from creditrl.trainers.config import BudgetConfig, CompareConfig, TrainConfig, method_section
from creditrl.trainers.decode.engine_config import VLLMConfig
from creditrl.trainers.parallel.ranks import without_ranks
from creditrl.trainers.parallel.ray_config import RayConfig

__all__ = ["CloneBaseline"]


class CloneBaseline:
    """The run beside a run.

    Args:
        config: of the run that it is compared with.
        folder: the baseline's own run folder; its recipe and its log lie beside it.
        seconds: how long it clones.
    """

    def __init__(self, config: TrainConfig, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        recipe = folder.with_suffix(".toml")
        run = replace(
            config.run,
            folder=None,
            resume=False,
            checkpoint_every=0,
            trajectories_every=0,
            sinks=(),
        )
        own = replace(
            config,
            method=method_section("sft")(),
            optim=config.clone.optim,
            budget=BudgetConfig(seconds=seconds),
            # Weights that it would bring to a server are not those of the run beside it.
            rollout=replace(
                config.rollout,
                backend="transformers",
                vllm=VLLMConfig(),
                ahead=None,
                ray=RayConfig(),
            ),
            compare=CompareConfig(),
            eval=replace(config.eval, every=0, every_turns=0),
            run=run,
        )
        write_toml(to_mapping(own), recipe, header="The run that clones for the same time")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-m", "creditrl.cli", "train", f"@{recipe}", "--run.folder", str(folder)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=without_ranks(),
                preexec_fn=end_with_parent(),
            )

    def result(self) -> dict[str, EvalResult]:
        """Wait for the baseline and return its evaluations.

        Raises:
            CreditRLError: it failed; names its log.
        """
        code = self._process.wait()
        if code:
            raise CreditRLError(f"The comparison ended with code {code}; its log is {self.log}.")
        return RunFolder.open(self.folder).read_evaluations("after")

    def stop(self) -> None:
        """End the baseline if it still runs; may be called twice."""
        stop(self._process)
