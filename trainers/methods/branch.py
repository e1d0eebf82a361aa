"""Branch: groups whose episodes branch where the outcome is uncertain; all branches are trained on.

A method of this project. Besides its episodes, a group has branches: they leave an episode before a
turn where success is uncertain and little is left to play
(:class:`~creditrl.trainers.collect.branching.WhereOpen`), and are played to the end.

Estimator. With ``T`` the mean outcome of all that followed a turn, branches included, ``b`` the
mean over the other ways out of the same state, including members that reached it at the same turn,
shrunk towards the baseline of the way that led there, and ``w`` the turn's share of the ways out of
every state before it::

    g = sum over turns of w * grad log pi(a | s) * (T - b)

It is unbiased for the gradient of the expected undiscounted return, times the episodes of a group:
which turns are branched at depends on earlier updates and on other members' outcomes, ``T`` is then
a mean of continuations from ``(s, a)``, ``b`` one of continuations that ``a`` had no part in, and
``w`` gives all ways out of a state together the weight with which the policy reaches it. (One bias
is left, as in every mean over tokens: the division by the batch's number of turns.) See
:func:`creditrl.trainers.credit.branches.tree_advantage`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from creditrl.checked import Checked, Count, NonNegative
from creditrl.trainers.collect.base import CollectContext, Collector
from creditrl.trainers.collect.branching import WhereOpen
from creditrl.trainers.collect.continued import ForestCollector
from creditrl.trainers.credit.branches import tree_advantage
from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.methods.base import PPO_LOSS, Method, credit_of_parts, register_method
from creditrl.trainers.space import COMMON, PENALTY, one_of
from creditrl.types import Credit, StateSource, TokenTable, TurnTable

__all__ = ["Branch", "BranchConfig"]


@dataclass(frozen=True, slots=True)
class BranchConfig(Checked):
    """Branch's numbers."""

    members: Count | None = None
    """Episodes of a group that are played from the start; None: ``rollout.group_size``."""
    turns: NonNegative = 0.5
    """Turns of branches per turn of these, on average."""
    ways: Count = 1
    """Branches out of a state at which episodes branch."""
    anchor: StateSource | None = "state"
    """What identifies a state within a group at one turn; None: only first states are equal."""
    shrink: NonNegative = 1.0
    """Weight of the baseline of the way that led to a state, in ways out of that state."""
    invalid_penalty: float = 0.0
    """Subtracted from the advantage of turns whose action was not executed."""
    loss: PolicyLossConfig = PPO_LOSS
    """Clip 0.2 at token level; other aggregates weigh turns by their episode's length."""


@register_method(
    "branch",
    config=BranchConfig,
    kind="group",
    granularity="turn",
    reward_source="outcomes of ways out of a state",
    paper="CreditRL",
)
class Branch(Method[BranchConfig]):
    """Groups that branch where the outcome is uncertain."""

    plays_on = True
    space = {
        **COMMON,
        "method.turns": one_of(0.25, 0.5, 1.0, 2.0),
        "method.ways": one_of(1, 2, 4),
        "method.invalid_penalty": PENALTY,
    }

    def collector(self, context: CollectContext) -> Collector:
        """Return a collector that branches."""
        cfg = self.config
        return ForestCollector(
            context, cfg.members, lambda limit: WhereOpen(cfg.turns, cfg.ways, limit)
        )

    def credit(self, turns: TurnTable, tokens: TokenTable) -> Credit:
        """Return advantages over the ways out of states, and the weights of turns."""
        cfg = self.config
        way_N, weight_N = tree_advantage(turns, cfg.shrink)
        credit = credit_of_parts(self.name, turns, cfg.invalid_penalty, way=way_N)
        return replace(credit, weight_N=weight_N / weight_N.mean())
