"""Task sets of generated households: made on demand, equal on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from creditrl.envs.alfworld.game import Game, compile_game
from creditrl.envs.alfworld.generate import (
    Household,
    HouseholdConfig,
    household,
    plan_length,
    task_type,
    to_problem,
)
from creditrl.envs.alfworld.problem import FLAVOURS, TASK_TYPES, Flavour, GameSource, Problem
from creditrl.envs.alfworld.tw_pddl import game_data
from creditrl.envs.tasks import SPLITS, ChosenTasks, TaskSet
from creditrl.errors import ConfigError, UnknownNameError, did_you_mean
from creditrl.types import Task

__all__ = ["NUM_TASKS", "GeneratedGame", "GeneratedGames"]

NUM_TASKS: Mapping[str, int] = MappingProxyType(
    {"train": 20_000, "valid_seen": 1_000, "valid_unseen": 1_000}
)
"""Tasks per split. Validation has more than the 140 and 134 official games: a success rate over
1,000 is known to three points."""

_FORMAT = 1  # Raised when equal indices give other households: caches of games forget the old ones.
_CACHED_TASKS = 32_768


@dataclass(frozen=True, slots=True)
class GeneratedGame(GameSource):
    """A household by what it is made from: as small as a key, and made again where it is needed."""

    config: HouseholdConfig
    split: str
    index: int
    flavour: Flavour = "0.4"

    @property
    def id(self) -> str:
        """Id of the task, ``"builtin/train/17"``."""
        return f"{self.config.name}/{self.split}/{self.index}"

    @property
    def key(self) -> str:
        """Equal keys mean equal games."""
        return f"{self.id} {self.flavour} {_FORMAT}"

    def household(self) -> Household:
        """Make the household: 0.1 to 0.4 ms, and ten draws instead of one in valid_seen."""
        return household(self.config, self.split, self.index)

    def problem(self, made: Household | None = None) -> Problem:
        """Return the household, or one made before, as facts."""
        return to_problem(made or self.household(), self.id.replace("/", "_"))

    def load(self) -> Game:
        """Make the game."""
        made = self.household()
        return compile_game(self.problem(made), made.text, self.flavour)

    def textworld_data(self) -> Mapping[str, Any]:
        """Return the game as a ``game.tw-pddl`` holds it."""
        made = self.household()
        return game_data(self.problem(made), made.text, self.flavour)


@lru_cache(maxsize=_CACHED_TASKS)
def _task(source: GeneratedGame) -> Task:
    made = source.household()
    return Task(
        id=source.id,
        type=made.goal_type,
        split=source.split,
        index=source.index,
        goal=made.text,
        difficulty=float(plan_length(made)),
        data=source,
    )


class GeneratedGames(TaskSet):
    """Households made on demand: task ``i`` depends on (config, split, i) alone.

    ``task.data`` is a :class:`GeneratedGame`, ``task.difficulty`` the fewest actions that reach the
    goal. The six types take turns: task ``i`` has type ``TASK_TYPES[i % 6]``.

    Args:
        split: one of :data:`creditrl.envs.tasks.SPLITS`.
        config: size of the households and other settings.
        flavour: wording of commands and observations.
        num_tasks: how many; None: as :data:`NUM_TASKS` says. A larger set begins with the tasks of
            a smaller one.
    """

    def __init__(
        self,
        split: str,
        config: HouseholdConfig | None = None,
        *,
        flavour: Flavour = "0.4",
        num_tasks: int | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ConfigError(
                f"split={split!r} is unknown.{did_you_mean(split, SPLITS)} "
                f"Known: {', '.join(SPLITS)}."
            )
        if flavour not in FLAVOURS:
            raise ConfigError(
                f"flavour={flavour!r} is unknown.{did_you_mean(str(flavour), FLAVOURS)} "
                f"Known: {', '.join(FLAVOURS)}."
            )
        if num_tasks is not None and num_tasks < 1:
            raise ConfigError(f"num_tasks={num_tasks}: expected at least one task.")
        self._split = split
        self._config = config or HouseholdConfig()
        self._flavour: Flavour = flavour
        self._size = NUM_TASKS[split] if num_tasks is None else num_tasks
        self._prefix = f"{self._config.name}/{split}/"

    def __len__(self) -> int:
        return self._size

    def task(self, index: int) -> Task:
        """Return task ``index``; the last 32,768 of all sets are kept."""
        if not 0 <= index < self._size:
            raise IndexError(f"Task index {index} is out of range: {self._size} tasks.")
        return _task(GeneratedGame(self._config, self._split, int(index), self._flavour))

    def find(self, task_id: str) -> Task:
        """Return the task of that id."""
        digits = task_id.removeprefix(self._prefix)
        if digits == task_id or not digits.isdecimal() or int(digits) >= self._size:
            raise UnknownNameError(
                f"No task {task_id!r}: expected {self._prefix}0 to {self._prefix}{self._size - 1}."
            )
        return self.task(int(digits))

    def filter(
        self,
        types: Sequence[str] | None = None,
        difficulty: tuple[float, float] | None = None,
        where: Callable[[Task], bool] | None = None,
    ) -> ChosenTasks:
        """Return some of the tasks; by type alone, none of them is made for that."""
        if types is None:
            return super().filter(None, difficulty, where)
        for name in types:
            if name not in TASK_TYPES:
                raise ConfigError(
                    f"types={types!r}: {name!r} is unknown.{did_you_mean(name, TASK_TYPES)} "
                    f"Known: {', '.join(TASK_TYPES)}."
                )
        indices = [i for i in range(self._size) if task_type(i) in types]
        if not indices:
            raise ConfigError(
                f"No task is left of {self._size} after filtering by types={types!r}. Widen it."
            )
        chosen = ChosenTasks(self, indices)
        if difficulty is None and where is None:
            return chosen
        return chosen.filter(None, difficulty, where)
