"""Many training runs from one command: one process each, some in parallel, resumable.

Every run has its own folder, named after its settings. A finished run is not repeated, an
interrupted one continues from its newest checkpoint, and a failed one is reported while the others
continue.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from creditrl.children import end_with_parent, stop
from creditrl.config import config_hash, find_recipe, is_run_config, read_recipe, read_toml
from creditrl.errors import ConfigError, RunFolderError
from creditrl.locks import Lock
from creditrl.plugins import named_flags
from creditrl.runs import RunFolder
from creditrl.trainers.config import TrainConfig, resolve

__all__ = ["PlannedRun", "is_finished", "run_pool"]

_POLL = 0.2
"""Seconds between checks of the running ones."""
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of many."""

    name: str
    """Name of its folder."""
    recipe: str
    """The recipe as for ``creditrl train``, e.g. ``"@quickstart"``."""
    flags: tuple[str, ...]
    """Overrides of the recipe, without ``run.folder`` and ``run.resume``."""

    def config(self) -> TrainConfig:
        """Return the run's configuration.

        Raises:
            UnknownNameError, ConfigError: its configuration is invalid.
        """
        source = find_recipe(self.recipe)
        prog = f"creditrl train {self.recipe}"
        trust = not is_run_config(source)
        return resolve(read_recipe(source), self.flags, f"recipe {source.name}", prog, trust=trust)


def run_pool(
    runs: Sequence[PlannedRun], folder: Path, *, workers: int, show: Callable[[str], None]
) -> dict[str, str]:
    """Finish every run; returns the last line of failed ones, by name.

    Args:
        runs: their names differ.
        folder: of their folders and logs; created if needed.
        workers: parallel runs, one thread each.
        show: called with a line whenever a run ends.

    Raises:
        ConfigError: a run's configuration is invalid; nothing was started.
        RunFolderError: the folder has another run under one of the names, or another command is
            using it; nothing was started.
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}: expected at least 1.")
    for run in runs:
        _check_same(run, folder / run.name)
    folder.mkdir(parents=True, exist_ok=True)
    with Lock(folder / ".lock", f"the folder of runs {folder}"):
        waiting = [run for run in runs if not is_finished(folder / run.name)]
        if len(waiting) < len(runs):
            show(f"{len(runs) - len(waiting)} of {len(runs)} runs are done already.")
        return _work_off(waiting, folder, workers, show)


def is_finished(folder: Path) -> bool:
    """Return whether a run is finished."""
    return (folder / "config.toml").is_file() and "finished" in RunFolder(folder).read_results()


@dataclass(slots=True)
class _Running:
    run: PlannedRun
    process: subprocess.Popen[bytes]
    began: float


def _work_off(
    waiting: list[PlannedRun], folder: Path, workers: int, show: Callable[[str], None]
) -> dict[str, str]:
    failed: dict[str, str] = {}
    running: list[_Running] = []
    wanted = len(waiting)
    spent: list[float] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                run = waiting.pop(0)
                running.append(_Running(run, _start(run, folder), time.monotonic()))
            time.sleep(_POLL)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                seconds = time.monotonic() - one.began
                name = one.run.name
                if one.process.returncode == 0:
                    spent.append(seconds)
                    told = f"{name}: done in {seconds:.0f} s"
                else:
                    failed[name] = _last_line(folder / f"{name}.log")
                    told = f"{name}: failed ({failed[name]})"
                ended = wanted - len(waiting) - len(running)
                show(f"{ended}/{wanted} {told}{_left(spent, len(waiting), len(running), workers)}")
    finally:
        # An interrupted command ends its runs; they continue from their checkpoints.
        for one in running:
            stop(one.process)
    return failed


def _start(run: PlannedRun, folder: Path) -> subprocess.Popen[bytes]:
    path = folder / run.name
    # Parallel runs use the cores better with one thread each; a flag can change it.
    words = ["train", run.recipe, "--run.threads=1", *run.flags, f"--run.folder={path}"]
    words += named_flags()
    if path.exists():
        words.append("--run.resume")
    with (folder / f"{run.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "creditrl.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**_ONE_THREAD, **os.environ},
            # Ctrl-C goes only to us; we end them.
            start_new_session=True,
            preexec_fn=end_with_parent(),
        )


def _check_same(run: PlannedRun, path: Path) -> None:
    """Raise if the run is invalid, or if its folder has other settings."""
    config = run.config()
    if not (path / "config.toml").is_file():
        if path.exists():
            raise RunFolderError(f"{path} exists and is no run. Choose another --folder.")
        return
    toml = path / "config.toml"
    there = resolve(read_toml(toml), (), str(toml), "creditrl train")
    if _identity(there) != _identity(config):
        raise RunFolderError(
            f"{path} is a run with other settings than are asked for now. Choose another --folder, "
            "or remove that run to do it again."
        )


def _identity(config: TrainConfig) -> str:
    run = replace(config.run, folder=None, resume=False, threads=0, plugins=())
    return config_hash(replace(config, run=run))


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines() if log.is_file() else []
    words = next((line.strip() for line in reversed(lines) if line.strip()), "it left no message")
    return f"{words}; log: {log}"


def _left(spent: Sequence[float], waiting: int, running: int, workers: int) -> str:
    """Estimate how long the rest takes, from the mean of the finished ones."""
    if not spent or not waiting + running:
        return ""
    rounds = (waiting + running / 2) / workers
    return f"; about {max(1.0, rounds * sum(spent) / len(spent) / 60):.0f} min left"
