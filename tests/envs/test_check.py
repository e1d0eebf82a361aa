"""The contract check: a correct environment passes every rule, and every rule can fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from toy_env import TOY, ToyConfig, ToyEngine, ToyEnv, ToyVectorEnv

from creditrl.envs.base import Effect, View
from creditrl.envs.check import RULES, check
from creditrl.errors import ConformanceError, UnknownNameError
from creditrl.types import Task

# Another process finds the toy by its name.
pytestmark = pytest.mark.usefixtures("toy_on_path")


def test_a_correct_environment_passes_every_rule() -> None:
    report = check(TOY)
    assert report.ok, str(report)
    assert [r.rule for r in report.results] == [rule.name for rule in RULES]
    assert {r.outcome for r in report.results} == {"passed"}
    report.raise_for_failures()


# -- one broken environment per rule -------------------------------------------------------------
class WithLimit(ToyEnv):
    """Registered with a turn limit of Gymnasium's (see ``_broken``)."""


class Warns(ToyEnv):
    metadata = {"render_modes": ["ansi"]}  # no render_fps: Gymnasium warns


class FloatAfterInt(ToyEngine):
    def view(self, index_K: Any) -> View:
        seen = super().view(index_K)
        if (self.cell[index_K] > 1).any():
            seen.extra["cell"] = self.cell[index_K].astype(float)
        return seen


class LosesKey(ToyEngine):
    def view(self, index_K: Any) -> View:
        seen = super().view(index_K)
        if (self.cell[index_K] > 1).any():
            del seen.extra["cell"]
        return seen


class NumpyFlags(ToyEnv):
    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, np.bool_(terminated), truncated, info


class CountsHalf(ToyEngine):
    """Every second action costs no turn, which its parts do not say."""

    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        effect = super().act(index_K, ["look"] * len(actions))
        self.acted = getattr(self, "acted", 0) + 1
        effect.costs_turn_K = np.full(len(actions), self.acted % 2 == 0)
        return effect


class PlaysAnotherTask(ToyEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=None)


class Crashes(ToyEngine):
    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        if any("<action>" in action for action in actions):
            raise ValueError("cannot parse")
        return super().act(index_K, actions)


class TakesAnything(ToyEnv):
    def step(self, action: Any) -> Any:
        return super().step(str(action))


class PlaysLetters(ToyVectorEnv):
    def step(self, actions: Any) -> Any:
        return super().step(list(actions))


class LooksAtTheHash(ToyEngine):
    def begin(self, index_K: Any, tasks: Sequence[Task], seed_K: Sequence[int]) -> None:
        super().begin(index_K, tasks, seed_K)
        self.cell[index_K] = [abs(hash(f"x{seed}")) % 5 for seed in seed_K]


class LooksAtTheClock(ToyEngine):
    def view(self, index_K: Any) -> View:
        seen = super().view(index_K)
        seen.extra["at"] = np.full(len(index_K), time.time())
        return seen


class Remembers(ToyEngine):
    """Keeps a number for each copy, which starts at 0 and is in no snapshot."""

    def __init__(self, num_envs: int, config: ToyConfig) -> None:
        super().__init__(num_envs, config)
        self.last = np.zeros(num_envs, dtype=np.int64)

    def begin(self, index_K: Any, tasks: Sequence[Task], seed_K: Sequence[int]) -> None:
        super().begin(index_K, tasks, seed_K)
        self.last[index_K] = 0


class ForgetsCarriedState(Remembers):
    """What a step does depends on the step before, which the snapshot leaves out."""

    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        self.last[index_K] += 1
        effect = super().act(index_K, actions)
        effect.reward_K = np.asarray(effect.reward_K) + self.last[index_K]
        return effect


class TakesAnySnapshot(ToyEnv):
    def restore(self, snap: Any) -> Any:
        object.__setattr__(snap, "env_id", self.env_id)
        object.__setattr__(snap, "format", 1)
        return super().restore(snap)


class OneKeyForAll(ToyEngine):
    def state_keys(self, index_K: Any, source: str) -> list[bytes]:
        return [b"" for _ in index_K]


