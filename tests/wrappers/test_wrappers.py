"""Properties of all wrappers: twins agree, snapshots continue, invalid orders are refused."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as gym_vector
from toy_env import TOY, ToyEnv, ToyVectorEnv

import creditrl
import creditrl.wrappers as ours
from creditrl.errors import SnapshotError, WrapperError
from creditrl.wrappers import (
    Grounding,
    History,
    ImageText,
    ReActAction,
    RecordTrajectory,
    StateHash,
    VectorGrounding,
    VectorHistory,
    VectorImageText,
    VectorReActAction,
    VectorRecordTrajectory,
    VectorStateHash,
)
from creditrl.wrappers.base import below

REPLIES = (
    "<think>on we go</think><action>right</action>",
    *("<think>back</think><action>left</action>", "<action>look</action>"),
    *("<think>hm</think><action>say hallo</action>", "no tags at all", "right"),
)


def replies(rng: np.random.Generator, n: int) -> list[str]:
    return [REPLIES[int(k)] for k in rng.integers(len(REPLIES), size=n)]


def canon(value: Any) -> Any:
    """Return a value that can be compared with ==."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: canon(item) for key, item in value.items() if "episode" not in key}
    if isinstance(value, (tuple, list)):
        return [canon(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def copy_of(result: tuple[Any, ...], i: int) -> list[Any]:
    """Return what copy i of a vector result shows, as the single environment would."""

    def row(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: row(v) for k, v in value.items() if not k.startswith(("_", "final"))}
        return value[i]

    return [canon(row(part)) for part in result]


Stack = list[tuple[str, dict[str, Any]]]

STACKS: dict[str, Stack] = {
    "hash of the text, above a prompt": [
        ("History", {"form": "tags"}),
        ("StateHash", {"source": "text"}),
    ],
    "prompt": [("History", {"form": "tags", "turns": 3})],
    "conversation": [("ReActAction", {"form": "react"}), ("History", {"form": "react"})],
    "prompt with an image": [("History", {"form": "tags"}), ("ImageText", {})],
    "all": [
        ("Grounding", {}),
        ("StateHash", {"source": "world"}),
        ("ImageText", {}),
        ("ReActAction", {"form": "tags"}),
        ("History", {"form": "tags", "output": "messages"}),
        ("RecordTrajectory", {}),
    ],
    "all, another way round": [
        ("ReActAction", {"form": "tags"}),
        ("ImageText", {"size": (2, 4)}),
        ("RecordTrajectory", {}),
        ("History", {"form": "tags"}),
        ("StateHash", {}),
        ("Grounding", {}),
    ],
}


def needs_image(stack: Stack) -> bool:
    return any(name == "ImageText" for name, _ in stack)


def single(stack: Stack, env: gym.Env[Any, Any] | None = None) -> gym.Env[Any, Any]:
    env = env or gym.make(TOY, images=needs_image(stack), max_episode_steps=7)
    for name, options in stack:
        env = getattr(ours, name)(env, **options)
    return env


def vector(stack: Stack, num_envs: int, venv: Any = None, **options: Any) -> Any:
    venv = venv or ToyVectorEnv(num_envs, images=needs_image(stack), max_episode_steps=7, **options)
    for name, arguments in stack:
        venv = getattr(ours, "Vector" + name)(venv, **arguments)
    return venv


each_stack = pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS.keys())


@each_stack
def test_gymnasiums_env_checker_passes(stack: Stack):
    env = single(stack, ToyEnv(images=needs_image(stack)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The checker expects the bare environment, but here the wrapper is under test.
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        check_env(env, skip_render_check=True)


@each_stack
def test_an_action_that_is_not_a_string_is_refused_before_anything_is_recorded(stack: Stack):
    env, venv = single(stack), vector(stack, 4)
    env.reset(seed=3)
    venv.reset(seed=3)
    before = [one.wrapper_state() for one in below(env) if hasattr(one, "wrapper_state")]
    for action in (["look"], None, b"look", 7):
        with pytest.raises(TypeError, match="expected one string"):
            env.step(action)
        with pytest.raises(TypeError, match="expected one string"):
            venv.step(["look", "look", "look", action])
    for actions in ("look", None):
        with pytest.raises(TypeError, match="one for each of 4 copies"):
            venv.step(actions)
        with pytest.raises(TypeError, match="one for each of 4 copies"):
            venv.step_some(range(4), actions)
    after = [one.wrapper_state() for one in below(env) if hasattr(one, "wrapper_state")]
    assert repr(after) == repr(before)


@each_stack
def test_the_spec_builds_the_same_stack(stack: Stack):
    env = single(stack)
    again = gym.make(env.spec)
    rng = np.random.default_rng(0)
    assert str(env) == str(again)
    assert canon(env.reset(seed=3)) == canon(again.reset(seed=3))
    for reply in replies(rng, 4):
        first = env.step(reply)
        assert canon(first) == canon(again.step(reply))
        if first[2] or first[3]:
            break


@each_stack
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_vector_twin_shows_what_single_wrappers_show(stack: Stack, mode: AutoresetMode):
    n = 3
    venv = vector(stack, n, autoreset_mode=mode)
    singles = [single(stack) for _ in range(n)]
    rng = np.random.default_rng(2)
    shown = venv.reset(seed=5)
    types: set[tuple[Any, ...]] = set()
    for i, env in enumerate(singles):
        observation, info = env.reset(seed=5 + i)
        assert canon((observation, info)) == copy_of(shown, i)
        types.add(tuple((key, type(value)) for key, value in sorted(info.items())))
    assert shown[0] in venv.observation_space
    over = np.zeros(n, dtype=bool)
    final_hash = "StateHash" in [name for name, _ in stack]
    for _ in range(30):
        actions = replies(rng, n)
        result = venv.step(actions)
        done = result[2] | result[3]
        for i, env in enumerate(singles):
            if over[i]:
                if mode is AutoresetMode.NEXT_STEP:
                    assert canon(env.reset()) == copy_of((result[0], result[4]), i)
                continue
            theirs = env.step(actions[i])
            types.add(tuple((key, type(value)) for key, value in sorted(theirs[4].items())))
            assert theirs[0] in env.observation_space and len(types) == 1
            if mode is AutoresetMode.SAME_STEP and done[i]:
                final = {k: v for k, v in result[4]["final_info"].items() if k[0] != "_"}
                last = {k: canon(v[i]) for k, v in final.items()}
                own = canon(theirs[4])
                if final_hash:
                    assert last["state_hash"] == 0
                    own["state_hash"] = 0
                assert last == own
                assert canon(result[4]["final_obs"][i]) == canon(theirs[0])
                assert canon(env.reset()) == copy_of((result[0], result[4]), i)
            else:
                assert canon(theirs) == copy_of(result, i)
        if mode is AutoresetMode.NEXT_STEP:
            over = done
        elif mode is AutoresetMode.DISABLED:
            over |= done
            if over.sum() >= 2:
                options = {"reset_mask": over.copy()}
                result = venv.reset(options=options)
                assert list(options) == ["reset_mask"]
                for i in np.flatnonzero(over):
                    assert canon(singles[i].reset()) == copy_of(result, i)
                over[:] = False


@each_stack
def test_snapshots_continue_alike_through_the_stack(stack: Stack):
    env, other = single(stack), single(stack)
    rng = np.random.default_rng(3)
    other.reset(seed=77)
    for turns in (0, 1, 3, 6):
        shown = env.reset(seed=turns)
        for reply in replies(rng, turns):
            observation, _, terminated, truncated, info = env.step(reply)
            shown = (observation, info)
            if terminated or truncated:
                break
        saved = creditrl.snapshot(env)
        ended = bool(turns) and (terminated or truncated)
        script = [] if ended else replies(rng, 7)
        first = play(env, script)
        for target, snap in ((env, saved), (other, pickle.loads(pickle.dumps(saved)))):
            assert canon(creditrl.restore(target, snap)) == canon(shown)
            assert play(target, script) == first


def play(env: gym.Env[Any, Any], script: list[str]) -> list[Any]:
    seen = []
    for reply in script:
        result = env.step(reply)
        seen.append(canon(result))
        if result[2] or result[3]:
            break
    return [*seen, canon(env.reset())]


@each_stack
def test_partial_steps_snapshots_and_clones_work_through_the_twins(stack: Stack):
    check_partial_steps(stack, workers=0)


def test_partial_steps_snapshots_and_clones_work_over_workers():
    check_partial_steps(STACKS["all"], workers=2)


def check_partial_steps(stack: Stack, workers: int) -> None:
    with (
        contextlib.closing(vector(stack, 4, group_size=2, workers=workers)) as venv,
        contextlib.closing(vector(stack, 4, group_size=2)) as twin,
    ):
        rng = np.random.default_rng(4)
        venv.reset(seed=1)
        twin.reset(seed=1)
        script = replies(rng, 4)
        full = twin.step(script)
        some = venv.step_some([3, 0], [script[3], script[0]])
        assert [copy_of(some, k) for k in (0, 1)] == [copy_of(full, i) for i in (3, 0)]
        rest = venv.step_some([1, 2], script[1:3])
        assert [copy_of(rest, k) for k in (0, 1)] == [copy_of(full, i) for i in (1, 2)]

        saved = pickle.loads(pickle.dumps(venv.snapshot([0, 2])))
        now = (full[0], full[4])
        shown = venv.restore([3, 1], saved)
        assert copy_of(shown, 3) == copy_of(now, 0) and copy_of(shown, 1) == copy_of(now, 2)
        shown = venv.clone([0, 0], [2, 3])
        assert copy_of(shown, 2) == copy_of(shown, 3) == copy_of(now, 0)
        for _ in range(8):
            reply = replies(rng, 1)[0]
            result = venv.step([reply] * 4)
            assert copy_of(result, 0) == copy_of(result, 2) == copy_of(result, 3)
            np.testing.assert_array_equal(venv.active, venv.unwrapped.active)


def test_twins_work_over_gymnasiums_own_vector_environments():
    stack: Stack = [("Grounding", {}), ("StateHash", {})]
    stack += [("ReActAction", {"form": "tags"}), ("History", {"form": "tags"})]
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        stock = gym.make_vec(
            TOY, num_envs=3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        )
        over_stock = vector(stack, 3, stock)
        over_ours = vector(stack, 3, ToyVectorEnv(3, autoreset_mode=mode))
        rng = np.random.default_rng(5)
        assert canon(over_ours.reset(seed=2)) == canon(over_stock.reset(seed=2))
        for _ in range(20):
            actions = replies(rng, 3)
            one, other = over_ours.step(actions), over_stock.step(actions)
            assert [copy_of(one, i) for i in range(3)] == [copy_of(other, i) for i in range(3)]
        with pytest.raises(WrapperError, match="SyncVectorEnv inside VectorGrounding"):
            VectorGrounding(stock).step_some([0], ["look"])
        with pytest.raises(SnapshotError, match="SyncVectorEnv has no snapshots"):
            over_stock.snapshot()


def test_a_dead_worker_ends_the_episode_in_every_wrapper():
    with contextlib.closing(vector(STACKS["all"], 4, workers=2)) as venv:
        venv.reset(seed=0)
        venv.step(["<action>say x</action>"] * 4)
        os.kill(venv.unwrapped.copies.pids[1], signal.SIGKILL)
        _, _, _, truncated, info = venv.step(["<action>look</action>"] * 4)
        assert truncated.tolist() == [False, False, True, True]
        assert info["state_hash"].tolist()[2:] == [0, 0] and info["state_hash"][0] != 0
        assert [bool(t.error) for t in venv.pop()] == [True, True]
        _, info = venv.reset(options={"reset_mask": ~venv.active})
        assert not any(info["error"]) and venv.active.all()
        venv.step(["<action>look</action>"] * 4)


def test_gymnasiums_vector_wrappers_work_outside_or_are_named():
    venv = gym_vector.RecordEpisodeStatistics(vector(STACKS["all"], 2))
    venv.reset(seed=0)
    saved = creditrl.snapshot(venv)
    rng = np.random.default_rng(0)
    script = [replies(rng, 2) for _ in range(7)]
    first = [canon(venv.step(actions)[:4]) for actions in script]
    lengths = list(venv.length_queue)
    creditrl.restore(venv, None, saved)
    assert [canon(venv.step(actions)[:4]) for actions in script] == first
    assert list(venv.length_queue) == lengths * 2
    outside = VectorGrounding(venv)
    with pytest.raises(WrapperError, match="RecordEpisodeStatistics inside VectorGrounding"):
        outside.step_some([0], ["x"])
    with pytest.raises(WrapperError, match="DictInfoToList"):
        VectorGrounding(gym_vector.DictInfoToList(ToyVectorEnv(1)))


def stacked(env: Any, *wrap: Callable[[Any], Any]) -> Any:
    for one in wrap:
        env = one(env)
    return env


def growing(env: Any) -> Any:
    return History(env, form="react")


def messages(env: Any) -> Any:
    return History(env, output="messages")


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        ((ReActAction, ReActAction), "parsed once"),
        ((RecordTrajectory, ReActAction), r"RecordTrajectory\(ReActAction\(env\)\)"),
        ((growing, ReActAction), r"History\(ReActAction\(env\)\)"),
        ((History, History), "a History inside already"),
        ((ImageText, ImageText), "marked once"),
        ((messages, ImageText), r"History\(ImageText\(env\)\)"),
        ((RecordTrajectory, RecordTrajectory), "an episode is recorded once"),
    ],
)
def test_an_invalid_order_names_a_valid_one(wrap: Any, says: str):
    with pytest.raises(WrapperError, match=says):
        stacked(ToyEnv(images=True), *wrap)


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        ((VectorReActAction, VectorReActAction), "parsed once"),
        ((VectorRecordTrajectory, VectorReActAction), "The order is"),
        ((VectorHistory, VectorHistory), "inside already"),
        ((lambda e: VectorHistory(e, output="messages"), VectorImageText), "The order is"),
    ],
)
def test_an_invalid_order_of_twins_names_a_valid_one(wrap: Any, says: str):
    with pytest.raises(WrapperError, match=says):
        stacked(ToyVectorEnv(2, images=True), *wrap)


