"""The single environment's contract, on the toy corridor."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeAwareObservation
from toy_env import TOY, ToyConfig, ToyEnv

import creditrl
from creditrl.envs.base import BASE_INFO
from creditrl.envs.check import RULES, check
from creditrl.errors import ConfigError, EpisodeOverError, UnknownNameError

LIMIT = ToyConfig().max_turns
TYPES = {**BASE_INFO, "cell": int, "weather": str, "bounds": np.ndarray}


@pytest.mark.parametrize("options", [{"images": True}, {"images": True, "text": False}])
def test_the_contract_holds_with_pictures(options: dict[str, Any]):
    # The default is checked in test_check.py, with any strings and in other processes.
    apart = ("takes_any_string", "same_episode_in_any_process", "workers_change_nothing")
    rules = [rule.name for rule in RULES if rule.name not in apart]
    check(TOY, rules=rules, **options).raise_for_failures()


def test_info_has_the_common_fields_and_the_environments_own():
    env = ToyEnv()
    _, info = env.reset(seed=0)
    assert {key: type(value) for key, value in info.items()} == TYPES
    reasons = [env.step(action)[4]["ungrounded_reason"] for action in ("look", "", "fly")]
    assert reasons == ["", "unparsed", "unknown"]


def test_step_before_reset_and_after_the_end_says_call_reset():
    env = ToyEnv(max_turns=1)
    with pytest.raises(EpisodeOverError, match="has not begun"):
        env.step("right")
    env.reset(seed=0, options={"task": 5})
    env.step("look")
    with pytest.raises(EpisodeOverError, match="is over"):
        env.step("right")
    saved = env.snapshot()
    env.reset()
    env.restore(saved)
    with pytest.raises(EpisodeOverError, match="is over"):
        env.step("look")


def test_a_task_is_selected_by_index_id_or_itself():
    env = ToyEnv()
    for which in (3, np.int64(3), "train/3", env.tasks[3]):
        _, info = env.reset(seed=0, options={"task": which})
        assert info["task_id"] == "train/3" and info["goal"] == "Reach cell 5."
    assert env.task.data == 5
    only = ToyEnv(task="train/2")
    assert {only.reset()[1]["task_id"] for _ in range(5)} == {"train/2"}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"task": 6}, UnknownNameError, "0 to 5"),
        ({"task": -1}, UnknownNameError, "0 to 5"),
        ({"task": "train/33"}, UnknownNameError, "Did you mean 'train/3'"),
        ({"task": 1.5}, ConfigError, "an index, a task id or a Task"),
        ({"task": True}, ConfigError, "an index"),
        ({"taks": 1}, ConfigError, "Did you mean 'task'"),
    ],
)
def test_invalid_reset_options_are_named(options: dict[str, Any], error: type, says: str):
    env = ToyEnv()
    env.reset(seed=0)
    env.step("look")
    with pytest.raises(error, match=says):
        env.reset(options=options)
    assert env.step("look")[4]["turn"] == 2  # the episode goes on


def test_an_unknown_keyword_is_named():
    with pytest.raises(ConfigError, match="Did you mean 'max_turns'"):
        gym.make(TOY, max_turn=3)
    with pytest.raises(ConfigError, match="Known: ansi, rgb_array"):
        ToyEnv(render_mode="human")


def test_actions_that_cost_no_turn_do_not_count():
    env = ToyEnv(free_look=True, max_turns=2)
    env.reset(seed=0, options={"task": 5})
    for _ in range(5):
        assert env.step("look")[4]["turn"] == 0
    assert env.step("say hi")[3] is False
    assert env.step("say hi")[3] is True


def test_observations_can_be_text_image_or_both():
    text, _ = ToyEnv().reset(seed=0)
    both, _ = ToyEnv(images=True).reset(seed=0)
    image, _ = ToyEnv(images=True, text=False).reset(seed=0)
    assert both["text"] == text
    np.testing.assert_array_equal(both["image"], image)


def test_state_keys_leave_turn_and_rng_out():
    env = ToyEnv()
    env.reset(seed=0, options={"task": 1})
    key = env.state_key()
    env.step("look")
    assert env.state_key() == key
    assert env.state_key("world") == b"%d" % env.copies.engine.cell[0]
    assert env.state_key("text").decode().startswith("Zelle")
    with pytest.raises(ConfigError, match="'world'"):
        env.state_key("wrold")


def test_methods_that_need_an_episode_say_call_reset():
    env = ToyEnv(render_mode="ansi")
    asked = (env.snapshot, env.state_key, env.expert_action, env.expert_plan, env.segment_key)
    for call in (*asked, env.render):
        with pytest.raises(EpisodeOverError, match="call reset"):
            call()


def test_render_draws_in_the_chosen_mode():
    env = ToyEnv(render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (4, 8, 3)
    with pytest.warns(UserWarning, match="render_mode"):
        assert ToyEnv().render() is None


def test_the_spec_states_the_limit_that_ends_an_episode():
    env = gym.make(TOY, images=True)
    assert env.spec.max_episode_steps == env.unwrapped.spec.max_episode_steps == LIMIT
    assert "time" in TimeAwareObservation(env, flatten=False).observation_space.spaces
    assert gym.make(TOY, max_episode_steps=3).spec.max_episode_steps == 3
    assert gym.make(TOY, max_turns=7).spec.max_episode_steps == 7
    assert gym.make_vec(TOY, 2, max_episode_steps=3).spec.max_episode_steps == 3
    assert gym.make(TOY, free_look=True).spec.max_episode_steps is None
    with pytest.warns(UserWarning, match="max_turns=1000"):
        assert gym.make(TOY, max_episode_steps=1000).spec.max_episode_steps == LIMIT
    with pytest.warns(UserWarning, match="max_turns=1000"):
        gym.make_vec(TOY, 2, max_episode_steps=1000)


@pytest.mark.parametrize("make", [gym.make, lambda spec, **more: gym.make_vec(spec, **more)])
def test_a_spec_makes_the_same_environment_again_with_its_task(make: Any):
    task = ToyEnv().tasks[3]
    for which in (3, task.id, task):
        env = make(TOY, task=which)
        spec = EnvSpec.from_json(env.spec.to_json())
        for again in (make(spec), make(pickle.loads(pickle.dumps(env.spec)))):
            assert again.reset(seed=0)[1]["task_id"] in (task.id, [task.id])
    stranger = make(TOY, task=replace(task, id="mine"))
    with pytest.raises(ConfigError, match="'mine' cannot be written as JSON"):
        stranger.spec.to_json()


def test_the_public_functions_work_through_wrappers():
    env = gym.make("creditrl:" + TOY, max_episode_steps=5)  # the prefix imports the package
    env.reset(seed=0)
    assert creditrl.expert_action(env) == "right"
    key, plan = creditrl.state_key(env), creditrl.expert_plan(env)
    assert plan and set(plan) == {"right"} and creditrl.state_key(env) == key
    assert creditrl.segment_key(env) == "near"
    assert creditrl.state_key(env, "world") == env.unwrapped.state_key("world")


def test_a_plan_that_fails_midway_restores_the_state(monkeypatch):
    env = ToyEnv()
    env.reset(seed=0)
    key, engine = env.state_key(), env.copies.engine

    def lost(index):
        if env.state_key() != key:
            raise RuntimeError("lost")
        return "right"

    monkeypatch.setattr(engine, "expert_action", lost)
    with pytest.raises(RuntimeError, match="lost"):
        env.expert_plan()
    assert env.state_key() == key