class HidesMomentum(Remembers):
    """A step in the last step's direction gets more reward, which the state key ignores."""

    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        move_K = np.array([{"right": 1, "left": -1}.get(a, 0) for a in actions])
        effect = super().act(index_K, actions)
        effect.reward_K = np.asarray(effect.reward_K) + (move_K == self.last[index_K])
        self.last[index_K] = move_K
        return effect

    def snapshot(self, index_K: Any) -> list[Any]:
        return list(zip(super().snapshot(index_K), self.last[index_K].tolist(), strict=True))

    def restore(self, index_K: Any, states: Sequence[Any], tasks: Sequence[Task]) -> None:
        own, self.last[index_K] = zip(*states, strict=True)
        super().restore(index_K, own, tasks)


class MovesOnNonsense(ToyEngine):
    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        effect = super().act(index_K, actions)
        self.cell[index_K] = np.where(effect.grounded_K, self.cell[index_K], 0)
        return effect


class LostExpert(ToyEngine):
    def expert_action(self, index: int) -> str | None:
        return "left" if self.cell[index] else "right"


class SharesTasks(ToyEnv):
    seen_as_in_training = True


class MovesWhileDrawing(ToyEngine):
    def render(self, index: int, mode: str) -> str:
        self.cell[index] += 1
        return super().render(index, mode)


class NeighboursLeak(ToyEngine):
    """Copies in one call affect each other, as with a broadcasting mistake."""

    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        effect = super().act(index_K, actions)
        effect.reward_K = np.full(len(index_K), np.asarray(effect.reward_K).mean())
        return effect


class RaggedColumns(ToyVectorEnv):
    def step(self, actions: Any) -> Any:
        *rest, columns = super().step(actions)
        if columns["cell"].max() > 1:
            columns["score"] = columns["score"].astype(np.float32)
        return (*rest, columns)


class GroupsPart(ToyVectorEnv):
    """Members draw for themselves from the second episode on."""

    def _begin(self, index_K: Any) -> Any:
        tasks = [self.tasks.task(int(i + self._episode[i]) % 3) for i in index_K]
        if (self._episode[index_K] == 0).all():
            return super()._begin(index_K)
        frame = self.copies.begin(index_K, tasks, [0] * len(tasks))
        self._active[index_K] = True
        return frame


