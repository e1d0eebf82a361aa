"""Credit in trees: some episodes of a group branched off others before one of their turns.

An episode that branched off another one is recorded as a whole, so what both share is in the table
twice. Two columns record what is shared: ``parent_N``, the number of the episode that it left, -1
for one that was played from the start, and ``left_N``, the turn before which it left. A parent
precedes its children. Without these columns every episode was played from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from creditrl.errors import CreditInputError
from creditrl.trainers.credit.spread import first_turns
from creditrl.types import FloatArray, IntArray, TurnTable

__all__ = ["Forest", "tree_advantage"]


@dataclass(frozen=True, slots=True)
class Forest:
    """Episodes that branched off others, and the turn before which they did."""

    parent_B: IntArray
    """Number of the episode that each of B episodes left; -1: it was played from the start."""
    left_B: IntArray
    """The first turn of its own."""

    @classmethod
    def of(cls, turns: TurnTable) -> Forest:
        """Return the trees of a table, each with a single episode unless columns say otherwise.

        Raises:
            CreditInputError: an episode precedes the one that it left, or left it after its end.
        """
        first_B, _ = first_turns(turns.episode_N)
        parent_N = turns.scores.get("parent_N", np.full(len(turns), -1))
        left_N = turns.scores.get("left_N", np.zeros(len(turns)))
        parent_B, left_B = parent_N[first_B].astype(np.int64), left_N[first_B].astype(np.int64)
        length_B = np.diff(np.append(first_B, len(turns)))
        branch_B = np.flatnonzero(parent_B >= 0)
        parent, left = parent_B[branch_B], left_B[branch_B]
        wrong = (parent >= branch_B) | (left < 0) | (left >= length_B[branch_B])
        wrong |= left >= length_B[np.minimum(parent, branch_B)]
        if wrong.any():
            bad = int(branch_B[np.flatnonzero(wrong)[0]])
            raise CreditInputError(
                f"Episode {bad} left episode {parent_B[bad]} before turn {left_B[bad]}: expected "
                "an earlier episode of the table, and a turn that both have."
            )
        return cls(parent_B, left_B)

    @property
    def root_B(self) -> IntArray:
        """Number of the episode at the root of each episode's tree."""
        root_B = np.arange(len(self.parent_B))
        for b in np.flatnonzero(self.parent_B >= 0).tolist():
            root_B[b] = root_B[self.parent_B[b]]
        return root_B

    def children(self) -> dict[tuple[int, int], list[int]]:
        """Return the episodes that left each (episode, turn), of the first episode to reach it."""
        found: dict[tuple[int, int], list[int]] = {}
        for b in np.flatnonzero(self.parent_B >= 0).tolist():
            turn, left = int(self.left_B[b]), int(self.parent_B[b])
            # The state before a branch's first own turn is its parent's.
            while turn <= self.left_B[left] and self.parent_B[left] >= 0:
                left = int(self.parent_B[left])
            found.setdefault((left, turn), []).append(b)
        return found


