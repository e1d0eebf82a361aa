"""Snapshots through stacks: every wrapper of Gymnasium 1.4, our own, and third-party ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gw
from gymnasium.wrappers import vector as gv
from toy_env import TOY, ToyEnv, ToyVectorEnv

import creditrl
from creditrl.envs import state
from creditrl.errors import SnapshotError

Env = gym.Env[Any, Any]


def image() -> Env:
    return gym.make(TOY, images=True, text=False, render_mode="rgb_array")


def both() -> Env:
    return gym.make(TOY, images=True)


def text() -> Env:
    return gym.make(TOY, render_mode="rgb_array")


class Moves(gym.ActionWrapper):  # type: ignore[type-arg]
    """A Box action of one number that means left or right, for wrappers of continuous actions."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: Any) -> str:
        return "right" if float(np.ravel(action)[0]) > 0 else "left"


def moves() -> Env:
    return Moves(text())


WORDS = ("right", "look", "left", "say hallo", "right", "right", "look", "right")
NUMBERS = tuple(np.array([x], dtype=np.float32) for x in (0.4, -0.2, 0.9, 0.3, 0.8, -1.0, 0.7, 1.0))

# For each wrapper: the stack, and the actions that it accepts.
STACKS: dict[str, tuple[Callable[[], Env], tuple[Any, ...]]] = {
    "AddRenderObservation": (lambda: gw.AddRenderObservation(text(), render_only=False), WORDS),
    "AddWhiteNoise": (lambda: gw.AddWhiteNoise(image(), 0.5), WORDS),
    "Autoreset": (lambda: gw.Autoreset(text()), WORDS * 3),
    "ClipAction": (lambda: gw.ClipAction(moves()), NUMBERS),
    "ClipReward": (lambda: gw.ClipReward(text(), -0.1, 0.1), WORDS),
    "DelayObservation": (lambda: gw.DelayObservation(image(), delay=2), WORDS),
    "DiscretizeAction": (lambda: gw.DiscretizeAction(moves(), bins=4), (3, 0, 2, 3, 3, 1, 3, 3)),
    "DtypeObservation": (lambda: gw.DtypeObservation(image(), np.float32), WORDS),
    "FilterObservation": (lambda: gw.FilterObservation(both(), ["text"]), WORDS),
    "FlattenObservation": (lambda: gw.FlattenObservation(image()), WORDS),
    "FrameStackObservation": (lambda: gw.FrameStackObservation(image(), 3), WORDS),
    "GrayscaleObservation": (lambda: gw.GrayscaleObservation(image()), WORDS),
    "MaxAndSkipObservation": (lambda: gw.MaxAndSkipObservation(image(), 3), WORDS),
    "NormalizeObservation": (lambda: gw.NormalizeObservation(image()), WORDS),
    "NormalizeReward": (lambda: gw.NormalizeReward(text()), WORDS),
    "ObstructView": (lambda: gw.ObstructView(image(), 0.2, 2), WORDS),
    "OrderEnforcing": (lambda: gw.OrderEnforcing(ToyEnv()), WORDS),
    "PassiveEnvChecker": (lambda: gw.PassiveEnvChecker(ToyEnv()), WORDS),
    "RecordEpisodeStatistics": (lambda: gw.RecordEpisodeStatistics(text()), WORDS),
    "RenderCollection": (lambda: gw.RenderCollection(text()), WORDS),
    "RepeatAction": (lambda: gw.RepeatAction(text(), 2), WORDS),
    "RescaleAction": (lambda: gw.RescaleAction(moves(), 0.0, 1.0), NUMBERS),
    "RescaleObservation": (
        lambda: gw.RescaleObservation(gw.DtypeObservation(image(), np.float32), 0.0, 1.0),
        WORDS,
    ),
    "DiscretizeObservation": (
        lambda: gw.DiscretizeObservation(
            gw.TransformObservation(
                image(),
                lambda o: np.array([o.mean()], dtype=np.float32),
                gym.spaces.Box(0, 255, (1,), np.float32),
            ),
            bins=5,
        ),
        WORDS,
    ),
    "ReshapeObservation": (lambda: gw.ReshapeObservation(image(), (8, 4, 3)), WORDS),
    "StickyAction": (lambda: gw.StickyAction(text(), 0.6, (2, 3)), WORDS),
    "TimeAwareObservation": (
        lambda: gw.TimeAwareObservation(gym.make(TOY, images=True, max_episode_steps=6)),
        WORDS,
    ),
    "TimeLimit": (lambda: gw.TimeLimit(ToyEnv(), 4), WORDS),
    "TransformAction": (lambda: gw.TransformAction(text(), str.strip, None), WORDS),
    "TransformObservation": (lambda: gw.TransformObservation(text(), str.upper, None), WORDS),
    "TransformReward": (lambda: gw.TransformReward(text(), lambda r: 2 * r), WORDS),
}
NOT_HERE = {
    "vector": "a module",
    "ArrayConversion": "needs array-api-compat; no state",
    "AtariPreprocessing": "needs an Atari emulator; named as unknown",
    "HumanRendering": "needs a display",
    "JaxToNumpy": "needs jax",
    "JaxToTorch": "needs jax",
    "NumpyToTorch": "needs torch; a kind of ArrayConversion",
    "RecordVideo": "writes files; below",
    "ResizeObservation": "needs opencv",
}


