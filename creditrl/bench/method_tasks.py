"""The task sets on which methods are compared, and the recipe of each method on each of them.

A task set is a small recipe of its environment with its section ``[method]`` taken out and some
settings changed, so that a clone begins at 10 to 35 % success. A method brings the section
``[method]`` of its own small recipe, which was found on VisualSokoban.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from creditrl.config import read_recipe, with_changes
from creditrl.errors import UnknownNameError, did_you_mean

__all__ = ["TASK_SETS", "Measure", "TaskSet", "recipe_of", "task_set"]

Measure = Literal["success", "score"]


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks, a policy that has begun to solve them, and how long methods train it."""

    name: str
    title: str
    """What is played, in words."""
    base: str
    """Name of the recipe that it changes."""
    changes: Mapping[str, Any]
    """Nested as in the recipe, and instead of what it says."""
    turns: int
    """Environment turns of a run, exploration before training included."""
    measures: tuple[Measure, ...] = ("success",)
    """What is compared; settings are chosen by the last one."""
    explored: int = 32
    """Tasks of an exploration before training at the shared setting, of methods that have one; as
    many as small recipes explore would be most of a run's turns."""

    @property
    def measure(self) -> Measure:
        """What settings are chosen by: the score where rewards are graded."""
        return self.measures[-1]


_OPTIM: Mapping[str, Any] = {
    "lr": 5e-4,
    "epochs": 1,
    "minibatches": 2,
    "warmup": 4,
    # A schedule that ends with the budget would make every curve one of this budget alone.
    "schedule": "constant",
    "check_every": 20,
}
"""The shared setting."""
_GROUPS: Mapping[str, Any] = {"groups": 16, "group_size": 8}

TASK_SETS: Mapping[str, TaskSet] = {
    found.name: found
    for found in (
        TaskSet(
            name="rooms",
            title="VisualSokoban, easy, 2 to 8 moves",
            base="grpo_small",
            changes={"rollout": _GROUPS, "clone": {"updates": 100}},
            turns=200_000,
        ),
        TaskSet(
            name="rooms-long",
            title="VisualSokoban, medium, 10 to 20 moves",
            base="grpo_small",
            changes={
                "env": {
                    "options": {"tier": "medium", "min_optimal_moves": 10, "max_optimal_moves": 20}
                },
                "rollout": _GROUPS,
                "clone": {"episodes": 2000, "updates": 1500},
            },
            turns=300_000,
        ),
        TaskSet(
            name="alfworld",
            title="ALFWorld, builtin households, all six types, 30 turns",
            base="alfworld_small",
            changes={"clone": {"updates": 65}},
            turns=80_000,
        ),
        TaskSet(
            name="virtualhome",
            title="VirtualHome, builtin houses, 20 turns",
            base="virtualhome_small",
            # Turns are slow here, so updates are small: some 1,000 turns each.
            changes={"rollout": {"groups": 8, "group_size": 8}, "clone": {"updates": 30}},
            turns=16_000,
            explored=8,
        ),
        TaskSet(
            name="webshop",
            title="WebShop, 1,000 products, graded reward",
            base="webshop_small",
            changes={"rollout": {"reward": "environment"}, "clone": {"updates": 40}},
            turns=35_000,
            measures=("success", "score"),
        ),
        TaskSet(
            name="sotopia",
            title="SOTOPIA, price and division, graded reward",
            base="sotopia_small",
            changes={
                "env": {"options": {"task_types": ["price", "items"]}},
                "clone": {"updates": 10},
            },
            turns=20_000,
            measures=("success", "score"),
        ),
    )
}
"""By name."""


def task_set(name: str) -> TaskSet:
    """Return the task set of that name.

    Raises:
        UnknownNameError: there is none; names the nearest and all.
    """
    if name not in TASK_SETS:
        raise UnknownNameError(
            f"No task set named {name!r}.{did_you_mean(name, TASK_SETS)} "
            f"Known: {', '.join(TASK_SETS)}."
        )
    return TASK_SETS[name]


def recipe_of(tasks: TaskSet, method: str) -> dict[str, Any]:
    """Return the recipe of a method on a task set, at the shared setting, as TOML holds it.

    Raises:
        UnknownNameError: there is no such method.
    """
    from creditrl.trainers.methods.base import method_info

    config = method_info(method).config
    base, own = read_recipe(tasks.base), read_recipe(f"{method}_small")
    data = with_changes({**base, "method": own["method"]}, tasks.changes)
    data["optim"] = {
        **{name: base["optim"][name] for name in ("token_budget",) if name in base["optim"]},
        **_OPTIM,
    }
    if own["rollout"].get("reward") == "success":
        # Methods that are defined on outcomes of 0 and 1 take those of graded tasks as well.
        data["rollout"] = {**data["rollout"], "reward": "success", "reward_scale": 1.0}
    if "exploration" in (known.name for known in fields(config)):
        explored = {"exploration": {"tasks": tasks.explored}}
        data["method"] = with_changes(data["method"], explored)
    data["run"] = {"name": f"{tasks.name}-{method}", "threads": 1}
    data["budget"] = {}
    data.pop("compare", None)
    return data
