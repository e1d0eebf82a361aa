"""Where an update's time goes: parts by a clock that is put forward by hand, and their sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from small_runs import make_policy, make_venv

from creditrl.agents.prompts import get_form
from creditrl.agents.transformers import TransformersAgent
from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.collect.watched import WatchedAgent
from creditrl.trainers.config import BudgetConfig, OptimConfig, RolloutConfig
from creditrl.trainers.loop import Trainer
from creditrl.trainers.methods import method_info
from creditrl.trainers.stopwatch import PARTS, Stopwatch


class Clock:
    """A clock that is put forward by what takes its time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def slow(self, owner: Any, name: str, seconds: float) -> None:
        """Make a method take so long."""
        plain: Callable[..., Any] = getattr(owner, name)

        def slowed(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return plain(*args, **kwargs)

        setattr(owner, name, slowed)


def make_trainer(watch: Stopwatch) -> Trainer:
    """Return a trainer by PPO: old log-probabilities, a critic, and a policy."""
    venv, policy = make_venv(4), make_policy()
    agent = TransformersAgent(policy.model, policy.tokenizer, max_new_tokens=1)
    watched = WatchedAgent(agent, watch)
    info = method_info("ppo")
    return Trainer(
        policy,
        info.method(info.config()),
        RolloutCollector(venv, watched, get_form("plain"), seed=0),
        RolloutConfig(max_new_tokens=1),
        OptimConfig(),
        BudgetConfig(updates=2),
        seed=0,
        after_weights=agent.weights_changed,
        watch=watch,
    )


def test_every_part_of_an_update_is_counted_once():
    clock = Clock()
    trainer = make_trainer(Stopwatch(clock))
    collector: Any = trainer.collector
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
    # The next update begins anew, whatever was done in between.
    clock.now += 1000.0
    again, _ = trainer.update()
    assert again["seconds/credit"] == 17.0
    assert again["seconds"] - metrics["seconds"] == sum(
        again[f"seconds/{name}"] for name in PARTS if f"seconds/{name}" in again
    )