def test_an_environment_that_lacks_what_a_wrapper_needs_is_named():
    for env, wrapper, says in (
        (ToyEnv(), ImageText, "observation='both'"),
        (ToyVectorEnv(1), VectorImageText, "with an image"),
        (gym.make("CartPole-v1"), StateHash, "needs an environment"),
        (gym.make("CartPole-v1"), RecordTrajectory, "CartPoleEnv"),
        (
            gym.make_vec("CartPole-v1", vectorization_mode="vector_entry_point"),
            VectorStateHash,
            "needs an environment",
        ),
    ):
        with pytest.raises(WrapperError, match=says):
            wrapper(env)
    env = Grounding(gym.make("CartPole-v1"))
    env.reset()
    with pytest.raises(WrapperError, match="no 'grounded'"):
        env.step(0)


def test_the_twins_have_the_vector_environments_methods():
    venv = vector(STACKS["all"], 4, group_size=2)
    venv.reset(seed=0)
    assert venv.group_size == 2 and venv.num_groups == 2
    assert venv.env_class is ToyEnv and venv.tasks is venv.unwrapped.tasks
    assert venv.episode_seeds.tolist() == venv.unwrapped.episode_seeds.tolist()
    assert venv.expert_actions([1]) == ["right"] and venv.segment_keys([1]) == ["near"]
    assert venv.state_keys("world") == venv.unwrapped.state_keys("world")
    assert len(venv.current_tasks()) == 4
    with pytest.raises(AttributeError, match="no attribute 'stpe_some'"):
        _ = venv.stpe_some


def test_odd_replies_do_no_harm(rng: np.random.Generator):
    odd = ["\ud800<action>", "<action>\x00</action>", "{" * 5000, '{"a":' * 2000, "<think>" * 999]
    for form in ("tags", "react", "json", "tool", "plain"):
        env = RecordTrajectory(History(ReActAction(ToyEnv(max_turns=50), form=form)))
        env.reset(seed=0, options={"task": 5})
        for n in range(60):
            text = odd[n % len(odd)] if n % 3 else "".join(map(chr, rng.integers(0x11000, size=30)))
            observation, _, terminated, truncated, info = env.step(text)
            (observation + info["reply"] + info["thought"] + info["action"]).encode("utf-8")
            if terminated or truncated:
                env.reset()
