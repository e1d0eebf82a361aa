"""The vector contract, on the toy corridor."""

from __future__ import annotations

import contextlib
import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from toy_env import TOY, ToyEnv, ToyVectorEnv

from creditrl.errors import ConfigError, EpisodeOverError, SnapshotError, UnknownNameError

SOKOBAN = "CreditRL/VisualSokoban-v0"
ACTIONS = ("right", "right", "right", "left", "look", "say hallo", "fly")


def script(rng: np.random.Generator, n: int) -> list[str]:
    return [str(a) for a in rng.choice(ACTIONS, size=n)]


def rows(observation: Any, info: dict[str, Any], at: Any = None) -> list[str]:
    """Return one comparable line per copy."""
    texts = observation["text"] if isinstance(observation, dict) else observation
    keys = [k for k in info if not k.startswith(("_", "final"))]
    n = len(texts)
    return [
        repr((texts[i], {k: info[k][i].tolist() if k == "bounds" else info[k][i] for k in keys}))
        for i in (range(n) if at is None else at)
    ]


def test_make_vec_builds_ours_and_batches_text_as_a_tuple():
    venv = gym.make_vec(TOY, num_envs=3)
    assert isinstance(venv, ToyVectorEnv)
    observation, info = venv.reset(seed=0)
    assert type(observation) is tuple and all(type(text) is str for text in observation)
    assert observation in venv.observation_space
    assert venv.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert info["turn"].dtype == np.int64 and info["score"].dtype == np.float64
    assert info["grounded"].dtype == np.bool_ and info["weather"].dtype == object
    assert info["bounds"].shape == (3, 2)
    assert all(info["_" + key].all() for key in info if not key.startswith("_"))


def test_the_seed_can_be_a_list_per_group_or_per_copy():
    venv = ToyVectorEnv(4, group_size=2)
    by_group = rows(*venv.reset(seed=[3, 9]))
    assert rows(*venv.reset(seed=[3, 3, 9, 9])) == by_group
    assert rows(*ToyVectorEnv(2).reset(seed=[3, 9])) == [by_group[0], by_group[2]]
    with pytest.raises(ConfigError, match="share their seed"):
        venv.reset(seed=[3, 4, 9, 9])
    with pytest.raises(ConfigError, match="seed has 3 values"):
        venv.reset(seed=[1, 2, 3])


def test_unseeded_environments_differ_and_one_seed_determines_later_episodes():
    def episodes(seed: int | None) -> list[list[str]]:
        venv = ToyVectorEnv(6)
        return [rows(*venv.reset(seed=seed)), rows(*venv.reset()), rows(*venv.reset())]

    assert episodes(None) != episodes(None)
    assert episodes(4) == episodes(4)


def test_tasks_are_selected_for_all_groups_or_one_each():
    venv = ToyVectorEnv(4, group_size=2)
    assert venv.reset(options={"task": 3})[1]["task_id"].tolist() == ["train/3"] * 4
    _, info = venv.reset(options={"task": ["train/1", 5]})
    assert info["task_id"].tolist() == ["train/1", "train/1", "train/5", "train/5"]
    assert [t.index for t in venv.current_tasks()] == [1, 1, 5, 5]
    with pytest.raises(ConfigError, match="3 tasks"):
        venv.reset(options={"task": [1, 2, 3]})
    with pytest.raises(ConfigError, match="per group"):
        venv.reset(options={"task": 1.5})
    with pytest.raises(UnknownNameError):
        venv.reset(options={"task": ["train/1", "nope"]})


def test_a_refused_reset_changes_nothing():
    venv, twin = ToyVectorEnv(4, group_size=2), ToyVectorEnv(4, group_size=2)
    venv.reset(seed=0)
    twin.reset(seed=0)
    cut = np.array([True, False, False, False])
    for seed, options in (
        (7, {"task": "nope"}),
        (7, {"reset_mask": cut}),
        (None, {"reset_mask": cut, "task": 1}),
        (7, {"reset_mask": cut.tolist()}),
        (7, {"rest_mask": cut}),
        ([1], None),
    ):
        with pytest.raises((ConfigError, UnknownNameError)):
            venv.reset(seed=seed, options=options)
    assert rows(*venv.step(["look"] * 4)[::4]) == rows(*twin.step(["look"] * 4)[::4])
    assert rows(*venv.reset()) == rows(*twin.reset())


