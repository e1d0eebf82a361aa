"""Turns at which trees branch: all alike, or where the outcome is open and the rest is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from creditrl.trainers.collect.continued import Chooser, Leaf

__all__ = ["Anywhere", "WhereOpen"]

_MEMORY = 0.9
"""Share of the counts that an update leaves of what was there: the policy moves."""
_PRIOR = 2.0
"""Visits that every place counts before it has any: one success, one failure."""


class Anywhere(Chooser):
    """Branches behind turns that are drawn uniformly, equally many in each tree and round.

    Args:
        nodes: turns that are drawn in a tree, fewer where it has fewer that something follows.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes

    def choose(
        self, leaves: Sequence[Leaf], round_number: int, rng: np.random.Generator
    ) -> list[tuple[int, int]]:
        """Return the places behind the drawn turns of each tree."""
        root: list[int] = []
        behind: dict[int, list[tuple[int, int]]] = {}
        for b, leaf in enumerate(leaves):
            root.append(b if leaf.parent < 0 else root[leaf.parent])
            if not leaf.trajectory.error:
                turns = range(leaf.left + 1, len(leaf.trajectory.turns))
                behind.setdefault(root[b], []).extend((b, turn) for turn in turns)
        spots = []
        for places in behind.values():
            drawn = rng.permutation(len(places))[: self.nodes]
            spots += [places[k] for k in sorted(drawn.tolist())]
        return spots


class WhereOpen(Chooser):
    """Branches where success is a matter of chance and what is left of the episode is short.

    Of places with outcome variances ``p (1 - p)`` and costs ``c``, samples serve most where they
    are drawn in proportion to ``sqrt(p (1 - p) / c)`` (Neyman 1934, with costs). ``p`` and ``c``,
    the turns to the end, are averages over earlier updates of the places at the same turn of
    episodes as many of whose group's *other* members succeeded. Each place is drawn by itself.

    So whether an episode is left before a turn depends on earlier updates and on other episodes,
    never on what came of that turn, which is what keeps the gradient unbiased.

    Args:
        turns: turns that branches have for each turn of the groups' episodes, on average and as far
            as earlier updates tell.
        ways: branches out of a place that is drawn.
        max_turns: of the environment.
    """

    def __init__(self, turns: float, ways: int, max_turns: int) -> None:
        self.turns = turns
        self.ways = ways
        self._counts: dict[tuple[int, int], list[float]] = {}
        """By (turn, other successes): visits, successes and turns to the end."""
        self._cost = max_turns / 2
        """Turns to the end of a place that nothing is known of."""
        self._scale = self._score(0.5, self._cost) * self._cost
        """Mean of score times cost over places."""

    def choose(
        self, leaves: Sequence[Leaf], round_number: int, rng: np.random.Generator
    ) -> list[tuple[int, int]]:
        """Return the drawn places, each as often as there are ways; none are an episode's first.

        Out of the first state the group has several ways as it is.
        """
        spots = []
        for b, others in enumerate(_others(leaves)):
            for turn in range(1, len(leaves[b].trajectory.turns)):
                chance = self.turns * self._score(*self._known(turn, others))
                if rng.random() < chance / (self.ways * self._scale):
                    spots += [(b, turn)] * self.ways
        return spots

    def learn(self, leaves: Sequence[Leaf]) -> None:
        """Count the places of an update, and what came of them."""
        for count in self._counts.values():
            count[:] = [_MEMORY * value for value in count]
        roots = [b for b, leaf in enumerate(leaves) if leaf.parent < 0]
        key_of = dict(zip(roots, _others([leaves[b] for b in roots]), strict=True))
        products = []
        for b, leaf in enumerate(leaves):
            length = len(leaf.trajectory.turns)
            own = leaf.parent < 0
            for turn in range(1, length) if own else (leaf.left,):
                count = self._counts.setdefault(
                    (turn, key_of[b if own else leaf.parent]), [0.0, 0.0, 0.0]
                )
                count[0] += 1.0
                count[1] += leaf.trajectory.success
                count[2] += length - turn
        for b, other in key_of.items():
            for turn in range(1, len(leaves[b].trajectory.turns)):
                chance, cost = self._known(turn, other)
                products.append(self._score(chance, cost) * cost)
        if products:
            self._scale = float(np.mean(products))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain lists."""
        return {
            "counts": [[*key, *count] for key, count in self._counts.items()],
            "scale": self._scale,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        self._counts = {(int(t), int(o)): list(count) for t, o, *count in state["counts"]}
        self._scale = float(state["scale"])

    def _known(self, turn: int, others: int) -> tuple[float, float]:
        """Return the chance of success at a place, and the turns to the end."""
        visits, wins, left = self._counts.get((turn, others), (0.0, 0.0, 0.0))
        whole = visits + _PRIOR
        return (wins + _PRIOR / 2) / whole, (left + _PRIOR * self._cost) / whole

    @staticmethod
    def _score(chance: float, cost: float) -> float:
        return math.sqrt(chance * (1.0 - chance) / cost)


def _others(leaves: Sequence[Leaf]) -> list[int]:
    """Return how many other members of its group succeeded, of each episode of a group."""
    won: dict[int, int] = {}
    for leaf in leaves:
        group = leaf.trajectory.group
        won[group] = won.get(group, 0) + leaf.trajectory.success
    return [won[leaf.trajectory.group] - leaf.trajectory.success for leaf in leaves]
