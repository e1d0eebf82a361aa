"""Unusable training data is refused in a line that names the episode, or what to add or set."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_runs import make_context, make_policy, make_trajectory
from toy_env import ToyVectorEnv

from creditrl.agents.prompts import get_form
from creditrl.agents.rollout import run_episodes
from creditrl.errors import ConfigError, CreditInputError, CreditRLError, SnapshotError
from creditrl.trainers.after.side_by_side import credit_side_by_side
from creditrl.trainers.collect.base import CollectContext, Collected, Collector
from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.config import BudgetConfig, OptimConfig, RolloutConfig, resolve
from creditrl.trainers.loop import Trainer
from creditrl.trainers.methods import Method, method_info
from creditrl.trainers.models.base import LearnedModel
from creditrl.trainers.models.policy import Policy
from creditrl.types import Credit, Reply, Trajectory, Turn

FORM = get_form("plain")


class Walker:
    """Walks right, and gives the tokens that it is told to."""

    name = "walker"

    def __init__(self, **reply: Any) -> None:
        self.reply = reply

    def reseed(self, seed: int) -> None:
        pass

    def act(self, prompts):
        return [Reply("right", **self.reply) for _ in prompts]


def method(name: str, **changes: Any) -> Method[Any]:
    info = method_info(name)
    return info.method(dataclasses.replace(info.config(), **changes))


def context(of: Method[Any], venv: ToyVectorEnv, agent: Any) -> CollectContext:
    venv_of = {"environment": lambda copies, size: venv, "agent": agent}
    return make_context(of, groups=2, group_size=2, **venv_of)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return make_policy(texts=["Zelle 1 von 2", "right", "left"])


def trainer(policy: Policy, of: Method[Any], collector: Collector, **rollout: Any) -> Trainer:
    return Trainer(
        policy,
        of,
        collector,
        RolloutConfig(**rollout),
        OptimConfig(),
        BudgetConfig(updates=2),
        seed=0,
    )


class Given(Collector):
    """Gives the same episodes again and again."""

    def __init__(self, trajectories: list[Trajectory]) -> None:
        self.trajectories = trajectories

    def collect(self, update: int) -> Collected:
        return Collected(self.trajectories, 0)


def episode(id: str, group: int = 0, **changes: Any) -> Trajectory:
    turn = Turn("a", "right", "right", 0.4, prompt_ids=(1, 2), reply_ids=(3,), logprobs=(-1.0,))
    usual = {"id": id, "env_id": "Toy/Corridor-v0", "success": True, "score": 1.0}
    return make_trajectory(**({"turns": (turn, turn), "number": group} | usual | changes))


def one_line(error: pytest.ExceptionInfo[BaseException]) -> bool:
    return "\n" not in str(error.value) and isinstance(error.value, CreditRLError)


def test_prime_on_an_outcome_that_is_not_binary(policy):
    of = trainer(policy, method("prime"), Given([episode("e1"), episode("e2")]))
    with pytest.raises(CreditInputError, match=r'Episode e1 has outcome 0\.8.*"success"') as error:
        of.update()
    assert one_line(error)


def test_gigpo_on_open_dialogue():
    message = "gigpo compares turns that left the same state, and CreditRL/SOTOPIA-v0 is an open"
    recipe = {"budget": {"updates": 1}, "env": {"id": "SOTOPIA"}, "method": {"name": "gigpo"}}
    with pytest.raises(ConfigError, match=f"{message} dialogue.*--method.name grpo") as error:
        resolve(recipe, [], "recipe", "test")
    assert one_line(error)
    resolve({**recipe, "method": {"name": "grpo"}}, [], "recipe", "test")
    with pytest.raises(ConfigError, match=message):
        resolve({**recipe, "method": {"name": "gigpo", "similarity": 0.95}}, [], "recipe", "test")
    # One that was made without a recipe, and stored episodes.
    venv = gym.make_vec("CreditRL/SOTOPIA-v0", num_envs=4, group_size=2).unwrapped
    with pytest.raises(ConfigError, match=message):
        method("gigpo").collector(context(method("gigpo"), venv, Walker()))
    method("grpo").collector(context(method("grpo"), venv, Walker()))


def test_gigpo_on_stored_dialogues(policy):
    played = [episode(f"e{m}", env_id="CreditRL/SOTOPIA-v0", member=m) for m in range(2)]
    with pytest.raises(ConfigError, match="CreditRL/SOTOPIA-v0 is an open dialogue"):
        credit_side_by_side({"g": method("gigpo")}, played, policy, RolloutConfig())
    # An environment that is registered nowhere has no more to say than its episodes.
    credit_side_by_side(
        {"g": method("gigpo", anchor="text")},
        [dataclasses.replace(t, env_id="Nobody/Knows-v0") for t in played],
        policy,
        RolloutConfig(),
    )


def test_a_reply_without_tokens(policy):
    venv = ToyVectorEnv(4, group_size=2)
    of = method("grpo")
    textual = of.collector(context(of, venv, Walker()))
    with pytest.raises(
        CreditInputError, match=r"Episode u0/0, turn 0 has no prompt token ids.*token_ids"
    ) as error:
        trainer(policy, of, textual).update()
    assert one_line(error)
    # The prompt's ids alone leave nothing to train on.
    silent = of.collector(context(of, venv, Walker(prompt_ids=(1, 2))))
    with pytest.raises(
        CreditInputError, match=r"No reply.*e\.g\. episode u0/0.*token_ids"
    ) as error:
        trainer(policy, of, silent).update()
    assert one_line(error)
    # Other turns' tokens are enough: an empty reply is a turn like any other.
    first, rest = episode("e1"), episode("e2")
    mute = dataclasses.replace(first.turns[0], reply="", reply_ids=(), logprobs=())
    some = dataclasses.replace(first, turns=(mute, first.turns[1]))
    metrics, _ = trainer(policy, of, Given([some, rest])).update()
    assert np.isfinite(metrics["loss"])


def test_a_group_in_which_every_judge_failed(policy):
    failed = [episode(f"e{m}", member=m, error="judge toy: no answer") for m in range(2)]
    with pytest.raises(CreditInputError, match="Episode e0 is invalid.*judge toy: no answer"):
        trainer(policy, method("grpo"), Given(failed)).update()
    with pytest.raises(CreditInputError, match="Episode e0 is invalid.*whole group"):
        credit_side_by_side({"g": method("grpo")}, failed, policy, RolloutConfig())


def test_an_update_in_which_every_judge_failed(monkeypatch):
    venv = ToyVectorEnv(4, group_size=2)
    collector = RolloutCollector(venv, Walker(), FORM, seed=0)
    broken = {"groups": {0, 1}}

    def judged(*args: Any, **kwargs: Any) -> list[Trajectory]:
        return [
            dataclasses.replace(t, error="judge toy: 500" if t.group in broken["groups"] else "")
            for t in run_episodes(*args, **kwargs)
        ]

    monkeypatch.setattr("creditrl.trainers.collect.rollouts.run_episodes", judged)
    with pytest.raises(
        CreditInputError, match=r"All 2 groups of update 3.*episode u3/0 \(judge toy: 500\)"
    ) as error:
        collector.collect(3)
    assert one_line(error)
    broken["groups"] = {1}
    found = collector.collect(3)
    assert {t.group for t in found.trajectories} == {0} and found.metrics["groups_dropped"] == 1


@pytest.mark.parametrize("column", ["seen_N", "seen_M", "value_M"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_from_a_model(policy, column, value):
    class Broken(LearnedModel):
        name = "broken"

        def score(self, batch):
            size = len(batch.turns) if column.endswith("_N") else len(batch.tokens)
            found = np.zeros(size, dtype=np.float32)
            found[3] = value  # the second turn of the second episode
            if column == "seen_N":
                return batch.with_scores(seen_N=found)
            tokens = batch.tokens
            if column == "value_M":
                return dataclasses.replace(batch, tokens=dataclasses.replace(tokens, value_M=found))
            return dataclasses.replace(batch, tokens=tokens.with_scores(seen_M=found))

    class Trusting(Method[Any]):
        name = "pg"

        def build_models(self, policy, seed, temperature=1.0):
            return (Broken(),)

        def credit(self, turns, tokens):
            return Credit(self.name, advantage_N=np.ones(len(turns), dtype=np.float32))

    of = Trusting(method_info("pg").config())
    played = [episode("e1"), episode("e2", group=1)]
    message = rf"model 'broken' gave {value} \({column}\) in episode e2, turn 1: expected finite"
    with pytest.raises(CreditInputError, match=message) as error:
        trainer(policy, of, Given(played)).update()
    assert one_line(error)
    with pytest.raises(CreditInputError, match=message):
        credit_side_by_side({"t": of}, played, policy, RolloutConfig())


@pytest.mark.parametrize("name", ["three_spo", "vine", "tree_grpo", "branch"])
def test_what_goes_back_to_states_on_an_environment_without_snapshots(name, monkeypatch):
    def no(venv: Any, indices: Any = None) -> Any:
        raise SnapshotError("a live partner speaks")

    venv = ToyVectorEnv(8, group_size=4)
    monkeypatch.setattr(type(venv), "snapshot", no)
    of = method(name)
    if name == "three_spo":
        of = method(name, tree=dataclasses.replace(of.config.tree, rollouts=4))
    said = "Toy/Corridor-v0 cannot be saved and restored.*a live partner speaks.*with snapshots"
    with pytest.raises(ConfigError, match=said) as error:
        of.collector(context(of, venv, Walker(prompt_ids=(1,), token_ids=(2,)))).collect(0)
    assert one_line(error)


def test_gigpo_on_an_environment_without_a_hash(monkeypatch):
    def no(engine: Any, index_K: Any, source: str) -> Any:
        raise NotImplementedError("state_keys is missing")

    venv = ToyVectorEnv(4, group_size=2)
    monkeypatch.setattr(type(venv.copies.engine), "state_keys", no)
    of = method("gigpo")
    with pytest.raises(
        ConfigError,
        match="Corridor-v0 has no state keys of source 'state'.*--method.anchor text.*StateHash",
    ) as error:
        of.collector(context(of, venv, Walker())).collect(0)
    assert one_line(error)
    by_text = method("gigpo", anchor="text")
    found = by_text.collector(context(by_text, venv, Walker())).collect(0)
    assert all(turn.state for t in found.trajectories for turn in t.turns)


def test_gigpo_compares_similar_texts_where_it_is_asked_to(policy):
    # Texts of 20 characters that differ in one are 0.95 alike.
    texts = ["a" * 19 + "x", "a" * 19 + "y", "b" * 20]
    played = []
    for m, success in enumerate((True, False)):
        turn = episode("e").turns[0]
        turns = (
            dataclasses.replace(turn, observation=texts[m], reward=0.0),
            dataclasses.replace(turn, observation=texts[2], reward=float(success)),
        )
        played.append(episode(f"e{m}", turns=turns, member=m))
    # gamma 1/2: at the similar state 0.5 and 0, at the equal one 1 and 0; outcome +-0.5.
    similar, equal = (
        method("gigpo", gamma=0.5, similarity=0.95),
        method("gigpo", gamma=0.5, anchor="text"),
    )
    _, credit = credit_side_by_side({"s": similar, "e": equal}, played, policy, RolloutConfig())
    np.testing.assert_allclose(credit["s"], [0.75, 1.0, -0.75, -1.0])
    np.testing.assert_allclose(credit["e"], [0.5, 1.0, -0.5, -1.0])
    of = trainer(policy, similar, Given(played))
    metrics, _ = of.update()
    assert np.isfinite(metrics["loss"]) and similar.hash_states is None
    with pytest.raises(ConfigError, match="similarity is 0"):
        method("gigpo", similarity=0.0)
