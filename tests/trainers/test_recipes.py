"""Every recipe of the package is complete and fits its method and environment."""

from __future__ import annotations

import pytest

from creditrl.config import find_recipe, known_recipes, read_toml
from creditrl.trainers.config import resolve


@pytest.mark.parametrize("name", known_recipes())
def test_a_recipe_resolves(name):
    config = resolve(read_toml(find_recipe(f"@{name}")), [], f"recipe {name}", "creditrl train")
    assert config.run.name != "run", "a recipe names its runs"
    assert config.env.options.split == "train"
    assert config.eval.split != "train"
    assert config.eval.split != config.eval.validation_split


def test_the_quick_start_reports_what_it_promises():
    config = resolve(read_toml(find_recipe("@quickstart")), [], "quickstart", "creditrl train")
    assert config.eval.levels >= 256 and config.eval.greedy
    assert config.compare.clone_same_time and config.policy.model == "small"
