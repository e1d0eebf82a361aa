"""Credit: pure functions from the columns of a batch to advantages. NumPy only, no torch.

One idea per file: :mod:`returns`, :mod:`gae`, :mod:`group` (GRPO, Dr.GRPO, RLOO, REINFORCE++),
:mod:`step_group` (GiGPO's step level), :mod:`whiten`, :mod:`kl_reward`, :mod:`penalty` (actions
that could not be executed), :mod:`spread` (episodes to turns to tokens), and the shared
:mod:`stats` and :mod:`check`.
"""

from __future__ import annotations

from creditrl.trainers.credit.gae import GAEConfig, gae_of_tables, gae_tokens, gae_turns
from creditrl.trainers.credit.group import (
    GroupConfig,
    group_advantage,
    group_advantage_of_turns,
    whole_groups,
)
from creditrl.trainers.credit.kl_reward import kl_reward
from creditrl.trainers.credit.penalty import ungrounded_penalty
from creditrl.trainers.credit.returns import discounted_return, episode_sum
from creditrl.trainers.credit.spread import (
    episodes_to_turns,
    first_turns,
    reward_on_last_token,
    tokens_per_turn,
    turn_sum,
    turns_to_tokens,
)
from creditrl.trainers.credit.stats import group_stats, joint_index
from creditrl.trainers.credit.step_group import StepGroupConfig, step_group
from creditrl.trainers.credit.whiten import whiten

__all__ = [
    "GAEConfig",
    "GroupConfig",
    "StepGroupConfig",
    "discounted_return",
    "episode_sum",
    "episodes_to_turns",
    "first_turns",
    "gae_of_tables",
    "gae_tokens",
    "gae_turns",
    "group_advantage",
    "group_advantage_of_turns",
    "group_stats",
    "joint_index",
    "kl_reward",
    "reward_on_last_token",
    "step_group",
    "tokens_per_turn",
    "turn_sum",
    "turns_to_tokens",
    "ungrounded_penalty",
    "whiten",
    "whole_groups",
]
