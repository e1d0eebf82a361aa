"""Computed advantages of tiny tasks, and what is measured beside them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from creditrl.bench.exact import agreement, table_of_turns
from creditrl.bench.exact_mdps import ENV_ID, MDPS, WON, DelayedEffect, Recovery, solve
from creditrl.cli import run
from creditrl.trainers.batch import token_table, turn_table
from creditrl.trainers.methods import method_info
from creditrl.types import Task, Trajectory, Turn

pytest.importorskip("torch")


def random_policy(mdp, seed=0):
    rng = np.random.default_rng(seed)
    return {
        state: dict(
            zip(mdp.actions(state), rng.dirichlet([1.0] * len(mdp.actions(state))), strict=True)
        )
        for state in solve(mdp, uniform(mdp).__getitem__).value
    }


def uniform(mdp):
    class Table(dict):
        def __missing__(self, state):
            actions = mdp.actions(state)
            return dict.fromkeys(actions, 1 / len(actions))

    return Table()


def play(mdp, number, group, *actions, ways=None):
    """Return the episode that these actions make, where nothing is left to chance."""
    state, turns = mdp.start, []
    for action in actions:
        turns.append(
            Turn(
                f"{mdp.name}: {mdp.text(state)}", action, action, 0.0, state=hash(state) % 2**62 + 1
            )
        )
        outcomes = mdp.after(state, action)
        state = outcomes[0 if ways is None else ways[len(turns) - 1]].state
    won = state == WON
    turns[-1] = replace(turns[-1], reward=float(won))
    task = Task("0", mdp.name, "train", 0)
    return Trajectory(
        str(number), ENV_ID, task, group, number, 0, tuple(turns), won, float(won), True, False
    )


def credit(name, episodes, **numbers):
    """Return a method's credit of every turn, with these numbers."""
    info = method_info(name)
    turns, tokens = turn_table(episodes), token_table(episodes)
    return info.method(info.config(**numbers)).credit(turns, tokens).advantage_N


# -- the truth ------------------------------------------------------------------------------------


def test_recovery_by_hand():
    exact = solve(Recovery(), uniform(Recovery()).__getitem__)
    assert exact.value == {("start",): 0.75, ("mistake",): 0.5}
    assert exact.visits == {("start",): 1.0, ("mistake",): 0.5}
    assert exact.advantage(("start",), "bad") == -0.25
    assert exact.advantage(("mistake",), "recover") == 0.5


@pytest.mark.parametrize("mdp", MDPS, ids=lambda mdp: mdp.name)
def test_values_and_visits_agree(mdp):
    """Success is what arrives at the goal; advantages of a state average to 0."""
    policy = random_policy(mdp)
    exact = solve(mdp, policy.__getitem__)
    arrived = 0.0
    for state, chances in policy.items():
        assert sum(chances[a] * exact.advantage(state, a) for a in chances) == pytest.approx(0)
        for action, chance in chances.items():
            outcomes = mdp.after(state, action)
            assert sum(o.probability for o in outcomes) == pytest.approx(1)
            won = sum(o.probability for o in outcomes if o.state == WON)
            arrived += exact.visits[state] * chance * won
    assert exact.value[mdp.start] == pytest.approx(arrived)
    texts = [mdp.text(state) for state in policy]
    assert len({*texts}) == len(texts)


def test_the_tasks_are_environments(capsys):
    assert run(["check", ENV_ID]) == 0, capsys.readouterr().out


# -- the measures ---------------------------------------------------------------------------------