SHOW_OTHERS = ("DelayObservation", "MaxAndSkipObservation", "AddWhiteNoise", "ObstructView")


def test_every_wrapper_of_gymnasium_is_accounted_for():
    assert set(STACKS) | set(NOT_HERE) == set(gw.__all__)
    table = set(state._SINGLE_STATE)
    assert set(STACKS) <= table
    assert {"HumanRendering", "RecordVideo", "ResizeObservation"} <= table
    for name in gv.__all__:
        known = name in state._VECTOR_SHARED or any(
            cls.__name__ in state._VECTOR_STATE for cls in getattr_lazy(name).__mro__
        )
        assert known, f"the vector wrapper {name} has no entry"


def getattr_lazy(name: str) -> type:
    try:
        return getattr(gv, name)
    except ImportError:  # the converters need packages that are not installed; all are of one kind
        assert name == "ArrayConversion" or "To" in name
        return type("ArrayConversion", (), {})


def seen(result: tuple[Any, ...]) -> str:
    def clear(value: Any) -> Any:
        if isinstance(value, dict):
            # The wall clock of Gymnasium's statistics is not part of the state.
            return {k: clear(v) for k, v in value.items() if k != "t"}
        return value.tolist() if isinstance(value, np.ndarray) else value

    return repr([clear(part) for part in result])


def go_on(env: Env, actions: tuple[Any, ...]) -> list[str]:
    shown = []
    for action in actions:
        result = env.step(action)
        shown.append(seen(result))
        if env.render_mode == "rgb_array":
            shown.append(repr(np.asarray(env.render()).tolist()))
        if (result[2] or result[3]) and not isinstance(env, gw.Autoreset):
            break
    shown.append(seen(env.reset()))
    return shown


@pytest.mark.parametrize("name", sorted(STACKS))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_restoring_through_a_wrapper_of_gymnasium_continues_alike(name: str):
    build, actions = STACKS[name]
    env, other = build(), build()
    for turns in (0, 2, 3):
        shown = env.reset(seed=9, options={"task": 5})
        other.reset(seed=1)
        for action in actions[:turns]:
            observation, _, terminated, truncated, info = env.step(action)
            shown = (observation, info)
            assert not (terminated or truncated)
        saved = creditrl.snapshot(env)
        first = go_on(env, actions[turns:])
        for target in (env, other):
            restored = creditrl.restore(target, saved)
            # Some show what is gone, or draw again.
            if name not in SHOW_OTHERS:
                assert seen(restored)[:200] == seen(shown)[:200]
            assert go_on(target, actions[turns:]) == first


def test_frames_of_the_last_step_are_part_of_the_state():
    # Skipping ends early: the wrapper shows the maximum over frames of an older step.
    env = gw.MaxAndSkipObservation(gym.make(TOY, images=True, text=False, max_turns=7), 3)
    env.reset(seed=1, options={"task": 5})
    for action in ("right", "look"):
        env.step(action)
    saved = creditrl.snapshot(env)
    last, *_ = env.step("look")
    assert last.any()
    for action in ("left", "left"):
        env.reset(seed=2, options={"task": 5})
        env.step(action)
    creditrl.restore(env, saved)
    np.testing.assert_array_equal(env.step("look")[0], last)


def test_random_observations_do_not_change_the_restored_future():
    bare = gym.make(TOY)
    env = gw.TransformObservation(
        bare, lambda o: f"{bare.unwrapped.np_random.integers(9)}{o}", None
    )
    env.reset(seed=0)
    saved = creditrl.snapshot(env)
    first = [seen(env.step("look")), seen(env.reset())]
    creditrl.restore(env, saved)
    assert [seen(env.step("look")), seen(env.reset())] == first


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_video_wrapper_continues_after_a_restore(tmp_path: Any):
    try:
        env = gw.RecordVideo(text(), str(tmp_path), episode_trigger=lambda _: False)
    except gym.error.DependencyNotInstalled:
        assert state._SINGLE_STATE["RecordVideo"] == ()
        return
    env.reset(seed=0)
    saved = creditrl.snapshot(env)
    shown = env.step("up")[0]
    creditrl.restore(env, saved)
    assert env.step("up")[0] == shown


