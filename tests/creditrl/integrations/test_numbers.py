"""Trainers of numbers: the guide's example trains, and TorchRL makes every environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from creditrl.envs.register import ENVIRONMENTS

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "environments.md"


def example() -> str:
    (code,) = re.findall(
        r"<!-- run by: integrations -->\n```python\n(.*?)```", GUIDE.read_text("utf-8"), re.S
    )
    return str(code)


@pytest.mark.reference("stable_baselines3")
@pytest.mark.reference("torchrl")
@pytest.mark.filterwarnings("ignore")
def test_the_example_trains():
    code = example()
    for old, new in (
        ('"CnnPolicy", sokoban()', '"CnnPolicy", sokoban(), n_steps=8, batch_size=8'),
        ("100_000", "16"),
    ):
        assert old in code
        code = code.replace(old, new)
    exec(compile(code, "environments.md", "exec"), {})


@pytest.mark.reference("torchrl")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENVIRONMENTS, ids=lambda entry: entry.id)
def test_torchrl_makes_every_environment(entry: Any):
    from torchrl.envs import GymEnv

    env = GymEnv(entry.id)
    text = env.reset()["observation"]
    assert isinstance(text, str) and len(text) > 10
    env.close()


def test_numbered_moves_need_no_other_package():
    code = re.sub(r"from (stable_baselines3|torchrl.*) import .*\n", "", example())
    names: dict[str, Any] = {}
    exec(compile(code[: code.index("PPO(")], "environments.md", "exec"), names)
    env = names["sokoban"]()
    picture, _ = env.reset(seed=0)
    assert picture.shape == (96, 96, 3) and picture in env.observation_space
    assert env.step(env.action_space.sample())[4]["grounded"] in (True, False)
