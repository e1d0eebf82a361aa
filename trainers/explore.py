"""The explore phase: episodes before training, and the method's models fitted to them."""

from __future__ import annotations

import time

import numpy as np

from creditrl.progress import Progress
from creditrl.trainers.collect.base import CollectContext
from creditrl.trainers.collect.explore import exploration
from creditrl.trainers.loop import Trainer
from creditrl.trainers.stopwatch import CPU_PREFIX
from creditrl.types import Trajectory

__all__ = ["explore"]


def explore(
    trainer: Trainer, context: CollectContext, tasks: int, progress: Progress
) -> tuple[list[Trajectory], dict[str, float]]:
    """Let the policy explore, and fit the models; return its episodes and a row of metrics.

    Args:
        trainer: before its first update; its clock counts the exploration.
        context: has the exploring agent and its group size.
        tasks: number of tasks to explore.
        progress: shows the progress.
    """
    begin, cpu_begin = time.perf_counter(), time.process_time()
    found: list[Trajectory] = []
    turns = 0
    with progress.phase("explore") as show:
        for collected in exploration(context, tasks):
            found += collected.trajectories
            turns += collected.environment_turns
            seconds = time.perf_counter() - begin
            show(len(found), seconds, success=float(np.mean([t.success for t in found])))
        explored = time.process_time() - cpu_begin
        metrics = trainer.pretrain(found, turns, time.perf_counter() - begin, show)
    trainer.clock.cpu_seconds += time.process_time() - cpu_begin
    return found, {
        "environment_turns": turns,
        **metrics,
        f"{CPU_PREFIX}explore": explored,
        f"{CPU_PREFIX}models": time.process_time() - cpu_begin - explored,
    }
