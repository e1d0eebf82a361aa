"""Exploration: many episodes of one policy on many tasks, before training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from creditrl.agents.rollout import run_episodes
from creditrl.trainers.collect.base import Collected, Gear, drop_failed_groups
from creditrl.trainers.collect.tasks import stream

__all__ = ["exploration"]


def exploration(gear: Gear, tasks: int) -> Iterator[Collected]:
    """Yield ``gear.group_size`` episodes of each of some tasks, a block of tasks at a time.

    Args:
        gear: with the exploring agent; ``gear.groups`` tasks are played side by side.
        tasks: different tasks, drawn from the split; all of them where there are fewer.
    """
    venv = gear.environment(gear.groups * gear.group_size, gear.group_size)
    order = stream("exploration", gear.seed).permutation(len(venv.tasks))[:tasks]
    for block, start in enumerate(range(0, len(order), gear.groups)):
        chosen = order[start : start + gear.groups].tolist()
        kept = len(chosen) * gear.group_size
        chosen += order[: gear.groups - len(chosen)].tolist()  # the last block is filled up
        while len(chosen) < gear.groups:
            chosen.append(chosen[0])
        gear.agent.reseed(int(stream("exploration", gear.seed, block + 1).integers(2**63)))
        played = run_episodes(
            venv,
            gear.agent,
            gear.form,
            seed=int(stream("exploration", gear.seed, block + 1).integers(2**31)),
            tasks=chosen,
            hash_states=gear.hash_states,
            segments=gear.segments,
            expert_actions=gear.expert_actions,
            retries=gear.retries if venv.retry_helps else 0,
            label=f"explore{block}",
        )
        # Groups are told apart over blocks.
        moved = [replace(t, group=t.group + block * gear.groups) for t in played[:kept]]
        valid, _ = drop_failed_groups(moved)
        yield Collected(valid, sum(len(t.turns) for t in played))