def tree_advantage(turns: TurnTable, shrink: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Return advantages over the ways out of states, and the weight of each turn.

    The value of a turn, ``T``, is the mean outcome of what followed it: of its episode's return if
    nothing branched off later, else the mean over the ways out of the next branched state, with
    equal weights. A way's baseline is a mean over the *other* ways out of its state, shrunk towards
    the baseline ``b'`` that led to the state::

        b = (sum of the other ways' T + shrink * b') / (their number + shrink),    A = T - b

    Other ways out of a turn's state are branches off it, and the group's other episodes that were
    played from the start and left the same state at the same turn, as all do at the first (where
    there is no ``b'``); an episode with branches there is one way, with their mean. If there is no
    other way, the baseline that led there is used.

    ``E[A | s, a] = Q(s, a) - c(s)`` with a ``c`` that does not depend on the action at ``s``, as
    long as branching before a turn depends neither on that turn's outcome nor on how many others
    branch. Weights give all ways out of a state together the weight of one, so turns count as often
    as the policy reaches them. The two keep the policy gradient unbiased.

    Args:
        turns: flat table of N turns; reads ``return_N``, ``episode_N``, ``turn_N``, ``group_N``,
            ``parent_N`` and ``left_N`` (see the module) and ``state_N``, without which states are
            equal only at the first turn.
        shrink: weight of ``b'`` in ways, at least 0.

    Returns:
        ``advantage_N`` and ``weight_N``, float32. A turn that several episodes share has the same
        advantage in all of them, and its weight is the sum over them. If nothing can be compared,
        the advantage is 0.

    Raises:
        CreditInputError: see :meth:`Forest.of`.
    """
    forest = Forest.of(turns)
    first_B, _ = first_turns(turns.episode_N)
    length_B = np.diff(np.append(first_B, len(turns)))
    return_B = np.asarray(turns.return_N, dtype=np.float64)[first_B]
    children = forest.children()
    way, place = _values(forest, children, return_B, length_B)
    key = _keys(turns)
    peers: dict[tuple[int, ...], dict[int, float]] = {}
    for b in np.flatnonzero(forest.parent_B < 0).tolist():
        for turn, value in enumerate(place[b]):
            peers.setdefault(key(int(first_B[b]) + turn), {})[b] = value
    # The baseline that led to each episode's first own turn, and the weight of its turns.
    base: dict[int, float | None] = dict.fromkeys(range(len(return_B)))
    weight_B = np.ones(len(return_B))
    advantage_N = np.zeros(len(turns))
    for b in range(len(return_B)):  # children come after their parents
        begin, left = int(first_B[b]), int(forest.left_B[b])
        if left:
            shared = int(first_B[forest.parent_B[b]])
            advantage_N[begin : begin + left] = advantage_N[shared : shared + left]
        led = base[b]
        branched = forest.parent_B[b] >= 0
        for turn in range(left, int(length_B[b])):
            own = way[b][turn - left]
            # A branch's first turn was compared at the branching point.
            if not (branched and turn == left):
                out = {b: own, **{c: way[c][0] for c in children.get((b, turn), ())}}
                others = [v for c, v in peers.get(key(begin + turn), {}).items() if c != b]
                weight_B[b] /= len(out)
                for c in reversed(out):  # itself last
                    rest = [value for other, value in out.items() if other != c]
                    base[c], weight_B[c] = _drawn(rest + others, led, shrink), weight_B[b]
                led = base[b]
            advantage_N[begin + turn] = 0.0 if led is None else own - led
    weight_N = weight_B[turns.episode_N]
    return advantage_N.astype(np.float32), weight_N.astype(np.float32)


def _keys(turns: TurnTable) -> Callable[[int], tuple[int, ...]]:
    """Return keys of the state before each row's turn within its group."""
    group_N, turn_N = turns.group_N.tolist(), turns.turn_N.tolist()
    state_N = np.arange(len(turns)) if turns.state_N is None else turns.state_N
    known_N = state_N.tolist()

    def key(row: int) -> tuple[int, ...]:
        # All episodes of a group start in the same state, even without state hashes.
        return (group_N[row], turn_N[row], known_N[row] if turn_N[row] else 0)

    return key


def _values(
    forest: Forest,
    children: dict[tuple[int, int], list[int]],
    return_B: NDArray[np.float64],
    length_B: IntArray,
) -> tuple[list[list[float]], list[list[float]]]:
    """Return T of each episode's own turns, and the mean over the ways out of their states."""
    way: list[list[float]] = [[] for _ in return_B]
    place: list[list[float]] = [[] for _ in return_B]
    for b in reversed(range(len(return_B))):
        after = float(return_B[b])
        for turn in range(int(length_B[b]) - 1, int(forest.left_B[b]) - 1, -1):
            way[b].append(after)
            ways = [after, *(way[c][0] for c in children.get((b, turn), ()))]
            after = sum(ways) / len(ways)
            place[b].append(after)
        way[b].reverse()
        place[b].reverse()
    return way, place


def _drawn(others: list[float], led: float | None, shrink: float) -> float | None:
    """Return the mean of other ways, shrunk towards the baseline that led to the state."""
    if not others:
        return led
    if led is None:
        return sum(others) / len(others)
    return (sum(others) + shrink * led) / (len(others) + shrink)
