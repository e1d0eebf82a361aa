"""Grounding: shares worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from toy_env import ToyEnv, ToyVectorEnv

from creditrl.wrappers import Grounding, VectorGrounding


def test_the_share_of_executed_actions_runs_from_the_first_action():
    env = Grounding(ToyEnv())
    _, info = env.reset(seed=0, options={"task": 5})
    assert (info["grounding_accuracy"], info["ungrounded_turns"]) == (1.0, 0)
    seen = []
    for action in ("look", "fly", "say hi", ""):
        info = env.step(action)[4]
        seen.append((info["grounding_accuracy"], info["ungrounded_turns"]))
    assert seen == [(1.0, 0), (0.5, 1), (pytest.approx(2 / 3), 1), (0.5, 2)]
    _, info = env.reset()
    assert (info["grounding_accuracy"], info["ungrounded_turns"]) == (1.0, 0)
    assert type(info["ungrounded_turns"]) is int and type(info["grounding_accuracy"]) is float


def test_it_counts_per_copy_and_continues_from_a_snapshot():
    venv = VectorGrounding(ToyVectorEnv(3))
    venv.reset(seed=0, options={"task": 5})
    venv.step(["look", "fly", "look"])
    *_, info = venv.step_some([1, 2], ["look", "fly"])
    np.testing.assert_allclose(info["grounding_accuracy"], [0.5, 0.5])
    saved = venv.snapshot([1])
    venv.step(["fly"] * 3)
    _, info = venv.restore([0], saved)
    np.testing.assert_allclose(info["grounding_accuracy"], [0.5, 1 / 3, 1 / 3])
    *_, info = venv.step(["look", "look", "look"])
    np.testing.assert_allclose(info["grounding_accuracy"], [2 / 3, 0.5, 0.5])
    assert info["ungrounded_turns"].tolist() == [1, 2, 2]
    assert info["ungrounded_turns"].dtype == np.int64


def test_finished_copies_keep_their_share():
    venv = VectorGrounding(ToyVectorEnv(2, max_turns=2))
    venv.reset(seed=0, options={"task": 5})
    venv.step(["fly", "look"])
    venv.step(["look", "look"])
    *_, info = venv.step(["fly", "fly"])
    assert info["grounding_accuracy"].tolist() == [0.5, 1.0]
