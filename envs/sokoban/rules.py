"""Sokoban's rules on many rooms at once.

Rules, rewards and the nine integer actions are those of gym-sokoban 0.0.6 (Schrader 2018),
compared step by step in ``tests/conformance/test_gym_sokoban.py``. One difference: gym-sokoban
starts counting boxes on targets at 0, so a level that begins with a box on a target pays +1 for
nothing on its first step; here the count begins right.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from creditrl.types import FloatArray, IntArray

__all__ = [
    "ACTION_WORDS",
    "BOX",
    "BOX_ON_TARGET",
    "CAN_MOVE",
    "CAN_PUSH",
    "DIRECTIONS",
    "FLOOR",
    "PLAYER",
    "PLAYER_ON_TARGET",
    "STEP_REWARD",
    "TARGET",
    "WALL",
    "RoomsStep",
    "can_do",
    "step_rooms",
    "step_rewards",
]

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
"""Cell codes. 0 to 5 are gym-sokoban's; it shows a player on a target as 6 too."""

ACTION_WORDS = (
    "no operation",
    "push up",
    "push down",
    "push left",
    "push right",
    "move up",
    "move down",
    "move left",
    "move right",
)
"""gym-sokoban's names of its integer actions 0 to 8. A push without a box is a plain move."""

DIRECTIONS = ("up", "down", "left", "right")
"""The order of directions everywhere."""

STEP_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0
CAN_PUSH, CAN_MOVE = 1, 2

# What a step does depends on three cells: where the player stands, the next one, the one beyond.


def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8]]:
    """Return (the three cells after [3, 294], change [294], boxes gained [294]).

    A row number is ``((move_only * 3 + standing - 4) * 7 + next) * 7 + beyond``; standing is 5 or 6
    (4 never occurs and keeps the arithmetic to one subtraction).
    """
    after = np.zeros((3, 2, 3, 7, 7), dtype=np.uint8)
    change = np.zeros((2, 3, 7, 7), dtype=np.uint8)
    gained = np.zeros((2, 3, 7, 7), dtype=np.int8)
    leave = {PLAYER: FLOOR, PLAYER_ON_TARGET: TARGET}
    enter = {
        FLOOR: PLAYER,
        TARGET: PLAYER_ON_TARGET,
        BOX: PLAYER,
        BOX_ON_TARGET: PLAYER_ON_TARGET,
    }
    arrive = {FLOOR: BOX, TARGET: BOX_ON_TARGET}
    for move_only in (0, 1):
        for standing in (PLAYER, PLAYER_ON_TARGET):
            for near in range(7):
                for far in range(7):
                    at = (move_only, standing - 4, near, far)
                    cells = (standing, near, far)
                    if near in (FLOOR, TARGET):
                        cells = (leave[standing], enter[near], far)
                        change[at] = 1
                    elif near in (BOX, BOX_ON_TARGET) and far in arrive and not move_only:
                        cells = (leave[standing], enter[near], arrive[far])
                        change[at] = 2
                        gained[at] = (far == TARGET) - (near == BOX_ON_TARGET)
                    for which, cell in enumerate(cells):
                        after[(which, *at)] = cell
    return after.reshape(3, -1), change.reshape(-1), gained.reshape(-1)


_AFTER, _CHANGE, _GAINED = _tables()
_STANDING_AFTER, _NEAR_AFTER, _FAR_AFTER = (np.ascontiguousarray(row) for row in _AFTER)
_MOVE_ONLY = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int64) * (3 * 49)
_CAN = np.array(
    [
        CAN_PUSH | CAN_MOVE
        if near in (FLOOR, TARGET)
        else CAN_PUSH * int(_CHANGE[(1 * 7 + near) * 7 + far] == 2)
        for near in range(7)
        for far in range(7)
    ],
    dtype=np.uint8,
)
# Reward by gained + 1 + 3 * solved, summed in gym-sokoban's order, so the floats are equal.
_REWARD = np.array(
    [
        STEP_REWARD + gained * BOX_REWARD + solved * SOLVED_REWARD
        for solved in (0, 1)
        for gained in (-1, 0, 1)
    ]
)


