"""Agents as partners, and self-chat: calls are counted, both sides are recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import pytest

from creditrl.agents import AgentPartner, run_episodes, run_self_chat
from creditrl.agents.prompts import get_form
from creditrl.envs.sotopia.dialogue import Transcript
from creditrl.envs.sotopia.env import SotopiaConfig, SotopiaVectorEnv
from creditrl.envs.sotopia.profiles import Character, Combination, Scenario
from creditrl.envs.sotopia.verdict import Verdict
from creditrl.errors import ConfigError
from creditrl.types import Prompt, Reply


class Counting:
    """Replies with its name and the number of the call; leaves when told to."""

    def __init__(self, name: str, leaves_at: int = 10**9, fails_at: int = 10**9) -> None:
        self.name = name
        self.calls: list[int] = []
        self.prompts: list[Prompt] = []
        self._leaves_at = leaves_at
        self._fails_at = fails_at

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        self.calls.append(len(prompts))
        self.prompts += prompts
        call = len(self.calls)
        if call >= self._fails_at:
            return [Reply("", error="HTTP 503")] * len(prompts)
        said = "leave" if call >= self._leaves_at else f"say: {self.name} {call}"
        return [Reply(said, token_ids=(call,), logprobs=(-0.5,)) for _ in prompts]


class Halves:
    name = "halves"
    deterministic = True

    def __init__(self) -> None:
        self.calls: list[int] = []

    def score(self, episodes: Sequence[Transcript]) -> list[Verdict]:
        self.calls.append(len(episodes))
        return [Verdict((0.5, 0.25), (True, False))] * len(episodes)


@pytest.fixture(autouse=True)
def casts(monkeypatch: pytest.MonkeyPatch) -> list[Combination]:
    """Three scenarios made for the test."""
    people = (Character("a", "Ann", "Lee", 31, "Baker"), Character("b", "Bo", "Diaz", 40, "Pilot"))
    made = [
        Combination(f"c{k}", Scenario(f"s{k}", f"Scene {k}.", ("Sell it", "Buy it")), people)
        for k in range(3)
    ]
    monkeypatch.setattr(SotopiaConfig, "combinations", lambda config: made)
    return made


def chat(agents: Any, **options: Any) -> Any:
    return run_self_chat(agents, **{"form": "dialogue", "judge": Halves(), **options})


def test_one_agent_on_both_sides_is_called_once_per_turn() -> None:
    agent, judge = Counting("me"), Halves()
    pairs = chat(agent, copies=8, judge=judge)
    assert agent.calls == [8] * 20 and judge.calls == [8]
    assert len(pairs) == 8
    for one, other in pairs:
        assert len(one.turns) == len(other.turns) == 10
        assert one.truncated and other.truncated and not one.terminated
    # A growing conversation gets only the new messages.
    assert agent.prompts[16].text == (
        'Turn #0: Ann Lee said: "me 1"\nTurn #1: Bo Diaz said: "me 2"\nYou are at turn #2.'
    )


def test_two_agents_alternate_and_simultaneous_sides_share_a_call() -> None:
    one, other, both = Counting("one"), Counting("other"), Counting("me")
    chat((one, other), copies=8)
    assert one.calls == other.calls == [8] * 10
    chat(both, copies=4, order="simultaneous", max_turns=3)
    assert both.calls == [8] * 3


def test_both_sides_are_recorded_with_their_own_rewards() -> None:
    pairs = chat((Counting("one"), Counting("other", leaves_at=2)), copies=2, seed=5)
    one, other = pairs[1]
    assert [turn.action for turn in one.turns] == ["say: one 1", "say: one 2"]
    assert [turn.action for turn in other.turns] == ["say: other 1", "leave"]
    assert [turn.reward for turn in one.turns] == [0.0, 0.5]
    assert [turn.reward for turn in other.turns] == [0.0, 0.25]
    assert (one.success, other.success) == (True, False)
    assert (one.score, other.score) == (0.5, 0.25)
    assert one.terminated and one.task.goal == "Sell it" and other.task.goal == "Buy it"
    assert one.task.id == f"{other.task.id.rpartition('/')[0]}/0"
    assert one.turns[0].reply_ids == (1,) and one.turns[0].logprobs == (-0.5,)
    assert one.turns[0].observation.startswith("You are Ann Lee.")
    assert other.turns[0].observation.startswith("You are Bo Diaz.")
    assert 'Ann Lee said: "one 1"' in other.turns[0].observation
    assert "left the conversation" in one.final_observation
    # A side that never spoke has no turns.
    ((one, other),) = chat((Counting("one", leaves_at=1), Counting("other")), copies=1)
    assert len(one.turns) == 1 and one.turns[0].reward == 0.5
    assert other.turns == () and other.score == 0.25


def test_members_of_a_group_share_task_and_seed_and_each_side_is_a_group() -> None:
    pairs = chat(Counting("me"), copies=4, group_size=2, hash_states=True)
    numbers = [(a.group, b.group, a.member) for a, b in pairs]
    assert numbers == [(0, 1, 0), (0, 1, 1), (2, 3, 0), (2, 3, 1)]
    assert pairs[0][0].task == pairs[1][0].task and pairs[0][0].seed == pairs[1][0].seed
    states = [[turn.state for turn in side.turns] for side in pairs[0]]
    assert states == [[turn.state for turn in side.turns] for side in pairs[1]]
    assert len(set(states[0] + states[1])) == 20
    again = chat(Counting("me"), copies=4, group_size=2, hash_states=True)
    assert again == pairs


def test_a_failed_reply_invalidates_both_sides_episodes() -> None:
    ((one, other),) = chat((Counting("one"), Counting("other", fails_at=2)), copies=1)
    assert one.error == other.error == "HTTP 503" and one.truncated
    assert len(one.turns) == 2 and math.isnan(one.turns[-1].reward)
    assert len(other.turns) == 1


@pytest.mark.parametrize("form", ["plain", "dialogue", "react", "tags", "sotopia"])
def test_every_form_shows_each_side_its_own_view(form: str) -> None:
    agent = Counting("me")
    run_self_chat(agent, form, copies=1, judge=Halves(), max_turns=4)
    last = agent.prompts[-1]
    assert last.copy == 1 and last.goal == "Buy it"
    told = "\n".join(message["content"] for message in last.messages) or last.text
    assert "me 3" in told
    first = agent.prompts[1]
    told = "\n".join(message["content"] for message in first.messages)
    assert "Bo Diaz" in told and "Sell it" not in told


def test_combinations_can_be_chosen_and_options_for_one_agent_are_refused() -> None:
    pairs = chat(Counting("me"), copies=2, tasks=[2, "c0/0"], max_turns=2)
    assert [one.task.id for one, _ in pairs] == ["c2/0", "c0/0"]
    with pytest.raises(ConfigError, match="both sides are agents"):
        chat(Counting("me"), partner="scripted")
    with pytest.raises(ConfigError, match="copies=3"):
        chat(Counting("me"), copies=3, group_size=2)
    with pytest.raises(ConfigError, match="2 tasks for 8 groups"):
        chat(Counting("me"), tasks=[0, 1])


# -- partners -------------------------------------------------------------------------------------


def table(agent: Counting, n: int = 8, **options: Any) -> SotopiaVectorEnv:
    return SotopiaVectorEnv(n, partner=AgentPartner(agent, "dialogue"), judge=Halves(), **options)


def test_an_agent_replies_for_all_partners_in_one_call() -> None:
    policy, partner = Counting("policy"), Counting("partner")
    venv = table(partner, side=0)
    episodes = run_episodes(venv, policy, get_form("dialogue"), seed=0)
    assert policy.calls == partner.calls == [8] * 10
    assert {prompt.copy for prompt in partner.prompts} == set(range(-8, 0))
    assert all(episode.truncated and episode.score == 0.5 for episode in episodes)
    assert partner.prompts[8].text == (
        'Turn #1: Bo Diaz said: "partner 1"\nTurn #2: Ann Lee said: "policy 2"\nYou are at turn #3.'
    )


def test_a_failed_partner_is_retried_from_the_start() -> None:
    class Recovering(Counting):
        def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
            replies = super().act(prompts)
            return [Reply("", error="HTTP 500")] + replies[1:] if len(self.calls) == 2 else replies

    partner = Recovering("partner")
    venv = table(partner, 4, max_turns=6, side=0)
    first = run_episodes(venv, Counting("policy"), get_form("dialogue"), seed=0)
    assert first[0].error == "partner partner: HTTP 500" and not any(t.error for t in first[1:])
    assert math.isnan(first[0].turns[-1].reward)
    partner.calls.clear()
    again = run_episodes(venv, Counting("policy"), get_form("dialogue"), seed=0, retries=1)
    assert not any(trajectory.error for trajectory in again)
    # Three rounds of four, two of them with one fewer; then the first copy's three.
    assert partner.calls == [4, 4, 3, 1, 1, 1]


def test_the_spec_is_nondeterministic_if_a_live_model_speaks() -> None:
    live, fixed = (
        AgentPartner(Counting("x"), "dialogue", deterministic=same) for same in (False, True)
    )
    for partner, speaks in ((live, True), (fixed, False), ("small-talk", False)):
        env = gym.make("CreditRL/SOTOPIA-v0", judge=Halves(), partner=partner)
        assert env.spec is not None and env.spec.nondeterministic is speaks
