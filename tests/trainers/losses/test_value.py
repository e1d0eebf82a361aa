from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from creditrl.errors import ConfigError, CreditInputError  # noqa: E402
from creditrl.trainers.losses.config import ValueLossConfig  # noqa: E402
from creditrl.trainers.losses.metrics import add_metrics, mean_metrics  # noqa: E402
from creditrl.trainers.losses.value import value_loss  # noqa: E402


@pytest.mark.parametrize(
    ("value", "old", "target", "expected", "slope", "clipped"),
    [
        # Row 0 moved from 0 to 2, clip 0.5 holds it at 0.5. Target 2: errors 0 and -1.5; the larger
        # is 2.25. Row 1 did not move: (1 - 3)^2 = 4. The clipped row has no gradient.
        ([2.0, 1.0], [0.0, 1.0], [2.0, 3.0], 0.5 * 6.25 / 2, [0.0, -1.0], 0.5),
        # A value that left the target 0: 3 is further away than 0.5, so nothing is clipped.
        ([3.0], [0.0], [0.0], 0.5 * 9, [3.0], 0),
        # A step down is clipped like a step up: from 0 to -2, held at -0.5.
        ([-2.0], [0.0], [-2.0], 0.5 * 2.25, [0.0], 1),
        # Unclipped: 0.5 * (0 + 4) / 2.
        ([2.0, 1.0], None, [2.0, 3.0], 1.0, [0.0, -1.0], None),
    ],
)
def test_value_loss_by_hand(value, old, target, expected, slope, clipped):
    value_M = torch.tensor(value, requires_grad=True)
    cfg = ValueLossConfig() if old else ValueLossConfig(clip=None)
    loss, metrics = value_loss(value_M, old and torch.tensor(old), torch.tensor(target), cfg)
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert value_M.grad.tolist() == slope
    assert mean_metrics(metrics).get("value_clipped") == clipped
    assert not any(figure.requires_grad for figure in metrics.values())


def test_explained_variance():
    # Targets 0, 2 (variance 1), values off by -0.5 and +0.5: residual variance 0.25.
    value, target = torch.tensor([0.5, 1.5]), torch.tensor([0.0, 2.0])
    _, metrics = value_loss(value, value, target, ValueLossConfig())
    assert mean_metrics(metrics)["explained_variance"] == pytest.approx(0.75)
    # With means other than 0: targets 1, 3, 8, errors 1, 0, -0.5.
    target, error = np.array([1.0, 3, 8]), np.array([1.0, 0, -0.5])
    value = torch.tensor(target + error, dtype=torch.float32)
    _, metrics = value_loss(value, value, torch.tensor(target), ValueLossConfig())
    expected = 1 - error.var() / target.var()
    assert mean_metrics(metrics)["explained_variance"] == pytest.approx(expected, rel=1e-5)
    _, metrics = value_loss(value[:2], value[:2], torch.ones(2), ValueLossConfig())
    assert math.isnan(mean_metrics(metrics)["explained_variance"])


def test_micro_batches_of_the_value_loss_add_up():
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randn(10, generator=generator)  # noqa: E731
    value, old, target, weight = draw().requires_grad_(), draw(), draw(), draw().abs()
    loss, metrics = value_loss(value, old, target, ValueLossConfig(), weight_M=weight)
    whole = torch.autograd.grad(loss, value)[0]
    parts = []
    for rows in (slice(0, 3), slice(3, 4), slice(4, 10)):
        part, sums = value_loss(
            value[rows], old[rows], target[rows], ValueLossConfig(), weight_M=weight[rows]
        )
        part.backward()
        parts.append(sums)
    torch.testing.assert_close(value.grad, whole)
    assert mean_metrics(add_metrics(parts)) == pytest.approx(mean_metrics(metrics), rel=1e-5)


def test_no_rows_give_no_loss():
    empty = torch.zeros(0, requires_grad=True)
    loss, _ = value_loss(empty, empty, empty, ValueLossConfig())
    loss.backward()
    assert loss.item() == 0 and empty.grad.shape == (0,)


NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "old", "target", "weight", "said"),
    [
        ([0.0], None, [0.0], None, "old_value_M"),
        ([0.0], [0.0], [0.0, 0.0], None, "target_M has shape"),
        ([0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, NAN], "not finite at row 1: value 0"),
        ([0.0, NAN], [0.0, 0.0], [0.0, 0.0], None, "row 1: value nan"),
    ],
)
def test_mismatched_columns_are_named(value, old, target, weight, said):
    columns = [column and torch.tensor(column) for column in (value, old, target, weight)]
    with pytest.raises(CreditInputError, match=said):
        value_loss(*columns[:3], ValueLossConfig(), weight_M=columns[3])
    with pytest.raises(ConfigError, match="clip"):
        ValueLossConfig(clip=0)
