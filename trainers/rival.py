"""A policy cloned for as long as another one was cloned and trained: what RL has to beat.

The rival is a run of its own in a process of its own, with the same policy, demonstrations and
held-out levels, and method ``sft``. Where training has a core to spare and a known length, both run
side by side.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from creditrl.agents.evaluate import EvalResult
from creditrl.config import to_mapping, write_toml
from creditrl.errors import CreditRLError
from creditrl.runs import RunFolder
from creditrl.trainers.config import BudgetConfig, CompareConfig, TrainConfig, method_section

__all__ = ["Rival"]

_PR_SET_PDEATHSIG = 1
"""Linux's number of that request (prctl(2))."""


class Rival:
    """The run beside a run.

    Args:
        config: of the run that it is compared with.
        folder: the rival's own run folder; its recipe and its log lie beside it.
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
            compare=CompareConfig(),
            eval=replace(config.eval, every=0),
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
                preexec_fn=_end_with_parent(),
            )

    def result(self) -> dict[str, EvalResult]:
        """Wait for the rival and return its evaluations.

        Raises:
            CreditRLError: it failed; names its log.
        """
        code = self._process.wait()
        if code:
            raise CreditRLError(f"The comparison ended with code {code}; its log is {self.log}.")
        return RunFolder.open(self.folder).read_evaluations("after")

    def stop(self) -> None:
        """End the rival if it still runs; may be called twice."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _end_with_parent() -> Callable[[], object] | None:
    """Return what a child calls so that it ends with this process, even if that is killed.

    Only Linux has it. Elsewhere a killed run leaves its rival at work until its time is up, and
    nobody must resume the run before.
    """
    if sys.platform != "linux":
        return None
    # Looked up here: between fork and exec a child must not load anything.
    prctl = ctypes.CDLL(None).prctl
    return functools.partial(prctl, _PR_SET_PDEATHSIG, int(signal.SIGKILL))
