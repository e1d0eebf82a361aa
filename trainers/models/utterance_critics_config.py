"""Settings of ArCHer's critics, apart from their code: no torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from creditrl.checked import Bounds, Checked, Count, Fraction
from creditrl.trainers.models.configs import BackboneConfig

__all__ = ["UtteranceCriticsConfig"]


@dataclass(frozen=True, slots=True)
class UtteranceCriticsConfig(Checked):
    """Q and V of whole turns, their slow copies, and the memory that they learn from."""

    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig(lr=1e-5))
    """Their network, begun as the policy (released: a RoBERTa of its own; lr 1e-5)."""
    hidden: Count | None = None
    """Width of the two hidden layers of each head; None: the network's (released)."""
    twins: Count = 2
    """Critics of each kind, of which the lowest counts; 1 is the ablation without a twin."""
    tau: Annotated[float, Bounds(0, 1, open_low=True)] = 0.1
    """Share of the live critics that a step moves into the slow copies, in (0, 1]; 1 is the
    ablation without targets: the copies are the critics."""
    returns: Fraction = 0.0
    """Weight, in [0, 1], of the discounted return that the turn's own episode had in Q's target;
    the rest is the slow copies'. At 0, the paper's, an outcome comes back by one turn as the copies
    follow once, and the first turns of long episodes learn last; at 1 nothing is bootstrapped, and
    what the memory holds is judged by the policies that collected it."""
    actions: Literal["fresh", "replayed"] = "fresh"
    """What V is the mean over: replies that the present policy is asked for, in every step anew
    (the paper), or the replies in the memory, which cost nothing and are partly of older
    policies."""
    max_new_tokens: Count | None = None
    """Most tokens of such a reply; None: as many as the longest in the memory has."""
    update: Literal["before", "after"] = "before"
    """Whether they learn from an update's turns before these are scored (the paper), or after."""
    capacity: Count = 10_000
    """Most turns in the memory (released: 10,000)."""
    batch: Count = 256
    """Turns of an optimizer step, drawn from the memory (released: 64 times 4)."""
    steps: Count = 5
    """Optimizer steps per update (released: 5, and more for games)."""
