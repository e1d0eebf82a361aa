"""PettingZoo's APIs: its own tests, and the same dialogue in both."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from creditrl.envs.sotopia.dialogue import Transcript
from creditrl.envs.sotopia.pettingzoo import NoReward, SotopiaAECEnv, SotopiaParallelEnv
from creditrl.envs.sotopia.profiles import Combination
from creditrl.envs.sotopia.verdict import Verdict
from creditrl.errors import ConfigError, EpisodeOverError

pytestmark = pytest.mark.usefixtures("two_casts")


class Split:
    """Gives side 0 a tenth per turn of the dialogue, side 1 the rest."""

    name = "split"
    deterministic = True

    def score(self, episodes: Sequence[Transcript]) -> list[Verdict]:
        shares = [len(episode.turns) / 20 for episode in episodes]
        return [Verdict((share, 1 - share), (share > 0.5, share <= 0.5)) for share in shares]


class Broken:
    name = "broken"
    deterministic = True

    def score(self, episodes: Sequence[Transcript]) -> list[Verdict]:
        return [Verdict(None, status="invalid", error="prose")] * len(episodes)


ORDERS = ("round-robin", "simultaneous", "random")
# PettingZoo warns that observations are not arrays; no other warning is allowed.
_TEXTS = ("Observation is not a NumPy array", "probably should be gymnasium.spaces.box")


def said(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in caught if not any(t in str(w.message) for t in _TEXTS)]


@pytest.mark.parametrize(
    ("order", "judge"),
    [*((order, Split()) for order in ORDERS), ("random", Broken())],
)
def test_pettingzoos_own_tests_pass(order, judge):
    def parallel():
        return SotopiaParallelEnv(order=order, judge=judge)

    def turns():
        return SotopiaAECEnv(order=order, judge=judge)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallel_api_test(parallel(), num_cycles=60)
        parallel_seed_test(parallel, num_cycles=60)
        api_test(turns(), num_cycles=60)
        seed_test(turns, num_cycles=60)
    assert said(caught) == []


def test_a_parallel_dialogue_masks_sides_that_may_not_act() -> None:
    env = SotopiaParallelEnv(judge=Split())
    texts, infos = env.reset(seed=1)
    assert [infos[a]["may_act"] for a in env.agents] == [True, False]
    assert [texts[a]["may_act"] for a in env.agents] == [1, 0]
    assert texts["agent_0"]["text"].endswith("You are at turn #0.")
    assert texts["agent_1"]["text"].endswith("It is turn #0, and not yours.")
    texts, rewards, ended, cut, infos = env.step({"agent_0": "say: hi", "agent_1": "say: me too"})
    assert infos["agent_1"]["ungrounded_reason"] == "inapplicable"
    assert 'Turn #0: Ann Lee said: "hi"\nYou are at turn #1.' in texts["agent_1"]["text"]
    assert "me too" not in texts["agent_0"]["text"]
    assert rewards == {"agent_0": 0.0, "agent_1": 0.0}
    texts, rewards, ended, cut, infos = env.step({"agent_0": "nothing", "agent_1": "leave"})
    assert ended == {"agent_0": True, "agent_1": True} and not any(cut.values())
    assert rewards == {"agent_0": 0.1, "agent_1": 0.9}
    assert [infos[a]["success"] for a in ("agent_0", "agent_1")] == [False, True]
    assert env.agents == []
    with pytest.raises(EpisodeOverError):
        env.step({})


def test_in_the_aec_api_only_sides_that_may_act_are_asked() -> None:
    env = SotopiaAECEnv(judge=Split(), max_turns=3)
    env.reset(seed=1)
    asked = []
    for agent in env.agent_iter():
        _, reward, ended, cut, _ = env.last()
        asked.append(agent)
        assert reward == {4: 3 / 20, 5: 17 / 20}.get(len(asked), 0.0)
        env.step(None if ended or cut else "say: hello")
    assert asked == ["agent_0", "agent_1", "agent_0", "agent_0", "agent_1"]
    assert env.agents == []
    # Simultaneous sides answer before they are shown anything.
    env = SotopiaAECEnv(judge=Split(), order="simultaneous")
    env.reset(seed=1)
    env.step("say: hush-hush")
    assert env.agent_selection == "agent_1"
    assert "hush-hush" not in env.observe("agent_1")["text"]
    env.step("say: open")
    assert 'Ann Lee said: "hush-hush";Bo Diaz said: "open"' in env.observe("agent_0")["text"]


def test_answers_must_be_strings() -> None:
    parallel, turns = SotopiaParallelEnv(judge=Split()), SotopiaAECEnv(judge=Split())
    parallel.reset(seed=1)
    turns.reset(seed=1)
    for answer in (None, ["leave"]):
        with pytest.raises(TypeError, match="expected one string"):
            parallel.step({"agent_0": answer, "agent_1": "nothing"})
        with pytest.raises(TypeError, match="expected one string"):
            turns.step(answer)
    assert turns.agent_selection == "agent_0"
    assert turns.observe("agent_0")["text"].endswith("You are at turn #0.")


def test_both_apis_play_the_same_dialogue() -> None:
    options: dict[str, Any] = {"judge": Split(), "order": "random", "observation": "new"}
    parallel, turns = SotopiaParallelEnv(**options), SotopiaAECEnv(**options)
    texts, infos = parallel.reset(seed=4)
    turns.reset(seed=4)
    count = 0
    while parallel.agents:
        agent = turns.agent_selection
        assert infos[agent]["may_act"]
        assert turns.observe(agent) == texts[agent]
        action = f"say: line {count}"
        texts, rewards, _, _, infos = parallel.step({agent: action})
        turns.step(action)
        count += 1
        assert turns.infos == infos and turns.rewards == rewards
    assert count == 20


def test_a_failed_judgement_gives_nan_and_the_reason() -> None:
    env = SotopiaParallelEnv(judge=Broken())
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step({"agent_0": "leave"})
    assert all(math.isnan(reward) for reward in rewards.values())
    # Equal rewards compare equal, and so do their sums; no other number does.
    assert rewards == dict.fromkeys(env.possible_agents, NoReward())
    reward = rewards["agent_0"]
    assert 0.5 + reward == reward + 0.5 == reward and reward != float("nan") and reward != 0.0
    assert pickle.loads(pickle.dumps(reward)) == copy.deepcopy(reward) == reward
    assert np.isnan(np.array([reward, 1.0])).tolist() == [True, False]
    assert infos["agent_0"]["error"] == "judge broken: prose"
    assert infos["agent_0"]["judge_status"] == "invalid"


def test_a_task_is_selected_by_index_or_by_its_combination(two_casts: list[Combination]) -> None:
    env = SotopiaParallelEnv(judge=Split())
    for which in (1, two_casts[1].id):
        _, infos = env.reset(seed=0, options={"task": which})
        assert infos["agent_1"]["task_id"] == two_casts[1].id


def test_rendering_shows_both_goals(capsys: pytest.CaptureFixture[str]) -> None:
    env = SotopiaAECEnv(render_mode="ansi", judge=Split())
    env.reset(seed=0)
    env.step("say: hi")
    drawn = str(env.render())
    assert "Sell it" in drawn and "Buy it" in drawn and "Turn #0" in drawn
    SotopiaParallelEnv(render_mode="human", judge=Split()).reset(seed=0)
    assert "Scenario: " in capsys.readouterr().out


def test_single_agent_options_are_refused() -> None:
    for name in ("partner", "side", "unreadable"):
        with pytest.raises(ConfigError, match="both sides are agents"):
            SotopiaParallelEnv(**{name: "x"})
    with pytest.raises(ConfigError, match="No render mode"):
        SotopiaAECEnv(render_mode="rgb_array")
