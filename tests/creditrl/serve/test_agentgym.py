"""AgentGym's requests over loopback, in the words of its clients for three environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import httpx
import pytest

import creditrl
from creditrl.door.asgi import Server
from creditrl.serve.app import environment_app
from creditrl.serve.sessions import Sessions


@contextmanager
def served(name: str) -> Iterator[Any]:
    """Serve an environment; yields a client as AgentGym's, which accept nothing but 200."""
    sessions = Sessions(f"CreditRL/{name}-v0", {}, limit=1)
    server = Server(environment_app(sessions))
    try:
        with httpx.Client(base_url=f"{server.address}/agentgym") as client:
            yield client
    finally:
        server.close()
        sessions.close()


def told(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_alfworlds_client_plays_the_experts_episode():
    env = gym.make("CreditRL/ALFWorld-v0")
    seen, info = env.reset(seed=3, options={"task": 3})
    with served("ALFWorld") as client:
        at = {"id": told(client.post("/create"))["id"]}
        state = told(client.post("/reset", json={"game": 3, "world_type": "Text", **at}))
        assert state["observation"] == seen
        assert state["available_actions"] == list(info["admissible_actions"])
        while not state["done"]:
            action = creditrl.expert_action(env)
            seen, reward, *_ = env.step(action)
            state = told(client.post("/step", json={"action": action, **at}))
            assert (state["observation"], state["reward"]) == (seen, reward)
        assert state["reward"] == 1.0
        told(client.post("/close", json=at))
        told(client.post("/create"))  # the only session is free again


def test_webshops_client_requests_each_page():
    seen, _ = gym.make("CreditRL/WebShop-v0").reset(seed=5, options={"task": 5})
    with served("WebShop") as client:
        at = {"env_idx": told(client.post("/create"))}
        told(client.post("/reset", json={"session_id": 5, **at}))
        assert told(client.get("/observation", params=at)) == seen
        state = told(client.post("/step", json={"action": "search[shirt]", **at}))
        assert "Total results" in state["state"] and not state["done"]
        assert told(client.get("/observation", params=at)) == state["state"]


def test_the_first_observation_states_the_goal():
    with served("VisualSokoban") as client:
        at = {"id": told(client.post("/create"))["id"]}
        state = told(client.post("/reset", json={"data_idx": 0, **at}))
        assert state["observation"].startswith("Push every box (X) onto a target (O).\n#")
        assert (state["reward"], state["score"], state["done"]) == (0.0, 0.0, False)
        state = told(client.post("/step", json={"action": "up", **at}))
        assert state["observation"].startswith("#")


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("reset", {}, 400, "data_idx, game, session_id: expected one of them"),
        ("reset", {"data_idx": "3"}, 400, "the index of a task"),
        ("reset", {"data_idx": -1}, 404, "No task -1"),
        ("step", {"action": 3}, 400, "the action a string"),
        ("step", {"action": "up"}, 409, "The episode has not begun"),
        ("step", {"action": "up", "id": 7}, 404, "No such session"),
        ("close", {"id": None}, 404, "No such session"),
    ],
)
def test_a_bad_request_gets_a_one_line_error(path, body, status, says):
    with served("VisualSokoban") as client:
        at = told(client.post("/create"))
        answer = client.post(f"/{path}", json={**at, **body})
        assert answer.status_code == status and says in answer.json()["error"]["message"]
