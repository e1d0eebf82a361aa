"""Tree-GRPO: outcomes compared within a tree and over all trees, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit import turn_table
from creditrl.trainers.credit.tables import token_table
from creditrl.trainers.methods.tree_grpo import TreeGRPO, TreeGRPOConfig

# a has two turns and succeeds; c branches off before a's second turn and fails; b has two turns and
# fails.
TURNS = turn_table(
    reward=[0, 1, 0, 0, 0, 0],
    episode=["a", "a", "b", "b", "c", "c"],
    group=[0] * 6,
    scores={"parent_N": np.array([-1] * 4 + [0] * 2), "left_N": np.array([0] * 4 + [1] * 2)},
)


@pytest.mark.parametrize(
    ("divide", "within", "over"),
    [
        # a and c of one tree, 1 and 0; b alone. Over the trees 1, 0 and 0 less 1/3.
        (False, [1 / 2, 0, -1 / 2], [2 / 3, -1 / 3, -1 / 3]),
        # Over the deviations: sqrt(1/2) within the tree, sqrt(1/3) over all.
        (True, [1 / 2**0.5, 0, -1 / 2**0.5], [2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5]),
    ],
)
def test_a_tree_by_hand(divide, within, over):
    method = TreeGRPO(TreeGRPOConfig(divide_by_std=divide))
    found = method.credit(TURNS, token_table(range(6)))
    np.testing.assert_allclose(found.parts["intra"], np.repeat(within, 2), atol=1e-5)
    np.testing.assert_allclose(found.parts["inter"], np.repeat(over, 2), atol=1e-5)
    # The turn that a and c share learns from both, by its row in each.
    np.testing.assert_allclose(found.advantage_N, np.repeat(np.add(within, over), 2), atol=1e-5)
