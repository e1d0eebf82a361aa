"""The page's evaluation with ``AlfredTWEnv`` and its equivalent here, and an agent for both."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import creditrl

PAGE = Path(__file__).parents[1] / "docs" / "environments" / "ALFWorld.md"

AGENT = '''
import hashlib, json

with open("known.json") as file:
    known = json.load(file)
calls = []


def act(observation, commands):
    """Follow the plans of some games; do what a hash says elsewhere."""
    key = json.dumps([observation, list(commands)])
    calls.append(key)
    number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big")
    return known.get(key) or commands[number % len(commands)]
'''
"""``my_agent.py``: its actions depend only on what it sees."""


CONFIG = """
dataset:
  data_path: {root}/train
  eval_id_data_path: {root}/valid_seen
  eval_ood_data_path: {root}/valid_unseen
  num_train_games: -1
  num_eval_games: -1
env:
  goal_desc_human_anns_prob: 0.0
  task_types: [1, 2, 3, 4, 5, 6]
  domain_randomization: false
  expert_type: planner
general:
  training_method: dqn
rl:
  training:
    max_nb_steps_per_episode: 50
"""


def twins() -> list[str]:
    """Return upstream's example and ours."""
    marked = r"<!-- run by: alfworld -->\n```python\n(.*?)```"
    theirs, ours = re.findall(marked, PAGE.read_text("utf-8"), re.S)
    return [theirs, ours]


def prepare(test_data: Path, folder: Path) -> dict[str, bool]:
    """Put six real games, the agent and upstream's config into a folder.

    Returns their ids, and whether the agent knows a plan.
    """
    from alfworld_files import unpack_sample

    root = unpack_sample(test_data, folder) / "json_2.1.1"
    games = sorted(path.parent for path in (root / "valid_seen").glob("*/*/game.tw-pddl"))
    of_each_type = {game.parent.name.partition("-")[0]: game for game in games}
    for game in of_each_type.values():
        shutil.copytree(game, root / "valid_unseen" / game.relative_to(root / "valid_seen"))
    options: dict[str, Any] = {"data": "official", "data_dir": folder, "split": "valid_unseen"}
    env: Any = gym.make("CreditRL/ALFWorld-v0", **options)
    tasks = env.unwrapped.tasks
    known = {}
    for k in range(0, len(tasks), 2):
        text, info = env.reset(options={"task": k})
        for action in creditrl.expert_plan(env) or ():
            known[json.dumps([text, list(info["admissible_actions"])])] = action
            text, *_, info = env.step(action)
    (folder / "known.json").write_text(json.dumps(known))
    (folder / "my_agent.py").write_text(AGENT)
    (folder / "base_config.yaml").write_text(CONFIG.format(root=root))
    return {task.id: task.index % 2 == 0 for task in tasks}


def run_twin(code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], set[str], str]:
    """Run an example in the current folder; return (its names, what the agent saw, output)."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    sys.modules.pop("my_agent", None)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, PAGE.name, "exec"), names)
    calls = set(sys.modules.pop("my_agent").calls)
    return names, calls, out.getvalue()
