"""Every method against a case worked by hand, and the registry."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from creditrl.errors import ConfigError, CreditInputError, UnknownNameError
from creditrl.plugins import load_plugin
from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.methods import (
    Method,
    list_methods,
    method_info,
    register_method,
)
from creditrl.trainers.methods.gigpo import GiGPO, GiGPOConfig
from creditrl.trainers.methods.grpo import GRPO, GRPOConfig
from creditrl.trainers.methods.pg import PG, PGConfig
from creditrl.trainers.methods.ppo import PPO, PPOConfig
from creditrl.trainers.methods.reinforce_pp import ReinforcePP, ReinforcePPConfig
from creditrl.trainers.methods.rloo import RLOO, RLOOConfig
from creditrl.trainers.methods.sft import SFT, SFTConfig

# One group of three episodes with returns 1, 0, 0 and lengths 2, 1, 1.
GROUP = turn_table(reward=[0, 1, 0, 0], episode=[0, 0, 1, 2])
TOKENS = token_table([0, 1, 2, 3])


def test_sft_gives_every_demonstrated_turn_advantage_one():
    credit = SFT(SFTConfig()).credit(GROUP, TOKENS)
    np.testing.assert_array_equal(credit.advantage_N, [1, 1, 1, 1])
    assert SFT(SFTConfig()).policy_loss().ratio == "none"


def test_pg_takes_the_return_less_the_mean_over_episodes():
    # Mean return over three episodes is 1/3 (over the four turns it would be 1/2).
    credit = PG(PGConfig()).credit(GROUP, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [2 / 3, 2 / 3, -1 / 3, -1 / 3], rtol=1e-6)


def test_pg_reward_to_go_discounts_what_follows():
    cfg = PGConfig(baseline="none", gamma=0.5, reward_to_go=True)
    credit = PG(cfg).credit(GROUP, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [0.5, 1.0, 0.0, 0.0])


def test_grpo_divides_by_the_unbiased_deviation_over_trajectories():
    # mean 1/3, std sqrt(((2/3)^2 + 2 (1/3)^2) / 2) = sqrt(1/3) = 0.57735
    credit = GRPO(GRPOConfig()).credit(GROUP, TOKENS)
    np.testing.assert_allclose(
        credit.advantage_N, [1.154701, 1.154701, -0.57735, -0.57735], atol=1e-4
    )


def test_grpo_centred_only_differs_from_divided():
    credit = GRPO(GRPOConfig(divide_by_std=False)).credit(GROUP, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [2 / 3, 2 / 3, -1 / 3, -1 / 3], rtol=1e-6)


def test_rloo_subtracts_the_mean_of_the_others():
    # 1 - mean(0, 0) = 1; 0 - mean(1, 0) = -1/2
    credit = RLOO(RLOOConfig()).credit(GROUP, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [1, 1, -0.5, -0.5], rtol=1e-6)


def test_reinforce_pp_whitens_over_the_batch_whatever_the_groups():
    # Returns 1, 0, 3, 0 in two groups: mean 1, unbiased variance (0 + 1 + 4 + 1) / 3 = 2.
    turns = turn_table(reward=[1, 0, 3, 0], episode=[0, 1, 2, 3], group=[0, 0, 1, 1])
    credit = ReinforcePP(ReinforcePPConfig()).credit(turns, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, np.array([0, -1, 2, -1]) / np.sqrt(2), atol=1e-6)
    # Baseline form: centred in groups 0.5, -0.5, 1.5, -1.5; mean 0, variance 5 / 3.
    credit = ReinforcePP(ReinforcePPConfig(baseline=True)).credit(turns, TOKENS)
    np.testing.assert_allclose(
        credit.advantage_N, np.array([0.5, -0.5, 1.5, -1.5]) / np.sqrt(5 / 3), atol=1e-6
    )


def test_gigpo_adds_a_comparison_at_equal_states_to_the_outcome():
    # Two episodes leave state 7 first; episode 0 solves at its second turn. gamma 1/2:
    # returns at state 7 are 0.5 and 0, centred +-0.25. Outcome centred: +-0.5.
    turns = turn_table(reward=[0, 1, 0, 0], episode=[0, 0, 1, 1], state=[7, 8, 7, 9])
    credit = GiGPO(GiGPOConfig(gamma=0.5, step_weight=2.0)).credit(turns, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [1.0, 0.5, -1.0, -0.5], rtol=1e-6)
    np.testing.assert_allclose(credit.parts["step"], [0.5, 0.0, -0.5, 0.0], rtol=1e-6)


def test_gigpo_without_state_hashes_says_which_wrapper_to_add():
    with pytest.raises(CreditInputError, match="StateHash"):
        GiGPO(GiGPOConfig()).credit(GROUP, TOKENS)


def test_ppo_is_gae_over_tokens_and_its_targets_are_not_whitened():
    # One episode of two turns, one token each; reward 1 at the end, values 0.5 and 0.5, lambda 1:
    # returns 1, 1, advantages 0.5, 0.5. A second episode with reward 0: advantages -0.5.
    turns = turn_table(reward=[0, 1, 0], episode=[0, 0, 1])
    tokens = token_table([0, 1, 2], value=[0.5, 0.5, 0.5])
    base = PPOConfig()
    method = PPO(dataclasses.replace(base, gae=dataclasses.replace(base.gae, lam=1.0)))
    credit = method.credit(turns, tokens)
    np.testing.assert_allclose(credit.value_target_M, [1, 1, 0], rtol=1e-6)
    # Whitened: mean 1/6, unbiased variance (2 (1/3)^2 + (2/3)^2) / 2 = 1/3.
    expected = (np.array([0.5, 0.5, -0.5]) - 1 / 6) / np.sqrt(1 / 3)
    np.testing.assert_allclose(credit.advantage_M, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "config"),
    [
        (GRPO, GRPOConfig(invalid_penalty=0.1)),
        (RLOO, RLOOConfig(invalid_penalty=0.1)),
        (ReinforcePP, ReinforcePPConfig(invalid_penalty=0.1)),
    ],
)
def test_the_invalid_action_penalty_stays_on_its_turn(method, config):
    turns = dataclasses.replace(GROUP, grounded_N=np.array([True, True, False, True]))
    plain = method(dataclasses.replace(config, invalid_penalty=0.0)).credit(turns, TOKENS)
    punished = method(config).credit(turns, TOKENS)
    np.testing.assert_allclose(punished.advantage_N - plain.advantage_N, [0, 0, -0.1, 0], atol=1e-6)


def test_gigpo_punishes_turns_that_were_not_executed_unless_told_not_to():
    # States differ everywhere, so there is no step advantage; returns 1, 0, 0 around their mean.
    turns = dataclasses.replace(
        GROUP, grounded_N=np.array([True, True, False, True]), state_N=np.array([1, 2, 3, 4])
    )
    outcome = np.array([2, 2, -1, -1]) / 3
    found = GiGPO(GiGPOConfig()).credit(turns, TOKENS).advantage_N
    np.testing.assert_allclose(found, outcome - [0, 0, 0.1, 0], atol=1e-6)
    found = GiGPO(GiGPOConfig(invalid_penalty=0.0)).credit(turns, TOKENS).advantage_N
    np.testing.assert_allclose(found, outcome, atol=1e-6)


def test_methods_disagree_where_their_formulas_do():
    turns = turn_table(
        reward=[0, 1, 0, 0, 2],
        episode=[0, 0, 1, 2, 3],
        group=[0, 0, 0, 1, 1],
        state=[3, 4, 3, 5, 5],
    )
    tokens = token_table([0, 1, 2, 3, 4])
    found = {
        name: method_info(name).method(method_info(name).config()).credit(turns, tokens).advantage_N
        for name in ("sft", "pg", "grpo", "rloo", "reinforce_pp", "gigpo")
    }
    names = sorted(found)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert np.abs(found[one] - found[other]).max() > 1e-3, (one, other)


def test_every_method_names_its_kind_granularity_reward_and_paper():
    infos = list_methods()
    assert {"sft", "pg", "ppo", "grpo", "rloo", "reinforce_pp", "gigpo"} <= {i.name for i in infos}
    for info in infos:
        assert info.kind and info.granularity and info.reward_source and info.paper
        assert isinstance(info.config().loss, PolicyLossConfig)


def test_an_unknown_method_names_the_nearest_one():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'grpo'\?.*creditrl methods"):
        method_info("grppo")


def test_a_method_from_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass, field\n"
        "import numpy as np\n"
        "from creditrl.trainers.losses.config import PolicyLossConfig\n"
        "from creditrl.trainers.methods import Method, register_method\n"
        "from creditrl.types import Credit\n"
        "@dataclass(frozen=True)\n"
        "class MineConfig:\n"
        "    scale: float = 3.0\n"
        "    loss: PolicyLossConfig = field(default_factory=PolicyLossConfig)\n"
        "@register_method('mine', config=MineConfig, kind='test', granularity='turn',\n"
        "                 reward_source='environment', paper='none')\n"
        "class Mine(Method):\n"
        "    def credit(self, turns, tokens):\n"
        "        return Credit(self.name, advantage_N=self.config.scale * turns.reward_N)\n"
    )
    load_plugin(str(file))
    info = method_info("mine")
    credit = info.method(info.config()).credit(GROUP, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [0, 3, 0, 0])


def test_a_plugin_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"nowhere\.py"):
        load_plugin("nowhere.py")
    with pytest.raises(ConfigError, match="no_such_module"):
        load_plugin("no_such_module")


def test_a_name_is_not_taken_twice():
    with pytest.raises(ConfigError, match="taken"):

        @register_method(
            "grpo", config=GRPOConfig, kind="", granularity="turn", reward_source="", paper=""
        )
        class Other(Method[GRPOConfig]):
            pass