class ResetsEverybody(ToyVectorEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if options:
            options.pop("reset_mask", None)
        return super().reset(seed=seed, options=options)


class RepeatsTheEnd(ToyVectorEnv):
    """Finished copies report ``terminated`` at every step."""

    def step(self, actions: Any) -> Any:
        waiting = ~self.active
        observations, reward, terminated, truncated, columns = super().step(actions)
        return observations, reward, terminated | waiting, truncated, columns


class HoldsALock(ToyEnv):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lock = threading.Lock()


class CopiesItselfAsItself(ToyEnv):
    def __deepcopy__(self, memo: Any) -> Any:
        return self


class StepsTheOthers(ToyVectorEnv):
    def step_some(self, indices: Any, actions: Any) -> Any:
        everything = ["say moved"] * self.num_envs
        for i, action in zip(indices, actions, strict=True):
            everything[i] = action
        observations, reward, terminated, truncated, columns = self.step(everything)
        at = np.asarray(indices)
        return (
            tuple(observations[i] for i in indices),
            reward[at],
            terminated[at],
            truncated[at],
            {key: column[at] for key, column in columns.items()},
        )


class CountsProcesses(ToyEngine):
    """Adds its number of copies to the reward: shards of 2 differ from one block of 4."""

    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        effect = super().act(index_K, actions)
        effect.reward_K = np.asarray(effect.reward_K) + self.num_envs
        return effect


class ResetsTooLate(ToyVectorEnv):
    """Under autoreset a finished copy waits one step more than Gymnasium's."""

    def _advance(self, index_K: Any, wanted: Any) -> None:
        super()._advance(index_K, wanted)
        if self._info and not wanted and len(index_K) < self.num_envs:
            super()._advance(index_K, wanted)


BROKEN: list[tuple[str, type, str]] = [
    ("registration", WithLimit, "max_episode_steps=7"),
    ("gymnasium_check_env", Warns, "render_fps"),
    ("info_keys_and_types", FloatAfterInt, "info['cell'] is a float"),
    ("info_keys_and_types", LosesKey, "info lacks cell"),
    ("ends_and_limits", NumpyFlags, "terminated is a bool"),
    ("ends_and_limits", CountsHalf, "goes on after the 12 steps of the spec"),
    ("task_choice", PlaysAnotherTask, "plays"),
    ("takes_any_string", Crashes, "raised ValueError: cannot parse"),
    ("refuses_what_is_no_string", TakesAnything, "raised nothing, expected a TypeError"),
    ("refuses_what_is_no_string", PlaysLetters, "step of copies of 'look' raised nothing"),
    ("same_episode_in_any_process", LooksAtTheHash, "PYTHONHASHSEED"),
    ("same_episode_in_any_process", LooksAtTheClock, "info['at']"),
    ("snapshot_continues_alike", ForgetsCarriedState, "reward"),
    ("snapshot_refuses_strangers", TakesAnySnapshot, "another environment"),
    ("pickle_and_deepcopy", HoldsALock, "a pickle before reset() raised TypeError"),
    ("pickle_and_deepcopy", CopiesItselfAsItself, "a deep copy after 0 turns"),
    ("state_keys", OneKeyForAll, "two visits of one state key: "),
    ("state_keys", HidesMomentum, "equal state keys, other futures"),
    ("state_keys", MovesOnNonsense, "the world key changed"),
    ("expert_finishes", LostExpert, "truncated=True"),
    ("splits_share_no_task", SharesTasks, "valid_seen's 'valid_seen/0' is train's 'train/0'"),
    ("renders", MovesWhileDrawing, "changed the state"),
    ("single_equals_vector", NeighboursLeak, "reward"),
    ("vector_info_columns", RaggedColumns, "float64 to float32"),
    ("groups_stay_together", GroupsPart, "copies 0 and"),
    ("masked_reset", ResetsEverybody, "changed the caller's options"),
    ("finished_copies_wait", RepeatsTheEnd, "finished copy"),
    ("partial_steps_and_clones", StepsTheOthers, "moved copies it was not given"),
    ("workers_change_nothing", CountsProcesses, "reward"),
    ("autoreset_like_gymnasium", ResetsTooLate, "copy"),
]


def _register_broken(kind: type) -> str:
    """Build and register the broken environment under its own name, once."""
    name = f"CheckToys/{kind.__name__}-v0"
    if name in gym.registry:
        return name
    env_class: Any = kind if issubclass(kind, ToyEnv) else ToyEnv
    body: dict[str, Any] = {"env_id": name, "__module__": __name__}
    if issubclass(kind, ToyEngine):
        body["engine_class"] = kind
    single = type(f"{kind.__name__}Env", (env_class,), body)
    # At module level, so that another process that loads this file finds it too.
    globals()[single.__name__] = single
    base: Any = kind if issubclass(kind, ToyVectorEnv) else ToyVectorEnv
    inside: dict[str, Any] = {"env_class": single, "__module__": __name__}
    vector = type(f"{kind.__name__}Vector", (base,), inside)
    globals()[vector.__name__] = vector  # the spec of its single environment pickles its name
    limit = 7 if kind is WithLimit else None
    gym.register(name, entry_point=single, vector_entry_point=vector, max_episode_steps=limit)
    return name


CASES = [(rule, _register_broken(kind), says) for rule, kind, says in BROKEN]


@pytest.mark.parametrize(("rule", "broken_id", "says"), CASES)
def test_a_broken_environment_fails_its_rule(rule: str, broken_id: str, says: str) -> None:
    report = check(broken_id, rules=[rule])
    (result,) = report.results
    assert result.outcome == "failed", f"{rule} passed: {result.found}"
    assert says in result.found
    with pytest.raises(ConformanceError, match=rule):
        report.raise_for_failures()


def test_every_rule_has_a_broken_environment() -> None:
    assert {rule for rule, _, _ in BROKEN} == {rule.name for rule in RULES}


class CountsInSecret(gym.Wrapper[Any, Any, Any, Any]):
    """Saves its count, and forgets to take it back."""

    count = 0

    def wrapper_state(self) -> int:
        return self.count

    def set_wrapper_state(self, state: int) -> None:
        pass

    def step(self, action: Any) -> Any:
        self.count += 1
        observation, reward, terminated, truncated, info = super().step(action)
        return f"{observation} ({self.count})", reward, terminated, truncated, info


def test_snapshots_are_tested_through_the_callers_wrappers() -> None:
    rules = ["snapshot_continues_alike"]
    assert check(TOY, rules=rules).ok
    (result,) = check(TOY, rules=rules, stack=[CountsInSecret]).results
    assert result.outcome == "failed" and "observation" in result.found


def test_an_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'state_keys'"):
        check(TOY, rules=["state_key"])
    assert not check(TOY, rules=["expert_finishes"], max_turns=1).ok  # options reach it
