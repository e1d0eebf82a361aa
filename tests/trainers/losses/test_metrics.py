from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from creditrl.trainers.losses.metrics import add_metrics, mean_metrics  # noqa: E402


def means(**sums: float) -> dict[str, float]:
    return mean_metrics(
        {name: torch.tensor(value, dtype=torch.float64) for name, value in sums.items()}
    )


def test_sums_are_divided_by_their_own_counts():
    found = means(
        tokens=8, units=4, turns=2, loss=3, loss_kl=1, ratio_sum=6, ratio_max=5, entropy_sum=12
    )
    assert found == {
        "loss": 3,
        "loss_kl": 1,
        "ratio": 1.5,
        "ratio_max": 5,
        "entropy": 1.5,
        "entropy_per_turn": 6,
    }
    assert "entropy_per_turn" not in means(tokens=8, entropy_sum=12)
    assert "entropy_per_turn" not in means(tokens=8, turns=2)
    assert means() == {}
    assert math.isnan(means(tokens=0, units=0, ratio_sum=0)["ratio"])


def test_parts_are_added_and_maxima_kept():
    first = {"ratio_max": torch.tensor(3.0), "ratio_sum": torch.tensor(4.0)}
    second = {"ratio_max": torch.tensor(2.0), "ratio_sum": torch.tensor(5.0)}
    assert add_metrics([first, second]) == {"ratio_max": 3, "ratio_sum": 9}
    assert add_metrics([]) == {}


def explained(spread: float, tokens: int = 4) -> float:
    """Of targets with mean 1 and a given variance, and errors of mean square 1/4."""
    return means(
        tokens=tokens,
        squared_error_sum=tokens / 4,
        error_sum=0,
        target_sum=tokens,
        target_square_sum=tokens * (1 + spread),
    )["explained_variance"]


def test_targets_equal_up_to_rounding_have_no_explained_variance():
    # The border is 1e-7 of the mean square.
    assert explained(1.5e-7) == pytest.approx(1 - 0.25 / 1.5e-7, rel=1e-4)
    assert math.isnan(explained(0.5e-7))
    assert "explained_variance" not in means(tokens=0, target_square_sum=0)
