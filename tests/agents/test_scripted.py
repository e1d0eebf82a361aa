from __future__ import annotations

import gymnasium as gym
import pytest

import creditrl  # noqa: F401 - registers the environments
from creditrl.agents import (
    Agent,
    ExpertAgent,
    FirstAdmissibleAgent,
    RandomAgent,
    ReplayAgent,
    get_form,
    run_episodes,
)
from creditrl.envs.base import Engine
from creditrl.errors import ConfigError
from creditrl.types import Prompt

ACTIONS = ("up", "down", "left")


@pytest.fixture
def venv():
    made = gym.make_vec("CreditRL/VisualSokoban-v0", num_envs=8, autoreset_mode="Disabled")
    yield made
    made.close()


def ask(n=1, **fields):
    return [Prompt(text="room", copy=i, admissible_actions=ACTIONS, **fields) for i in range(n)]


def test_scripted_agents_satisfy_the_agent_protocol(venv):
    for agent in (RandomAgent(), FirstAdmissibleAgent(), ReplayAgent([]), ExpertAgent(venv)):
        assert isinstance(agent, Agent)
    assert FirstAdmissibleAgent().act(ask())[0].text == "up"
    with pytest.raises(ConfigError, match="expert_actions"):
        ExpertAgent(gym.make_vec("CartPole-v1", num_envs=1))
    engine = type("Engine", (type(venv.copies.engine),), {"expert_action": Engine.expert_action})
    venv._parts.engine.__class__ = engine
    with pytest.raises(ConfigError, match="VisualSokoban-v0 has no expert: its engine does not"):
        ExpertAgent(venv)


def test_random_draws_every_action_about_as_often():
    said = [r.text for r in RandomAgent(0).act(ask(3_000))]
    # Five standard deviations of a count of 1,000: 5 * sqrt(3000 * 1/3 * 2/3) = 129.
    assert all(abs(said.count(a) - 1_000) < 129 for a in ACTIONS)


def test_random_actions_depend_on_the_seed():
    agent = RandomAgent(7)
    first = agent.act(ask(20))
    assert first == RandomAgent(7).act(ask(20)) != RandomAgent(8).act(ask(20))
    agent.reseed(7)
    assert agent.act(ask(20)) == first


@pytest.mark.parametrize("kind", [RandomAgent, FirstAdmissibleAgent])
def test_without_admissible_actions_given_words_are_needed(kind):
    bare = [Prompt(text="room")]
    assert kind(words=("wait",)).act(bare)[0].text == "wait"
    with pytest.raises(ConfigError, match="words="):
        kind().act(bare)


def test_open_ended_actions_are_filled_in_if_there_is_no_other():
    asked = [Prompt(text="shop", goal="a red shoe", action_hint="search[<query>]")] * 50
    said = {reply.text for reply in RandomAgent(0).act(asked)}
    assert {"search[a]", "search[red shoe]"} <= said and len(said) == 6
    assert FirstAdmissibleAgent().act(asked)[0].text == "search[a]"
    both = [Prompt(text="shop", admissible_actions=("up",), action_hint="search[<query>]")]
    assert RandomAgent(0).act(both)[0].text == "up"


def test_replay_repeats_an_episode_exactly(venv):
    form = get_form("plain")
    recorded = run_episodes(venv, RandomAgent(3), form, seed=5)
    again = run_episodes(venv, ReplayAgent.of(recorded), form, seed=5)
    assert [t.turns for t in again] == [t.turns for t in recorded]
    assert any(len(t.turns) > 3 for t in recorded)


def test_a_replay_names_what_is_missing():
    agent = ReplayAgent([["up"]])
    with pytest.raises(ConfigError, match="copy 0 has 1 turns"):
        agent.act(ask(turn=1))
    with pytest.raises(ConfigError, match="num_envs=1"):
        agent.act(ask(2))


def test_expert_solves_every_level_in_the_fewest_moves(venv):
    agent = ExpertAgent(venv)
    trajectories = run_episodes(venv, agent, get_form("plain"), seed=1)
    assert all(t.success for t in trajectories) and agent.lost == 0
    assert [len(t.turns) for t in trajectories] == [t.task.difficulty for t in trajectories]


def test_the_expert_works_through_wrappers(venv):
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(venv)
    _, info = wrapped.reset(seed=0)
    (reply,) = ExpertAgent(wrapped).act([Prompt(text="", copy=2)])
    assert reply.text in info["admissible_actions"][2]


def test_an_expert_without_a_plan_falls_back(venv, monkeypatch):
    monkeypatch.setattr(venv, "expert_actions", lambda indices: [None] * len(indices))
    agent = ExpertAgent(venv)
    assert agent.act(ask())[0].text == "up"
    assert ExpertAgent(venv, fallback="wait").act(ask())[0].text == "wait"
    assert agent.lost == 1
