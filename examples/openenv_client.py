"""Play an environment through OpenEnv's client.

pip install -e ".[openenv]" && python examples/openenv_client.py

A client of `creditrl serve VisualSokoban --openenv` is the same but for the server's address.
"""

from __future__ import annotations

import argparse
import random
from contextlib import closing
from typing import Any

from openenv import GenericEnvClient

from creditrl.door.asgi import Server
from creditrl.integrations.openenv import app


def choose(observation: dict[str, Any]) -> str:
    """Return an action; put your model here."""
    return random.choice(observation["admissible_actions"] or ["look"])


def play(env: Any, seed: int) -> None:
    """Play one episode and print its turns."""
    result = env.reset(seed=seed)
    print(result.observation["text"])
    total, turns = 0.0, 0
    while not result.done:
        action = choose(result.observation)
        result = env.step({"action": action})
        total, turns = total + result.reward, turns + 1
        print(f"> {action}\n{result.observation['text']}")
    print(f"{turns} turns, return {total:.1f}, success {result.observation['success']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play an environment through OpenEnv's client.")
    parser.add_argument("--env", default="VisualSokoban", help="id, or short name")
    parser.add_argument("--seed", type=int, default=7, help="of the episode")
    told = parser.parse_args()
    with closing(Server(app(told.env), websockets=True)) as server:
        with GenericEnvClient(base_url=server.address).sync() as env:
            play(env, told.seed)
