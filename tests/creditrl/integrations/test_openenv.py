"""OpenEnv's own client drives our environments over loopback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from creditrl.door.asgi import Server
from creditrl.integrations.openenv import app
from creditrl.integrations.play import Play

pytestmark = pytest.mark.reference("openenv")


@contextmanager
def client(env: str, **options: Any) -> Iterator[Any]:
    from openenv import GenericEnvClient

    server = Server(app(env, **options), websockets=True)
    try:
        with GenericEnvClient(base_url=server.address).sync() as found:
            yield found
    finally:
        server.close()


def test_the_experts_episode_is_the_same_over_the_wire(env):
    play = Play(env, form="dialogue")
    play.begin(3, 7)
    with client(env) as served:
        result = served.reset(seed=7, task=3)
        assert result.observation["text"] == play.observation and not result.done
        assert result.observation["admissible_actions"] == list(play.info["admissible_actions"])
        while not play.over:
            action = play.env.expert_action() or "nothing"
            result = served.step({"action": action})
            assert result.observation["text"] == play.act(action)
            assert result.reward == pytest.approx(play.rewards[-1])
            assert result.observation["grounded"] is True
        assert result.done and result.observation["success"] == play.result()["success"]
        state = served.state()
        assert {key: state[key] for key in play.result()} == play.result()
        with pytest.raises(RuntimeError, match="The episode is over: reset"):
            served.step({"action": "look"})


def test_an_ungrounded_action_is_reported():
    with client("ALFWorld") as served:
        served.reset(seed=1)
        seen = served.step({"action": "fly"}).observation
        assert (seen["grounded"], seen["ungrounded_reason"]) == (False, "unparsed")
        assert seen["text"] == "Nothing happens."


def test_missing_seeds_are_drawn_from_the_servers():
    found = []
    for _ in range(2):
        with client("VisualSokoban", seed=5) as served:
            found.append([served.reset().observation["text"] for _ in range(2)])
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_each_client_plays_its_own_copy():
    from openenv import GenericEnvClient

    with client("VisualSokoban", sessions=2) as one:
        first = one.reset(seed=1).observation["text"]
        with GenericEnvClient(base_url=one.async_client._ws_url.removesuffix("/ws")).sync() as two:
            assert two.reset(seed=2).observation["text"] != first
            one.step({"action": "up"})
            assert two.state()["step_count"] == 0 and one.state()["step_count"] == 1


def test_pictures_are_sent_as_addresses():
    with client("VisualSokoban", observation="both") as served:
        assert served.reset(seed=1).observation["image"].startswith("data:image/png;base64,")


def test_the_tasks_can_be_listed():
    from openenv.core.env_server.http_server import create_fastapi_app  # noqa: F401 - it is there

    from creditrl.integrations.openenv import classes

    environment = classes().Environment(Play("ALFWorld", form="dialogue"), None, None)
    (split,) = environment.list_splits()
    assert split == "train" and environment.num_tasks(split) == len(environment._play.env.tasks)
    assert environment.get_task(split, 3)["id"] == "builtin/train/3"
    assert environment.get_metadata().name == "CreditRL/ALFWorld-v0"


def test_the_example_plays_an_episode(run_example):
    last = run_example("openenv_client.py", "--env", "VisualSokoban").splitlines()[-1]
    assert re.fullmatch(r"\d+ turns, return -?[\d.]+, success (True|False)", last)
