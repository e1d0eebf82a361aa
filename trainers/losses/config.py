"""Settings of the losses, separate from their code: naming a loss must not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from creditrl.checked import Bounds, Checked, NonNegative, Positive
from creditrl.errors import ConfigError
from creditrl.trainers.losses.aggregate import Aggregate

__all__ = ["KLKind", "PolicyLossConfig", "Ratio", "SamplerUnit", "ValueLossConfig"]

Ratio = Literal["token", "turn", "sequence", "none"]
SamplerUnit = Literal["token", "turn", "sequence"]
KLKind = Literal["k1", "k2", "k3", "abs"]


@dataclass(frozen=True, slots=True)
class PolicyLossConfig(Checked):
    """The ratio and its clip, the weights of tokens, and added terms."""

    ratio: Ratio = "token"
    """"token" (PPO, GRPO, DAPO), "turn" (iStar), "sequence" (GSPO), "none" (REINFORCE)."""
    token_reduce: Literal["mean", "sum"] = "mean"
    """Log-ratio of a turn: mean or sum over its tokens. Sequences use the mean (GSPO eq. 7)."""
    clip: bool = True
    """False: the unclipped importance-weighted gradient."""
    clip_on: Literal["objective", "weight"] = "objective"
    """What is clipped. "objective": the loss; a ratio outside the range has no gradient (PPO).
    "weight": the ratio as a constant weight on ``-A log pi``, so that every token keeps a gradient
    (CISPO, MiniMax-M1, arXiv 2506.13585, eq. 4 and 5)."""
    clip_low: Positive | None = None
    """Ratios below 1 - this are clipped; None: 0.2, for mean ratios 3e-4 (GSPO), for weights 1: no
    lower bound (CISPO)."""
    clip_high: Positive | None = None
    """Ratios above 1 + this are clipped; None: 0.2, for mean ratios 4e-4, for weights 4: at most 5
    (ScaleRL, arXiv 2510.13786, the ``epsilon_high=5`` of TRL). DAPO: 0.28."""
    dual_clip: Annotated[float, Bounds(1, open_low=True)] | None = None
    """Bound c > 1 of the loss, in units of -A, where the advantage is negative; 3 in the paper (Ye
    et al. 2020, eq. 8) and in verl (``clip_ratio_c``). TRL's ``delta``."""
    aggregate: Aggregate = "token-mean"
    """See ``aggregation_weights``; used if no ``weight_M`` is given."""
    length_divisor: Positive | None = None
    """Constant that "seq-mean-token-sum" divides a sequence's sum by, such as the longest reply in
    tokens (Dr.GRPO's code; TRL's ``loss_type="dr_grpo"``, verl's "seq-mean-token-sum-norm"). None:
    the sum. AdamW takes the same step either way, but gradient clipping acts at another norm."""
    log_ratio_limit: Positive | None = None
    """Log-ratios are clamped to plus and minus this; None: 20, for sequences 10 (released GSPO)."""
    kl_coef: float = 0.0
    """Weight of the KL to the reference in the loss; 0: none, and no reference is needed."""
    kl_kind: KLKind = "k3"
    """"k1", "k2", "k3" or "abs"; see ``kl_estimate``."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; needs ``entropy_M``."""
    entropy_reduce: Literal["token", "turn"] = "token"
    """What the bonus averages: the entropy of tokens, or its sum over the tokens of a turn (an
    action of several tokens otherwise gets a bonus that shrinks with its length). Use "turn" with
    ``aggregate="turn-mean"`` or "batch-turn-mean": there the average is over turns."""
    sampler_cap: NonNegative | None = None
    """Cap of the weight exp(old - sampler), see ``importance_weights``; 0: no correction. None: a
    run uses 2 if the sampler is not the training model with its current weights (``rollout.ahead``;
    for losses with a ratio, vLLM), and otherwise no correction."""
    sampler_unit: SamplerUnit | None = None
    """Unit with one such weight: "token", "turn" or "sequence" (the episode); None: "token"."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        for wrong, name, why in (
            (
                self.ratio == "none" and self.dual_clip is not None,
                f"dual_clip={self.dual_clip}",
                'ratio="none" has no ratio to bound',
            ),
            (
                self.ratio == "none" and self.clip_on == "weight",
                'clip_on="weight"',
                'ratio="none" has no ratio to weigh by',
            ),
            (
                not self.clip and self.clip_on == "weight",
                'clip_on="weight"',
                "clip=False leaves nothing to clip",
            ),
            (
                self.clip_on == "weight" and self.dual_clip is not None,
                f"dual_clip={self.dual_clip}",
                'clip_on="weight" bounds the weight itself; set clip_high',
            ),
            (
                self.length_divisor is not None and self.aggregate != "seq-mean-token-sum",
                f"length_divisor={self.length_divisor}",
                f'aggregate="{self.aggregate}" is a mean already; use "seq-mean-token-sum"',
            ),
        ):
            if wrong:
                raise ConfigError(f"PolicyLossConfig.{name} has no effect: {why}.")

    @property
    def mean_ratio(self) -> bool:
        """Whether ratios are geometric means over tokens, which vary less than one token's."""
        return self.ratio == "sequence" or (self.ratio == "turn" and self.token_reduce == "mean")

    @property
    def clip_range(self) -> tuple[float, float] | None:
        """The smallest and the largest unclipped ratio; None without clipping."""
        if not self.clip or self.ratio == "none":
            return None
        if self.clip_on == "weight":
            low, high = 1.0, 4.0
        else:
            low, high = (3e-4, 4e-4) if self.mean_ratio else (0.2, 0.2)
        return (
            1.0 - (low if self.clip_low is None else self.clip_low),
            1.0 + (high if self.clip_high is None else self.clip_high),
        )

    @property
    def limit(self) -> float:
        """The clamp of log-ratios in force."""
        if self.log_ratio_limit is not None:
            return self.log_ratio_limit
        return 10.0 if self.ratio == "sequence" else 20.0


@dataclass(frozen=True, slots=True)
class ValueLossConfig(Checked):
    """Limit on how far one update may move a value."""

    clip: Positive | None = 0.5
    """Values further than this from the old ones get no gradient that increases the distance; None:
    no clip."""
