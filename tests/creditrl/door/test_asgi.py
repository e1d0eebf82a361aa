"""Applications behind the door: web sockets, startup and shutdown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from creditrl.door.asgi import Guarded, Server
from creditrl.door.listen import Crowd

HERE = "http://127.0.0.1:3000"


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await socket.send_text(await socket.receive_text())


def application(begun: list[str] | None = None) -> Starlette:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        if begun is not None:
            begun.append("begun")
        yield
        if begun is not None:
            begun.append("ended")

    root = Route("/", lambda _: PlainTextResponse("here"))
    return Starlette(routes=[root, WebSocketRoute("/ws", echo)], lifespan=lifespan)


OWN = {"Host": "127.0.0.1:3000"}
"""Starlette's client has a name of its own else."""


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:3000"},
        {**OWN, "Origin": "https://evil.example"},
        {**OWN, "Origin": "null"},
        {**OWN, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"},
        {"Host": "127.0.0.1:x"},
    ],
)
def test_web_sockets_pass_the_gate_too(headers):
    client = TestClient(Guarded(application()))
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect("/ws", headers=headers),
    ):
        pass
    assert refused.value.code == 1008


@pytest.mark.parametrize("token", ["", "0123456789abcdef"])
def test_admitted_clients_can_use_web_sockets(token):
    client = TestClient(Guarded(application(), token))
    told = {**OWN, "Origin": HERE, "Authorization": "Bearer 0123456789abcdef"}
    with client.websocket_connect("/ws", headers=told) as socket:
        socket.send_text("hello")
        assert socket.receive_text() == "hello"
    if token:
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws", headers=OWN):
            pass


def test_startup_and_shutdown_reach_the_application():
    begun: list[str] = []
    with TestClient(Guarded(application(begun)), base_url=HERE) as client:
        assert client.get("/").text == "here" and begun == ["begun"]
    assert begun == ["begun", "ended"]


@pytest.fixture
def crowds(monkeypatch) -> Iterator[list[Crowd]]:
    made: list[Crowd] = []
    create = Crowd.__init__

    def noting(crowd: Crowd, most: int) -> None:
        create(crowd, most)
        made.append(crowd)

    monkeypatch.setattr(Crowd, "__init__", noting)
    yield made


@pytest.mark.reference("websockets")
def test_a_web_socket_is_not_subject_to_the_time_limit_of_requests(monkeypatch, crowds):
    import time

    from websockets.sync.client import connect

    monkeypatch.setattr("creditrl.door.asgi.HEAD_SECONDS", 1.0)
    with contextlib.closing(Server(application(), websockets=True)) as server:
        with connect(f"{server.address.replace('http', 'ws')}/ws") as socket:
            time.sleep(1.5)
            socket.send("hello")
            assert socket.recv() == "hello"
            assert len(crowds[0]) == 0
