"""Tables from lists and arrays: defaults, and what is refused."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from creditrl.errors import CreditInputError
from creditrl.trainers.credit import token_table, turn_table


@pytest.mark.parametrize("module", ["creditrl.trainers.credit", "creditrl.trainers.credit.tables"])
def test_the_docstring_examples_hold(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


def test_rewards_and_episodes_are_enough():
    table = turn_table(reward=[0, 2, 1], episode=["late", "late", "early"])
    assert table.episode_N.tolist() == [0, 0, 1]  # in the order in which they come
    assert table.episode_ids == ("late", "early") and table.num_episodes == 2
    assert table.turn_N.tolist() == [0, 1, 0]
    assert table.return_N.tolist() == [2, 2, 1]
    assert table.group_N.tolist() == table.task_N.tolist() == [0, 0, 0]
    assert table.grounded_N.all() and not table.success_N.any() and not table.truncated_N.any()
    assert table.state_N is None and not table.scores
    # Groups are tasks where nothing else is said.
    assert turn_table([0, 0], [0, 1], group=[3, 5]).task_N.tolist() == [3, 5]
    # Labels may come as objects: a column of strings in a data frame.
    assert turn_table([1, 2], np.array(["a", "b"], dtype=object)).episode_ids == ("a", "b")


def test_every_column_can_be_given():
    table = turn_table(
        np.array([0.5, 1.5]),
        np.array([7, 9]),
        group=["b", "a"],
        task=[4, 4],
        state=["hall", "hall"],
        grounded=[0, 1],
        success=[True, False],
        truncated=[False, True],
        scores={"progress_N": [0.1, 0.2], "segment_N": [0, 1]},
    )
    assert table.episode_N.tolist() == [0, 1] and table.episode_ids == ("7", "9")
    assert table.group_N[0] != table.group_N[1] and table.task_N.tolist() == [4, 4]
    assert table.state_N is not None and table.state_N[0] == table.state_N[1]
    assert table.grounded_N.tolist() == [False, True] == table.truncated_N.tolist()
    assert table.success_N.tolist() == [True, False]
    assert table.require("progress_N", hint="").tolist() == [0.1, 0.2]
    assert table.scores["segment_N"].dtype == np.int64  # numbers of segments are no measures


def test_a_table_can_have_no_turns():
    table = turn_table([], [])
    assert len(table) == table.num_episodes == 0
    assert table.return_N.dtype == table.reward_N.dtype
    assert len(token_table([])) == 0


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"reward": [1, 2, 3]}, r"reward has shape \(3,\): expected \(2,\), one value per row"),
        ({"reward": [1, np.nan]}, "reward is nan at row 1, in episode b: expected finite"),
        ({"reward": [1, "much"]}, "reward cannot be made a flat array: .*'much'"),
        ({"reward": [[1], [2]]}, r"reward has shape \(2, 1\)"),
        ({"episode": [[0, 1]]}, r"episode has shape \(1, 2\): expected a flat array"),
        ({"episode": [0.0, 0.5]}, "episode has dtype float64: expected integers or strings"),
        ({"state": [None, 1]}, "state has dtype object: expected integers or strings"),
        ({"success": [1, 0.4]}, "success is 0.4 at row 1: expected True or False"),
        ({"grounded": [-1, 0]}, "grounded is -1 at row 0"),
        ({"scores": {"progress_N": [0, np.inf]}}, "progress_N is inf at row 1, in episode b"),
        ({"truncated": [True]}, r"truncated has shape \(1,\)"),
    ],
)
def test_a_bad_column_is_a_one_line_error(columns, said):
    with pytest.raises(CreditInputError, match=said) as caught:
        turn_table(**{"reward": [0, 1], "episode": ["a", "b"], **columns})
    assert "\n" not in str(caught.value)


def test_the_turns_of_an_episode_must_be_contiguous():
    with pytest.raises(CreditInputError, match="episode a continues at row 2"):
        turn_table([0, 0, 0, 0], ["a", "b", "a", "a"])


@pytest.mark.parametrize("name", ["group", "task", "success", "truncated"])
def test_per_episode_columns_must_be_constant_within_an_episode(name):
    said = rf"{name} changes from (0|False) to (1|True) at row 2, within episode 5"
    with pytest.raises(CreditInputError, match=said):
        turn_table([0, 0, 0], [4, 5, 5], **{name: [1, 0, 1]})


def test_a_token_table_has_only_the_given_columns():
    table = token_table([0, 0, 2], value=[1, 2, 3], scores={"implicit_M": [0, 0, 1]})
    assert table.turn_M.tolist() == [0, 0, 2]
    assert table.value_M is not None and table.value_M.tolist() == [1, 2, 3]
    assert table.old_logprob_M is None and table.ref_logprob_M is None
    assert table.require("implicit_M", hint="").tolist() == [0, 0, 1]
    # What reads log-probabilities that nobody gave says so.
    with pytest.raises(CreditInputError, match="logprob_M"):
        table.require("logprob_M", hint="")
    whole = token_table([0], logprob=[-1], old_logprob=[-2], ref_logprob=[-3])
    assert (whole.logprob_M, whole.old_logprob_M, whole.ref_logprob_M) == ([-1], [-2], [-3])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"turn": [1, 0]}, "turn falls from 1 to 0"),
        ({"turn": [-1, 0]}, "turn begins at -1: expected row numbers"),
        ({"value": [1]}, r"value has shape \(1,\): expected \(2,\)"),
        ({"logprob": [0, np.nan]}, "logprob is nan at row 1, in turn 4"),
        ({"scores": {"implicit_M": [np.nan, 0]}}, "implicit_M is nan at row 0, in turn 3"),
    ],
)
def test_a_bad_column_of_tokens_is_named(columns, said):
    with pytest.raises(CreditInputError, match=said):
        token_table(**{"turn": [3, 4], **columns})
