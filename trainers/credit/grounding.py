"""Penalty for actions that could not be executed.

Source: the invalid-action penalty of GiGPO (Feng et al. 2025), iStar (2509.19199) and 3SPO
(2606.09961): -0.1 on the turn. It is a credit of that turn alone, not discounted backwards, and it
lives on the credit side only: environments report, they do not punish.
"""

from __future__ import annotations

import numpy as np

from creditrl.types import FloatArray, TurnTable

__all__ = ["invalid_action_penalty"]


def invalid_action_penalty(turns: TurnTable, coefficient: float) -> FloatArray:
    """Return ``-coefficient`` on turns whose action was not executed, 0 elsewhere.

    Args:
        turns: flat table of N turns; reads ``grounded_N``.
        coefficient: penalty, 0 or more; 0.1 in the three papers.

    Returns:
        ``penalty_N`` float32, to be added to the turn's advantage.
    """
    grounded_N = turns.require("grounded_N", hint="every turn table has it")
    return np.where(grounded_N, 0.0, -coefficient).astype(np.float32)
