"""The stopwatch: nested parts by hand, the parts of an update, and what a run reports."""

from __future__ import annotations

from typing import Any

import pytest
from small_runs import make_agent, make_method, make_policy, make_trainer, make_venv

from creditrl.agents.prompts import get_form
from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.collect.watched import WatchedAgent
from creditrl.trainers.stopwatch import CPU_PREFIX, PARTS, Stopwatch, sum_parts, time_line


class Clock:
    """A clock that is advanced by hand or by slow methods."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def slow(self, owner: Any, name: str, seconds: float) -> None:
        """Make a method take the given time."""
        plain = getattr(owner, name)

        def slowed(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return plain(*args, **kwargs)

        setattr(owner, name, slowed)


def test_a_nested_part_pauses_the_outer_one():
    clock, cpu = Clock(), Clock()
    watch = Stopwatch(clock, cpu)
    with watch.part("other"):
        clock.now += 1  # waits for another thread
        for _ in range(2):
            with watch.part("environment"):
                clock.now += 2
                with watch.part("generation"):
                    clock.now += 5
                    cpu.now += 2
                clock.now += 3
        clock.now += 4
        cpu.now += 1
    clock.now += 50  # in no part
    assert watch.take() == {"other": 5.0, "environment": 10.0, "generation": 10.0}
    # CPU time is counted by the same parts.
    assert watch.take_cpu() == {"other": 1.0, "environment": 0.0, "generation": 4.0}
    assert watch.take() == watch.take_cpu() == {}


def test_a_part_that_ends_with_an_error_counts():
    clock = Clock()
    watch = Stopwatch(clock)
    with pytest.raises(ValueError, match="x"), watch.part("update"):
        clock.now += 3
        raise ValueError("x")
    with watch.part("credit"):
        clock.now += 1
    assert watch.take() == {"update": 3.0, "credit": 1.0}


def test_parts_add_up_over_updates_and_are_printed_in_one_line():
    rows = [
        {"phase": "train", "seconds/update": 1.0, "seconds/generation": 5.0, "loss": 0.1},
        {"phase": "train", "seconds/update": 2.0, "seconds/generation": 2.0, "cpu/models": 1.0},
        {"phase": "validation", "success": 0.5, "cpu/models": 2.0},
    ]
    parts = sum_parts(rows)
    assert list(parts.items()) == [("generation", 7.0), ("update", 3.0)]
    assert sum_parts(rows, CPU_PREFIX) == {"models": 3.0}
    assert time_line(parts) == "Updates: generation 70 %, update 30 % of 10 s."
    ahead = {"waiting": 1.0, "update": 3.0, "beside_environment": 1.0, "beside_generation": 2.0}
    assert time_line(ahead) == (
        "Updates: waiting 25 %, update 75 % of 4 s; meanwhile, episodes were collected for 3 s."
    )
    assert time_line({}) == ""


def test_every_part_of_an_update_is_counted_once():
    clock = Clock()
    # By PPO: old log-probabilities, a critic, and a policy.
    venv, policy, watch = make_venv(4), make_policy(), Stopwatch(clock)
    agent = make_agent(policy)
    collector = RolloutCollector(venv, WatchedAgent(agent, watch), get_form("plain"), seed=0)
    after = agent.weights_changed
    optim = {"minibatches": 2}  # a single step would score in its own forward pass
    trainer = make_trainer(
        policy, make_method("ppo"), collector, optim=optim, after_weights=after, watch=watch
    )
    (critic,) = trainer.models
    clock.slow(collector, "collect", 3.0)
    clock.slow(collector.agent.agent, "act", 5.0)
    clock.slow(trainer, "after_collect", 7.0)
    clock.slow(trainer.optimizer, "logprobs", 11.0)
    clock.slow(critic, "score", 13.0)
    clock.slow(trainer.method, "credit", 17.0)
    clock.slow(trainer.optimizer, "update", 19.0)
    clock.slow(trainer, "after_weights", 23.0)
    clock.slow(critic, "fit", 29.0)
    clock.now += 1000.0  # an evaluation
    metrics, trajectories = trainer.update()
    turns = max(len(trajectory.turns) for trajectory in trajectories)
    parts = {name: metrics[f"seconds/{name}"] for name in PARTS if f"seconds/{name}" in metrics}
    assert parts == {
        "environment": 3.0,
        "generation": 5.0 * turns,
        "scoring": 11.0 + 13.0,
        "credit": 17.0,
        "update": 19.0,
        "models": 29.0,
        "sync": 7.0 + 23.0,
        "other": 0.0,
    }
    assert metrics["seconds"] == sum(parts.values()) == trainer.clock.seconds
    assert metrics["collect_seconds"] == 3.0 + 5.0 * turns + 7.0
    assert metrics["collect_seconds"] + metrics["update_seconds"] == metrics["seconds"]
    # The next update starts from zero, whatever happened in between.
    clock.now += 1000.0
    again, _ = trainer.update()
    assert again["seconds/credit"] == 17.0
    assert again["seconds"] - metrics["seconds"] == sum(
        again[f"seconds/{name}"] for name in PARTS if f"seconds/{name}" in again
    )
