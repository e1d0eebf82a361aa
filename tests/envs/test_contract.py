"""Every environment keeps the contract, in every form that has rules of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alfworld_files import unpack_sample

from creditrl.envs.check import RULES, check

ALL = tuple(rule.name for rule in RULES)
PROCESSES = ("workers_change_nothing", "same_episode_in_any_process")
COSTLY = (*PROCESSES, "gymnasium_check_env", "renders", "takes_any_string")
"""Rules that start processes or browsers, draw, or take long."""
ONCE = (*PROCESSES, "takes_any_string", "splits_share_no_task")
"""Rules about what most options do not touch: tested with the usual ones."""


def but(*left_out: str) -> tuple[str, ...]:
    return tuple(name for name in ALL if name not in left_out)


# SOTOPIA's expert assumes alternating turns; it cannot play the other orders.
OTHER_ORDER = but(*ONCE, "expert_finishes")
# All rules: `creditrl check VirtualHome`, whose tasks take long to make.
QUICK = (
    *("registration", "info_keys_and_types", "ends_and_limits", "snapshot_continues_alike"),
    *("state_keys", "expert_finishes", "single_equals_vector"),
)
FORMS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("ALFWorld", ALL, {}),
    (
        "ALFWorld",
        but(*ONCE),
        {"size": "small", "flavour": "0.3", "exact_state": True},
    ),
    ("ALFWorld", but(*ONCE), {"size": "large", "spares": 0, "closed": 0.5, "house_seed": 3}),
    ("VisualSokoban", ALL, {}),
    ("VisualSokoban", but(*ONCE), {"observation": "image"}),
    ("VisualSokoban", but(*ONCE), {"observation": "both", "image": "tiny"}),
    ("VisualSokoban", QUICK, {"tier": "medium", "actions_per_turn": 3, "progress": True}),
    ("VisualSokoban", QUICK, {"compat": "gym-sokoban"}),
    ("VisualSokoban", (*QUICK, "takes_any_string"), {"compat": "verl-agent"}),
    ("VirtualHome", (*QUICK, "groups_stay_together"), {}),
    ("VirtualHome", QUICK, {"profile": "v1"}),
    ("VirtualHome", QUICK, {"profile": "spa"}),
    (
        "VirtualHome",
        QUICK,
        {"sight": "room", "house_seed": 2, "admissible_limit": 30, "world_without": ("CLOSE",)},
    ),
    ("SOTOPIA", ALL, {}),
    (
        "SOTOPIA",
        OTHER_ORDER,
        {"order": "simultaneous", "observation": "new", "side": 1, "visibility": "own"},
    ),
    ("SOTOPIA", OTHER_ORDER, {"order": "random", "max_turns": 7, "max_stale": 4}),
    ("WebShop", ALL, {}),
]
RARE: list[dict[str, Any]] = [
    {"compat": "upstream", "observation_mode": "text_rich", "show_attrs": True},
    {"observation_mode": "html", "goals": "human", "num_products": 200},
    {"observation_mode": "url", "num_prev_obs": 2, "num_prev_actions": 1, "goals": "mixed"},
    {"reward": "success", "shop_seed": 3, "price_seed": 5, "num_products": 300},
]


@pytest.mark.parametrize(
    ("name", "rules", "options"),
    [
        *FORMS,
        *(pytest.param("WebShop", but(*COSTLY), rare, marks=pytest.mark.slow) for rare in RARE),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else str(value).replace("'", ""),
)
def test_every_form_keeps_the_contract(name: str, rules: tuple[str, ...], options: dict[str, Any]):
    check(f"CreditRL/{name}-v0", rules=rules, **options).raise_for_failures()


UNSCORED = (
    *("ends_and_limits", "single_equals_vector", "finished_copies_wait"),
    *("partial_steps_and_clones", "autoreset_like_gymnasium"),
)
"""Rules for SOTOPIA, most of whose official scenarios cannot be scored."""
Options = Callable[[Path, Path], dict[str, Any]]
OFFICIAL: list[tuple[str, tuple[str, ...], Options]] = [
    # The sample has no valid_unseen.
    ("ALFWorld", but(*ONCE), lambda data, home: {"data_dir": str(unpack_sample(data, home))}),
    ("WebShop", but(*COSTLY), lambda data, _: {"data_dir": data / "webshop", "num_products": 1000}),
    *(
        ("SOTOPIA", UNSCORED, lambda data, _, more=more: {"data_dir": data / "sotopia", **more})
        for more in ({"split": "valid_unseen"}, {"split": "valid_unseen", "task_types": "normbank"})
    ),
]


@pytest.mark.parametrize(
    ("name", "rules", "options"), OFFICIAL, ids=["alfworld", "webshop", "sotopia", "normbank"]
)
def test_official_data_keep_the_contract(name, rules, options, test_data, tmp_path, monkeypatch):
    monkeypatch.setenv("CREDITRL_CACHE", str(tmp_path / "cache"))
    chosen = {"data": "official", **options(test_data, tmp_path)}
    check(f"CreditRL/{name}-v0", rules=rules, **chosen).raise_for_failures()
