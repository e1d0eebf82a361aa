"""Connections of both kinds of servers: time limits, maximum number, and their end."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from creditrl.door import asgi, plain
from creditrl.door.asgi import Server
from creditrl.door.listen import Crowd
from creditrl.door.plain import PlainHandler, PlainServer
from creditrl.errors import ConfigError

LARGE = b"x" * (64 << 20)
"""More than the buffers of two sockets hold."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body, or with much."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length, more = length + len(message["body"]), message["more_body"]
    body = LARGE if scope["path"] == "/large" else f"{length} bytes".encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(body)).encode())]})  # fmt: skip
    await send({"type": "http.response.body", "body": body})


class Handler(PlainHandler):
    """Answers alike; bodies are not read."""

    def do_GET(self) -> None:
        body = LARGE if self.path == "/large" else b"0 bytes"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_asgi(**options: Any) -> Server:
    return Server(application, **options)


def serve_plain(**options: Any) -> PlainServer:
    return PlainServer(Handler, **options)


MAKERS = {"asgi": serve_asgi, "plain": serve_plain}
Maker = Callable[..., Any]


@pytest.fixture(params=MAKERS)
def make(request) -> Maker:
    maker: Maker = MAKERS[request.param]
    return maker


@contextlib.contextmanager
def line(server: Any) -> Iterator[socket.socket]:
    """Return a connection."""
    port = int(server.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as opened:
        yield opened


def head(path: str = "/", *more: str, method: str = "GET") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *more, "", "")).encode()


def answer(opened: socket.socket) -> tuple[int, bytes]:
    """Return status and body of the next answer; (0, b"") where the line is closed."""
    got = b""
    while b"\r\n\r\n" not in got:
        with contextlib.suppress(ConnectionResetError):
            if more := opened.recv(1 << 16):
                got += more
                continue
        return 0, b""
    top, _, body = got.partition(b"\r\n\r\n")
    (length,) = [
        int(row[15:]) for row in top.lower().split(b"\r\n") if row.startswith(b"content-length:")
    ]
    while len(body) < length:
        body += opened.recv(1 << 16)
    return int(top.split()[1]), body


def is_closed(opened: socket.socket) -> bool:
    """Return whether the other side closes the connection without sending anything."""
    try:
        return opened.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def hurried(monkeypatch) -> None:
    for module in (asgi, plain):
        monkeypatch.setattr(module, "HEAD_SECONDS", 1.0)
        monkeypatch.setattr(module, "READ_SECONDS", 1.0)
    monkeypatch.setattr(asgi, "BODY_SECONDS", 1.0)


