"""Losses: pure functions from log-probabilities and advantages to a scalar.

:mod:`policy` (PPO, GRPO, DAPO, GSPO, LUSPO, CISPO, SAPO, GMPO, DPPO, turn ratios, REINFORCE and
cloning), :mod:`value`, :mod:`kl`,
:mod:`importance` (replies sampled by another policy), and helpers that make micro-batches exact:
:mod:`aggregate` (one weight per token) and :mod:`metrics` (sums that add). Import the module you
need. :mod:`config` and :mod:`aggregate` do not import torch, the others do; so this package
re-exports only those two.
"""

from __future__ import annotations

from creditrl.trainers.losses.aggregate import Aggregate, aggregation_weights
from creditrl.trainers.losses.config import (
    ClipOn,
    KLKind,
    PolicyLossConfig,
    Ratio,
    SamplerUnit,
    ValueLossConfig,
)

__all__ = [
    "Aggregate",
    "ClipOn",
    "KLKind",
    "PolicyLossConfig",
    "Ratio",
    "SamplerUnit",
    "ValueLossConfig",
    "aggregation_weights",
]