class RoomsStep(NamedTuple):
    """What :func:`step_rooms` did in K rooms."""

    player_K: IntArray
    """The player's cell now."""
    change_K: NDArray[np.uint8]
    """0 nothing moved, 1 the player moved, 2 the player pushed a box."""
    gained_K: NDArray[np.int8]
    """Boxes on targets gained: -1, 0 or 1."""
    far_K: IntArray
    """The cell two ahead of where the player stood: where a pushed box lies now."""


def step_rooms(
    cells: NDArray[np.uint8],
    start_K: IntArray,
    player_K: IntArray,
    action_K: IntArray,
    stride: int,
) -> RoomsStep:
    """Do one integer action in each of K rooms, in place.

    Args:
        cells: flat memory of all rooms, one cell code per byte. Around every room there are two
            rows of wall above and below and one column of wall between rows (see
            ``rooms.RoomLayout``), so what is read lies in range.
        start_K: where each room's cell 0 lies in ``cells``.
        player_K: the player's cell in each room.
        action_K: 0 to 8, as :data:`ACTION_WORDS`; 1-4 push or move, 5-8 only move.
        stride: cells from one row to the next.

    Returns:
        :class:`RoomsStep`; ``player_K`` itself is not written to.
    """
    delta_K = _deltas(stride).take(action_K)
    next_K = player_K + delta_K
    far_K = next_K + delta_K
    at_player_K, at_next_K, at_far_K = start_K + player_K, start_K + next_K, start_K + far_K
    rule_K = cells.take(at_player_K).astype(np.int64)
    rule_K -= 4
    rule_K *= 7
    rule_K += cells.take(at_next_K)
    rule_K *= 7
    rule_K += cells.take(at_far_K)
    rule_K += _MOVE_ONLY.take(action_K)
    change_K = _CHANGE.take(rule_K)
    # With "no operation" all three are one cell, and each table gives it back.
    cells[at_far_K] = _FAR_AFTER.take(rule_K)
    cells[at_next_K] = _NEAR_AFTER.take(rule_K)
    cells[at_player_K] = _STANDING_AFTER.take(rule_K)
    return RoomsStep(np.where(change_K, next_K, player_K), change_K, _GAINED.take(rule_K), far_K)


def step_rewards(gained_K: NDArray[np.int8], solved_K: NDArray[np.bool_]) -> FloatArray:
    """Return -0.1, plus 1 for a box gained or -1 for one lost, plus 10 where all are on targets."""
    return _REWARD.take(gained_K + 1 + 3 * solved_K)


def can_do(
    cells: NDArray[np.uint8], start_K: IntArray, player_K: IntArray, stride: int
) -> NDArray[np.uint8]:
    """Return what would change the world in each direction, [K, 4]: bits CAN_PUSH and CAN_MOVE.

    CAN_PUSH stands for the actions 1-4, which push or move; CAN_MOVE for 5-8, which only move.
    """
    near_far_K8 = cells.take((start_K + player_K)[:, None] + _looks(stride))
    # At most 6 * 7 + 6, so bytes do.
    return _CAN.take(near_far_K8[:, :4] * np.uint8(7) + near_far_K8[:, 4:])


@functools.cache
def _deltas(stride: int) -> IntArray:
    """Return how far each of the nine actions goes, in cells."""
    steps = [-stride, stride, -1, 1]
    return np.array([0, *steps, *steps], dtype=np.int64)


@functools.cache
def _looks(stride: int) -> IntArray:
    """Return the offsets of the four neighbours and of the four cells beyond them."""
    ahead = _deltas(stride)[1:5]
    return np.concatenate([ahead, 2 * ahead])