@pytest.mark.slow
def test_an_unfinished_head_closes_the_connection(make, hurried):
    # Nothing, a letter, a head without an end, a second one behind the first.
    beginnings = (b"", b"G", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", head() + b"GET")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(make()))
        lines = [stack.enter_context(line(server)) for _ in beginnings]
        for opened, beginning in zip(lines, beginnings, strict=True):
            opened.sendall(beginning)
        assert answer(lines[-1]) == (200, b"0 bytes")
        assert all(is_closed(opened) for opened in lines)


def test_a_head_that_arrives_too_slowly_closes_the_connection(make, hurried):
    with contextlib.closing(make()) as server, line(server) as opened:
        opened.settimeout(0.05)
        opened.sendall(b"GET / HTTP/1.1\r\nX: ")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                opened.sendall(b"x")
                if opened.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("it was waited for")


def test_an_unfinished_body_closes_the_connection(hurried):
    with contextlib.closing(serve_asgi()) as server, line(server) as opened:
        opened.sendall(head("/", "Content-Length: 10", method="POST") + b"12345")
        assert is_closed(opened)


def test_a_client_that_does_not_read_is_disconnected(make, hurried, monkeypatch):
    left, enter, leave = threading.Event(), Crowd.enter, Crowd.leave
    here: list[Any] = []  # a connection of an earlier test may leave only now

    def entering(crowd: Crowd, who: Any, close: Any) -> None:
        here.append(who)
        enter(crowd, who, close)

    def leaving(crowd: Crowd, who: Any) -> None:
        leave(crowd, who)
        if who in here:
            left.set()

    monkeypatch.setattr(Crowd, "enter", entering)
    monkeypatch.setattr(Crowd, "leave", leaving)
    with contextlib.closing(make()) as server, line(server) as opened:
        opened.sendall(head("/large"))
        assert left.wait(20)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while more := opened.recv(1 << 20):
                got += len(more)
        assert got < len(LARGE)


def test_every_connection_disables_nagles_algorithm(make, monkeypatch):
    # With Nagle's algorithm an answer of two pieces waits 40 ms for the client's acknowledgement.
    served: list[Any] = []
    enter = Crowd.enter

    def noting(crowd: Crowd, who: Any, close: Any) -> None:
        served.append(who)
        enter(crowd, who, close)

    monkeypatch.setattr(Crowd, "enter", noting)
    with contextlib.closing(make()) as server, line(server) as opened:
        opened.sendall(head())
        assert answer(opened) == (200, b"0 bytes")
        (who,) = served
        end = who if isinstance(who, socket.socket) else who.transport.get_extra_info("socket")
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_request_with_two_lengths_is_refused_and_ends_its_connection(make):
    chunked = b"5\r\nhello\r\n0\r\n\r\n"
    for lengths in (
        ("Content-Length: 20", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Content-Length: 0", "Transfer-Encoding: identity"),
    ):
        with contextlib.closing(make()) as server, line(server) as opened:
            opened.sendall(head("/", *lengths) + chunked + head("/large"))
            assert answer(opened)[0] == 400
            assert is_closed(opened)


def test_heads_and_trailers_without_end_close_the_connection(monkeypatch):
    monkeypatch.setattr(asgi, "_LONGEST_HEAD", 1 << 16)
    with contextlib.closing(serve_asgi()) as server:
        for beginning, more in (
            (b"", b"\r\n"),
            (b"GET /", b"x"),
            (b"GET / HTTP/1.1\r\nX: ", b"x"),
            (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
            (head("/", "Transfer-Encoding: chunked", method="POST") + b"0\r\nX: ", b"x"),
            (head("/", "Transfer-Encoding: chunked", method="POST") + b"0\r\n", b"X: y\r\n"),
            (head("/", "Transfer-Encoding: chunked", method="POST") + b"1;", b"x"),
        ):
            with line(server) as opened:
                with contextlib.suppress(ConnectionError):
                    opened.sendall(beginning)
                    for _ in range(100):
                        opened.sendall(more * ((1 << 20) // len(more)))
                    pytest.fail(f"{more!r} was read without end")


def test_unfinished_requests_do_not_block_other_clients(make, monkeypatch):
    for module in (asgi, plain):
        monkeypatch.setattr(module, "MOST_CONNECTIONS", 20)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(make()))
        halves = [stack.enter_context(line(server)) for _ in range(60)]
        for opened in halves:
            with contextlib.suppress(OSError):
                opened.sendall(b"GET / HTTP/1.1\r\n")
        with line(server) as honest:
            honest.sendall(head())
            assert answer(honest) == (200, b"0 bytes")
        assert all(is_closed(opened) for opened in halves[:40])


def test_a_refusal_is_json_with_the_reason(make):
    with contextlib.closing(make()) as server, line(server) as opened:
        opened.sendall(b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n")
        status, body = answer(opened)
        assert status == 403
        assert json.loads(body)["error"] == {
            "code": "forbidden",
            "message": "'evil.example' is not this machine: ask at 127.0.0.1 or localhost.",
        }


def test_too_long_a_body_is_refused(monkeypatch):
    with contextlib.closing(serve_asgi(most_body=100)) as server:
        for length, status in ((100, 200), (101, 413), (5_000_000, 413)):
            with line(server) as opened:
                opened.sendall(head("/", f"Content-Length: {length}", method="POST"))
                with contextlib.suppress(ConnectionError):
                    opened.sendall(b"x" * length)
                assert answer(opened)[0] == status


def test_a_request_body_is_not_read_as_another_request():
    with contextlib.closing(serve_plain()) as server, line(server) as opened:
        inside = head("/large")
        opened.sendall(head("/", f"Content-Length: {len(inside)}") + inside)
        assert answer(opened) == (200, b"0 bytes")
        assert is_closed(opened)


def test_a_handler_without_a_gate_is_refused():
    from http.server import BaseHTTPRequestHandler

    with pytest.raises(TypeError, match="is not a PlainHandler"):
        PlainServer(BaseHTTPRequestHandler)  # type: ignore[arg-type]


# -- beginnings and ends --------------------------------------------------------------------------


def answers(address: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 5).close()
    except OSError:
        return False
    return True


def test_a_taken_port_is_a_one_line_error(make):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^Port {port} of 127.0.0.1 is taken by another"):
            make(port=port)


def test_a_closed_server_releases_its_port(make):
    server = make()
    assert answers(server.address)
    server.close()
    server.close()
    assert not answers(server.address)
    again = make(port=int(server.address.rpartition(":")[2]))
    assert answers(again.address)
    again.close()


def test_a_collected_server_stops():
    server = serve_asgi()
    address = server.address
    del server
    gc.collect()
    deadline = time.monotonic() + 20
    while answers(address) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not answers(address)


def test_a_forked_child_does_not_keep_the_port(make):
    server = make()
    reading, writing = os.pipe()
    closed, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        server.close()  # it does not wait for a thread that does not exist
        os.write(tell, b".")
        os.read(reading, 1)  # until the parent has looked
        os._exit(0)
    os.close(tell)
    try:
        server.close()
        assert os.read(closed, 1)  # the child's copy of the port is closed as well
        assert not answers(server.address)
    finally:
        for end in (writing, reading, closed):
            os.close(end)
        os.waitpid(child, 0)
