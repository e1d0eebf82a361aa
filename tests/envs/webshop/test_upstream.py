"""Walks through upstream's own pages, recorded, and walked again here byte for byte.

The records hold hashes only; ``tests/record_webshop.py`` makes them.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import gymnasium as gym
import numpy as np
from shops import ODD_GOALS, odd_shop

from creditrl.envs.base import TextEnv
from creditrl.envs.webshop.bench_upstream import DIGEST, MODES, Moment, digest
from creditrl.envs.webshop.bench_walk import Walk
from creditrl.envs.webshop.engine import WebShopEngine
from creditrl.envs.webshop.goals import Goal
from creditrl.envs.webshop.official import official_goals
from creditrl.envs.webshop.pages import Rules, clickables
from creditrl.types import Task

RECORDS = Path(__file__).parents[2] / "golden"


class Shopper(Protocol):
    """Our shop in every mode of observation."""

    def reset(self, task: Task) -> Moment: ...

    def step(self, action: str) -> Moment: ...


class EngineShopper:
    """The engine itself, over a shop of the tests."""

    def __init__(self, show_attrs: bool) -> None:
        rules = Rules("upstream", show_attrs)
        self.engines = [WebShopEngine(1, odd_shop(), rules, mode=mode) for mode in MODES]
        self.one = np.zeros(1, dtype=np.int64)

    def reset(self, task: Task) -> Moment:
        for engine in self.engines:
            engine.begin(self.one, [task], [0])
        return self.moment(0.0, False)

    def step(self, action: str) -> Moment:
        effects = [engine.act(self.one, [action]) for engine in self.engines]
        return self.moment(float(effects[0].reward_K[0]), bool(effects[0].terminated_K[0]))

    def moment(self, reward: float, over: bool) -> Moment:
        shown = [engine.view(self.one).text_K[0] for engine in self.engines]
        return Moment(*shown, listed(self.engines[0]), reward, over)


class EnvShopper:
    """The environment, over upstream's products."""

    def __init__(self, show_attrs: bool, folder: Path) -> None:
        self.envs: list[gym.Env[str, str]] = [
            gym.make(
                "CreditRL/WebShop-v0",
                data="official",
                data_dir=folder,
                num_products=1000,
                compat="upstream",
                observation_mode=mode,
                show_attrs=show_attrs,
                max_turns=1000,
            )
            for mode in MODES
        ]

    def reset(self, task: Task) -> Moment:
        return self.moment([env.reset(options={"task": task})[0] for env in self.envs], 0.0, False)

    def step(self, action: str) -> Moment:
        steps = [env.step(action) for env in self.envs]
        assert len({step[1:4] for step in steps}) == 1
        return self.moment([step[0] for step in steps], float(steps[0][1]), steps[0][2])

    def moment(self, shown: list[str], reward: float, over: bool) -> Moment:
        inner = self.envs[0].unwrapped
        assert isinstance(inner, TextEnv) and isinstance(inner.copies.engine, WebShopEngine)
        return Moment(*shown, listed(inner.copies.engine), reward, over)


def listed(engine: WebShopEngine) -> tuple[str, ...]:
    return clickables(engine.shop, engine.rules, engine.page(0))


def replay(name: str, shopper_of: Callable[[bool], Shopper], goals: Sequence[Goal]) -> None:
    """Walk every recorded episode again; what is shown must be what upstream showed."""
    record = json.loads(lzma.decompress((RECORDS / name).read_bytes()))
    shoppers = {on: shopper_of(on) for on in (False, True)}
    steps = bought = 0
    pages: set[str] = set()
    for episode in record["episodes"]:
        number, seed = episode["session"], episode["seed"]
        goal = goals[number]
        task = Task(f"all/{number}", "synthetic", "all", number, goal.instruction, data=goal)
        shopper, walk = shoppers[episode["show_attrs"]], Walk(seed)
        moment, action, actions = shopper.reset(task), None, []
        wanted = episode["digests"]
        for at in range(0, len(wanted), DIGEST):
            if at:
                action = walk.action(moment.text, moment.clickables)
                assert action is not None
                actions.append(action)
                moment = shopper.step(action)
            found = digest(action, moment)
            assert found == wanted[at : at + DIGEST], (number, seed, actions[-3:], moment)
            pages.add(moment.url.split("/")[3])
        steps += len(actions)
        bought += moment.done
    # The walks go everywhere.
    assert steps > 5000 and bought > 50
    assert {"search_results", "item_page", "item_sub_page", "done"} <= pages


def test_pages_of_odd_products_are_upstreams_byte_for_byte() -> None:
    replay("webshop_odd.json.xz", EngineShopper, ODD_GOALS)


def test_pages_of_real_products_are_upstreams_byte_for_byte(test_data: Path) -> None:
    folder = test_data / "webshop"
    goals = official_goals("synthetic", data_dir=folder, num_products=1000)
    replay("webshop_upstream.json.xz", lambda on: EnvShopper(on, folder), goals)