def test_a_mask_that_splits_a_group_warns_and_the_group_can_rejoin():
    venv = ToyVectorEnv(2, group_size=2)
    venv.reset(seed=1)
    with pytest.warns(UserWarning, match="1 of 2 members of group 0"):
        _, ahead = venv.reset(options={"reset_mask": np.array([True, False])})
    with pytest.warns(UserWarning):
        _, level = venv.reset(options={"reset_mask": np.array([False, True])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # whole groups: nothing to warn about
        venv.reset(options={"reset_mask": np.array([True, True])})
    assert level["task_id"][1] == ahead["task_id"][0]
    assert venv.episode_seeds[0] == venv.episode_seeds[1]


def test_resetting_a_whole_group_realigns_its_members():
    venv = ToyVectorEnv(2, group_size=2)
    venv.reset(seed=1)
    for _ in range(3):
        with pytest.warns(UserWarning):
            venv.reset(options={"reset_mask": np.array([True, False])})
    assert venv.episode_numbers.tolist() == [3, 0]
    for mask in (None, np.array([True, True])):
        _, info = venv.reset(options=None if mask is None else {"reset_mask": mask})
        assert len(set(info["task_id"])) == 1 and len(set(venv.episode_seeds.tolist())) == 1
    assert venv.episode_numbers.tolist() == [5, 5]
    # Draws of past episodes are discarded.
    venv = ToyVectorEnv(2, group_size=2, autoreset_mode="SameStep", max_turns=1)
    venv.reset(seed=0)
    for _ in range(50):
        venv.step(["look", "look"])
    assert len(venv._drawn[0]) == 1


def test_the_first_reset_begins_every_copy():
    venv = ToyVectorEnv(2)
    with pytest.raises(EpisodeOverError, match="leave reset_mask out"):
        venv.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(EpisodeOverError, match="call reset"):
        venv.step(["look", "look"])
    venv.reset(options={"reset_mask": np.array([True, True])})


def compare_step(ours: Any, stock: Any, where: str) -> None:
    """Require equal results; where Gymnasium leaves a value undefined, ours is ignored."""
    for mine, theirs in zip(ours[:-1], stock[:-1], strict=True):
        if isinstance(mine, dict):
            assert mine["text"] == theirs["text"], where
            np.testing.assert_array_equal(mine["image"], theirs["image"])
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=where)
    compare_info(ours[-1], stock[-1], where)


def compare_info(mine: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    assert {k for k in mine if not k.startswith("_")} == {
        k for k in theirs if not k.startswith("_")
    }
    for key in theirs:
        if key.startswith("_"):
            np.testing.assert_array_equal(mine[key], theirs[key], err_msg=f"{where} {key}")
        elif isinstance(theirs[key], dict):
            compare_info(mine[key], theirs[key], f"{where} {key}")
        else:
            assert mine[key].dtype == theirs[key].dtype, (where, key)
            for i in np.flatnonzero(theirs["_" + key]):
                assert repr(mine[key][i]) == repr(theirs[key][i]), (where, key, i)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize(
    ("stocks", "options"),
    [
        ("sync", {"max_episode_steps": 3, "free_look": True}),
        ("async", {"images": True}),
    ],
)
def test_autoreset_behaves_like_gymnasiums(mode, stocks, options):
    own = {"vectorization_mode": stocks, "vector_kwargs": {"autoreset_mode": mode}}
    ours = gym.make_vec(TOY, num_envs=4, autoreset_mode=mode, **options)
    stock = gym.make_vec(TOY, num_envs=4, **own, **options)
    with contextlib.closing(stock), contextlib.closing(ours):
        assert ours.observation_space == stock.observation_space
        assert ours.single_action_space == stock.single_action_space
        compare_step(ours.reset(seed=3), stock.reset(seed=3), "reset")
        rng = np.random.default_rng(3)
        ends = 0
        for step in range(40):
            actions = script(rng, 4)
            mine = ours.step(actions)
            compare_step(mine, stock.step(tuple(actions)), f"step {step}")
            ends += int((mine[2] | mine[3]).sum())
        assert ends > 8


def test_copies_go_on_to_their_next_episodes_unless_told_to_wait():
    assert gym.make_vec(SOKOBAN, num_envs=2).autoreset_mode is AutoresetMode.NEXT_STEP
    venv = ToyVectorEnv(2, autoreset_mode="NextStep", max_turns=2)
    venv.reset(seed=0, options={"task": 5})
    venv.step_some([1], ["look"])
    assert venv.step(["look", "look"])[3].tolist() == [False, True]
    *_, info = venv.step(["look", "look"])
    assert venv.active.tolist() == [False, True] and info["turn"].tolist() == [2, 0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_lists_of_frames_are_those_of_gymnasium(mode: AutoresetMode, workers: int):
    own = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    options = {"render_mode": "rgb_array_list", "max_turns": 4}
    ours = gym.make_vec(TOY, num_envs=2, autoreset_mode=mode, workers=workers, **options)
    stock = gym.make_vec(TOY, num_envs=2, **own, **options)
    with contextlib.closing(ours), contextlib.closing(stock):
        rng = np.random.default_rng(7)
        for venv in (ours, stock):
            venv.reset(seed=7)
        for wait in (3, 1, 4, 6):
            for _ in range(wait):
                actions = script(rng, 2)
                ours.step(actions)
                stock.step(actions)
            for mine, theirs in zip(ours.render(), stock.render(), strict=True):
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_closed_copies_say_so(workers: int):
    venv = ToyVectorEnv(2, workers=workers)
    venv.reset(seed=0)
    venv.close()
    for call in (venv.reset, venv.snapshot, lambda: venv.step(["look", "look"])):
        with pytest.raises(gym.error.ClosedEnvironmentError, match="after close"):
            call()


def test_steps_after_the_end_of_every_copy_warn_once():
    venv = ToyVectorEnv(2, max_turns=1)
    venv.reset(seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            _, reward, *_ = venv.step(["look", "look"])
    assert reward.tolist() == [0.0, 0.0]
    (warning,) = caught
    assert "does nothing until reset()" in str(warning.message)


def test_max_episode_steps_counts_steps_independently_of_the_turn_limit():
    venv = gym.make_vec(TOY, num_envs=2, max_episode_steps=3, free_look=True)
    venv.reset(seed=0, options={"task": 5})
    assert [venv.step(["look", "look"])[3].tolist() for _ in range(3)][-1] == [True, True]
    with pytest.raises(ConfigError, match="max_episode_steps=0"):
        ToyVectorEnv(2, max_episode_steps=0)


def test_partial_steps_skip_finished_copies():
    venv = ToyVectorEnv(2, max_turns=1)
    venv.reset(seed=0, options={"task": 5})
    shown, _, _, _, shown_info = venv.step_some([], [])
    assert shown == () and len(shown_info["turn"]) == 0
    venv.step_some([1], ["look"])
    assert venv.active.tolist() == [True, False]
    _, reward, terminated, truncated, info = venv.step_some([1, 0], ["look", "look"])
    assert reward.tolist() == [0.0, -0.125]
    assert truncated.tolist() == [False, True] and not terminated.any()
    assert info["turn"].tolist() == [1, 1]
    with pytest.raises(ConfigError):
        venv.clone([1, 1], [0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"images": True}, {"images": True, "text": False}])
def test_a_copy_can_be_played_like_a_single_environment(options: dict[str, Any], workers: int):
    env = ToyEnv(**options)
    with contextlib.closing(ToyVectorEnv(3, workers=workers, **options)) as venv:
        venv.reset(seed=0)
        others = venv.state_keys(indices=[0, 2])
        for seed, task in ((5, None), (None, None), (None, 3)):
            mine = env.reset(seed=seed, options=None if task is None else {"task": task})
            np.testing.assert_equal(venv.reset_one(1, seed=seed, task=task), mine)
            over = False
            while not over:
                mine = env.step("right")
                np.testing.assert_equal(venv.step_one(1, "right"), mine)
                over = mine[2] or mine[3]
            with pytest.raises(EpisodeOverError, match="copy 1 is over"):
                venv.step_one(1, "right")
        assert venv.state_keys(indices=[0, 2]) == others
        assert venv.active.tolist() == [True, False, True]
        for copy in (3, -1):
            with pytest.raises(ConfigError, match="out of range"):
                venv.step_one(copy, "right")
    with pytest.raises(ConfigError, match="cut a group"):
        pair = ToyVectorEnv(2, group_size=2)
        pair.reset(seed=0)
        pair.reset_one(0)


def test_invalid_indices_and_numbers_of_actions_are_named():
    venv = ToyVectorEnv(3)
    venv.reset(seed=0)
    for indices, says in (
        ([0, 0], "twice"),
        ([5], "Copy 5 is out of range"),
        ([-1], "Copy -1"),
        ([True], "shape"),
    ):
        with pytest.raises(ConfigError, match=says):
            venv.step_some(indices, ["look"] * len(indices))
        with pytest.raises(ConfigError, match=says):
            venv.snapshot(indices)
    with pytest.raises(ConfigError, match="2 actions for 3"):
        venv.step(["a", "b"])
    with pytest.raises(ConfigError, match="1 actions for 2"):
        venv.step_some([0, 1], ["a"])
    # A mask selects copies as well.
    *_, info = venv.step_some(np.array([False, True, True]), ["say 1", "say 2"])
    assert info["action"].tolist() == ["say 1", "say 2"]
    venv = ToyVectorEnv(2, autoreset_mode="SameStep")
    venv.reset(seed=0)
    with pytest.raises(ConfigError, match="DISABLED"):
        venv.step_some([0], ["look"])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("take", [copy.deepcopy, lambda venv: pickle.loads(pickle.dumps(venv))])
def test_pickles_and_deep_copies_play_on_by_themselves(take: Any, workers: int):
    rng = np.random.default_rng(6)
    with contextlib.closing(ToyVectorEnv(6, group_size=2, workers=workers, max_turns=5)) as venv:
        venv.tasks = venv.tasks.filter(types=["long"])
        with contextlib.closing(take(venv)) as unused:  # before the first reset
            assert not unused.has_begun and len(unused.tasks) == 3
        venv.reset(seed=6, options={"task": [0, None, 1]})  # group 1 waits
        for _ in range(4):
            venv.step(script(rng, 6))
        with contextlib.closing(take(venv)) as twin:
            assert twin.active.tolist() == venv.active.tolist() and not twin.active[2:4].any()
            actions = script(rng, 6)
            for one, other in zip(venv.step(actions), twin.step(actions), strict=True):
                np.testing.assert_equal(other, one)
            assert twin.state_keys() == venv.state_keys()
            # The next episodes are drawn alike, and apart.
            assert rows(*venv.reset()) == rows(*twin.reset())
            assert venv.episode_seeds.tolist() == twin.episode_seeds.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_snapshots_can_be_restored_into_any_copy_of_any_group(workers: int):
    options: dict[str, Any] = {"group_size": 2, "images": True, "workers": workers}
    with (
        contextlib.closing(ToyVectorEnv(4, **options)) as venv,
        contextlib.closing(ToyVectorEnv(4, **options)) as other,
    ):
        rng = np.random.default_rng(4)
        venv.reset(seed=8)
        venv.step(script(rng, 4))
        seen = rows(*venv.step(script(rng, 4))[::4])
        snaps = pickle.loads(pickle.dumps(venv.snapshot()))
        other.reset(seed=99)
        order = [2, 0, 3, 1]
        shown = rows(*other.restore(order, snaps))
        assert [shown[i] for i in order] == seen
        assert other.episode_seeds[order].tolist() == venv.episode_seeds.tolist()
        for _ in range(4):
            actions = script(rng, 4)
            one = venv.step(actions)
            mixed = [""] * 4
            for k, i in enumerate(order):
                mixed[i] = actions[k]
            two = other.step(mixed)
            shown = rows(two[0], two[4])
            assert [shown[i] for i in order] == rows(one[0], one[4])
            np.testing.assert_array_equal(two[1][order], one[1])


def test_all_copies_can_be_restored_and_stepped_in_another_order():
    venv = ToyVectorEnv(4)
    first, _ = venv.reset(seed=0)
    snaps = venv.snapshot()
    order = [3, 1, 0, 2]
    after, info = venv.restore(order, snaps)
    assert tuple(after[i] for i in order) == first
    assert [info["task_id"][i] for i in order] == [snap.task.id for snap in snaps]
    _, _, _, _, info = venv.step_some(order, ["right", "look", "left", "fly"])
    assert info["action"].tolist()[3] == "fly"
    assert venv.snapshot([2])[0].event[0] == "fly"
    with pytest.raises(ValueError, match="read-only"):
        venv.copy_indices(None)[0] = 3


def test_a_snapshot_can_move_between_single_and_vector_environments():
    env, venv = ToyEnv(), ToyVectorEnv(3)
    env.reset(seed=1)
    env.step("say eins")
    venv.reset(seed=5)
    venv.restore([1], [env.snapshot()])
    assert env.step("right")[0] == venv.step(["right"] * 3)[0][1]
    text, _ = env.restore(venv.snapshot([1])[0])
    assert text == venv.step_some([0, 1], ["look", "look"])[0][1]


def test_restoring_determines_which_copies_are_active():
    venv = ToyVectorEnv(2, max_turns=1)
    venv.reset(seed=0, options={"task": 5})
    start = venv.snapshot()
    venv.step(["look", "look"])
    end = venv.snapshot()
    assert not venv.active.any()
    venv.restore([0], start[:1])
    assert venv.active.tolist() == [True, False]
    venv.restore([0], end[1:])
    assert venv.active.tolist() == [False, False]
    assert len(venv.restore([], [])[0]) == 2 and venv.snapshot([]) == []
    with pytest.raises(ConfigError, match="2 snapshots for 1"):
        venv.restore([0], start)
    with pytest.raises(SnapshotError):
        venv.restore([0], [None])


def test_later_steps_do_not_change_returned_results():
    venv = ToyVectorEnv(2, images=True)
    observation, info = venv.reset(seed=0)
    saved_image, saved = observation["image"].copy(), rows(observation, info)
    venv.step(["right", "say x"])
    np.testing.assert_array_equal(observation["image"], saved_image)
    assert rows(observation, info) == saved
    now, *_, now_info = venv.step(["look", "look"])
    now_info["turn"][:] = 99
    now["image"][:] = 7
    _, *_, later = venv.step(["look", "look"])
    assert later["turn"].tolist() == [3, 3]


def test_expert_segment_state_and_render_per_copy():
    venv = ToyVectorEnv(3, render_mode="ansi")
    venv.reset(seed=0)
    assert venv.expert_actions([0, 2]) == ["right", "right"]
    assert venv.segment_keys() == ["near"] * 3
    assert len(venv.state_keys("world", [1])) == 1
    assert venv.render() == tuple("." * int(c) + "@" for c in venv.copies.engine.cell)
    with pytest.warns(UserWarning, match="render_mode"):
        assert ToyVectorEnv(1).render() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_envs": 5, "group_size": 2}, "num_envs=5"),
        ({"num_envs": 2, "workers": 3}, "workers=3"),
        ({"num_envs": 2, "workers": 1, "worker_context": "threads"}, "threads"),
        ({"num_envs": 2, "render_mode": "human"}, "Known: ansi"),
        ({"num_envs": 2, "max_turn": 3}, "Did you mean 'max_turns'"),
    ],
)
def test_invalid_settings_are_named(options: dict[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        ToyVectorEnv(**options)