@pytest.fixture(params=MDPS, ids=lambda mdp: mdp.name)
def turns(request):
    """Turns of 64 groups of 8 episodes of a random policy."""
    mdp, rng = request.param, np.random.default_rng(1)
    policy = random_policy(mdp, 3)
    episodes = []
    for number in range(512):
        state, actions, ways = mdp.start, [], []
        while state in policy:
            actions.append(str(rng.choice([*policy[state]], p=[*policy[state].values()])))
            outcomes = mdp.after(state, actions[-1])
            ways.append(int(rng.choice(len(outcomes), p=[o.probability for o in outcomes])))
            state = outcomes[ways[-1]].state
        episodes.append(play(mdp, number, number // 8, *actions, ways=ways))
    return table_of_turns(mdp, episodes, solve(mdp, policy.__getitem__), policy)


def test_the_truth_agrees_with_itself(turns):
    true_N = turns.advantage_P[turns.pair_N]
    right, wrong = agreement(true_N, turns), agreement(-true_N, turns)
    assert (right.within, wrong.within) == (1.0, 0.0)
    assert (right.cosine, right.error) == pytest.approx((1, 0), abs=1e-9)
    assert (wrong.cosine, wrong.error) == pytest.approx((-1, 2), abs=1e-9)
    assert right.leakage == pytest.approx(0, abs=1e-9) and right.signal > 0


def test_an_equal_credit_for_all_turns_points_nowhere(turns):
    found = agreement(np.full(len(turns.pair_N), 0.3), turns)
    assert np.isnan(found.cosine) and (found.within, found.error) == (0.5, pytest.approx(1))


def test_what_all_turns_of_a_state_get_changes_no_gradient(turns):
    rng = np.random.default_rng(0)
    credit_N = turns.advantage_P[turns.pair_N] + rng.normal(size=len(turns.pair_N))
    shift_N = rng.normal(scale=3, size=turns.state_P.max() + 1)[turns.state_P[turns.pair_N]]
    one, other = agreement(credit_N, turns), agreement(credit_N + shift_N, turns)
    assert (one.within, one.cosine, one.error) == pytest.approx(
        (other.within, other.cosine, other.error)
    )
    assert one.signal != pytest.approx(other.signal)  # a baseline moves the variance


# -- figures of others ----------------------------------------------------------------------------


def test_published_rows_of_recovery():
    """AgentCreditBench v0.5, BAD then RECOVER under the uniform policy."""
    kinds = [("good",), ("good",), ("bad", "recover"), ("bad", "quit")]
    episodes = [play(Recovery(), n, 0, *kinds[n % 4]) for n in range(400)]
    first = 2  # the turns of the first episode that recovers

    def row(name, **numbers):
        return credit(name, episodes, **numbers)[first : first + 2].round(2).tolist()

    assert row("pg", baseline="none") == [1.0, 1.0]
    assert row("pg") == [0.25, 0.25]
    assert row("grpo") == pytest.approx([0.58, 0.58])
    assert row("gigpo", gamma=1.0, normalise="mean-std") == pytest.approx([1.15, 1.57], abs=0.011)


@pytest.mark.parametrize(("horizon", "leaked"), [(2, 0.5), (4, 0.75), (32, 0.969)])
def test_published_rows_of_the_delayed_effect(horizon, leaked):
    """The outcome on every turn: all but the first have done nothing for it."""
    mdp = DelayedEffect(horizon)
    waits = ("wait", "hum") * horizon
    episodes = [
        play(mdp, n, 0, first, *waits[n % 2 :][: horizon - 1])
        for n, first in enumerate(("left", "right") * 4)
    ]
    policy = uniform(mdp)
    exact = solve(mdp, policy.__getitem__)
    table = table_of_turns(mdp, episodes, exact, policy)
    found = agreement(credit("grpo", episodes), table)
    assert found.leakage == pytest.approx(leaked, abs=5e-4)
    assert found.wasted == pytest.approx(np.abs(credit("grpo", episodes)).mean())


# -- with a small policy --------------------------------------------------------------------------


def test_chances_are_those_that_the_policy_draws_with():
    from creditrl.agents.transformers import TransformersAgent
    from creditrl.bench.exact import probabilities, small_policy
    from creditrl.types import Prompt

    policy = small_policy(0)
    agent = TransformersAgent(policy.model, policy.tokenizer, max_new_tokens=8, actions="choice")
    mdp = MDPS[3]
    chances = probabilities(mdp, agent)[mdp.start]
    text = f"{mdp.name}: {mdp.text(mdp.start)}"
    drawn = agent.act([Prompt(text, i, choices=mdp.actions(mdp.start)) for i in range(4000)])
    for action, chance in chances.items():
        share = np.mean([reply.text == action for reply in drawn])
        assert share == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 4000) ** 0.5)


def test_the_command_measures_and_writes(tmp_path, capsys):
    words = ["bench", "exact", "--methods", "grpo", "ppo", "--groups", "4", "--group-size", "4"]
    assert run([*words, "--json", str(tmp_path / "exact.json")]) == 0
    rows = json.loads((tmp_path / "exact.json").read_text())["rows"]
    assert [(r["method"], r["task"]) for r in rows] == [
        (name, mdp.name) for name in ("grpo", "ppo") for mdp in MDPS
    ]
    grpo = {r["task"]: r for r in rows if r["method"] == "grpo"}
    # All turns of an episode have one credit.
    assert grpo["delayed effect"]["leakage"] == pytest.approx(7 / 8)
    assert "Cosine with the true policy gradient" in capsys.readouterr().out
    assert run([*words, "--json", str(tmp_path / "exact.json")]) == 2
    assert "nothing was overwritten" in capsys.readouterr().err
    assert run(["bench", "exact", "--methods", "grqo"]) == 2
    assert "Did you mean 'grpo'" in capsys.readouterr().err