class Counting(gym.Wrapper):  # type: ignore[type-arg]
    """A third-party wrapper with state."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        return super().step(action)


class Saving(Counting):
    """The same wrapper, with methods that save its state."""

    def wrapper_state(self) -> int:
        return self.count

    def set_wrapper_state(self, state: int) -> None:
        self.count = state


class Plain(gym.Wrapper):  # type: ignore[type-arg]
    """A third-party wrapper without state."""


class Patient(gw.TimeLimit):
    """A third-party wrapper that inherits from one of Gymnasium's."""


def test_an_unknown_wrapper_with_state_is_named():
    env = Counting(Plain(ToyEnv()))
    env.reset(seed=0)
    with pytest.raises(SnapshotError, match=r"Counting may have state \(count\).*wrapper_state"):
        creditrl.snapshot(env)
    env = Patient(ToyEnv(), 5)
    env.reset(seed=0)
    with pytest.raises(SnapshotError, match="Patient.*_elapsed_steps"):
        creditrl.snapshot(env)
    env = gw.TimeLimit(Plain(ToyEnv()), 5)
    env.reset(seed=0)
    assert creditrl.restore(env, creditrl.snapshot(env))[0]


def test_a_wrapper_that_saves_itself_is_saved():
    env = Saving(ToyEnv())
    env.reset(seed=0)
    env.step("look")
    saved = creditrl.snapshot(env)
    env.step("look")
    creditrl.restore(env, saved)
    assert env.count == 1


def test_another_stack_or_environment_is_refused():
    env = gw.TimeLimit(ToyEnv(), 5)
    env.reset(seed=0)
    saved = creditrl.snapshot(env)
    with pytest.raises(SnapshotError, match=r"\['TimeLimit'\], this environment has \[\]"):
        creditrl.restore(ToyEnv(), saved)
    with pytest.raises(SnapshotError, match="Other-v0"):
        creditrl.restore(env, replace(saved, env_id="Other-v0"))
    with pytest.raises(
        SnapshotError, match="has layout 7, expected layout 1: it was taken by another version"
    ):
        creditrl.restore(env, replace(saved, format=7))
    with pytest.raises(SnapshotError, match="found int"):
        creditrl.restore(env, 3)
    with pytest.raises(SnapshotError, match="CartPoleEnv has no snapshots"):
        creditrl.snapshot(gym.make("CartPole-v1"))
    with pytest.raises(SnapshotError, match="found int"):
        creditrl.restore(begun(ToyVectorEnv(1)), [0], [3])


class Strange(gym.vector.VectorWrapper):  # type: ignore[type-arg]
    """A third-party vector wrapper with state."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.total = np.zeros(env.num_envs)


def test_vector_wrappers_are_saved_per_copy_or_named():
    venv = gv.TransformReward(gv.RecordEpisodeStatistics(ToyVectorEnv(3)), lambda r: 2 * r)
    venv.reset(seed=0, options={"task": 5})
    venv.step(["look"] * 3)
    saved = creditrl.snapshot(venv, [1])
    assert [name for name, _ in saved[0].wrappers] == ["TransformReward", "RecordEpisodeStatistics"]
    venv.step(["look"] * 3)
    creditrl.restore(venv, [2], saved)
    assert venv.env.episode_lengths.tolist() == [2, 2, 1]
    assert creditrl.state_key(venv, "world", [2]) == creditrl.state_key(venv, "world", [2])
    assert creditrl.expert_action(venv) == ["right"] * 3
    assert [set(plan) for plan in creditrl.expert_plan(venv)] == [{"right"}] * 3
    assert creditrl.segment_key(venv, [0]) == ["near"]
    with pytest.raises(SnapshotError, match="NormalizeReward keeps statistics over all copies"):
        creditrl.snapshot(begun(gv.NormalizeReward(ToyVectorEnv(2))))
    with pytest.raises(SnapshotError, match=r"Strange may have state \(total\)"):
        creditrl.snapshot(begun(Strange(ToyVectorEnv(2))))
    with pytest.raises(SnapshotError, match=r"this environment has \[\]"):
        creditrl.restore(begun(ToyVectorEnv(3)), [0], saved)


def begun(venv: Any) -> Any:
    venv.reset(seed=0)
    return venv


def test_a_restored_vector_shows_observations_through_its_wrappers():
    venv = gv.TransformObservation(ToyVectorEnv(2), lambda texts: tuple(t.upper() for t in texts))
    venv.reset(seed=0)
    shown, *_ = venv.step(["say hallo", "look"])
    again, _ = creditrl.restore(venv, None, creditrl.snapshot(venv))
    assert again == shown and "HALLO" in again[0]
