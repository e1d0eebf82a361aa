"""Listening sockets, and which connections stay when there are too many."""

from __future__ import annotations

import socket

import pytest

from creditrl.door.listen import Crowd, listen
from creditrl.errors import ConfigError


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0", "192.168.0.3", "box.example"])
def test_a_reachable_interface_needs_a_token(host, monkeypatch):
    def never(*_: object) -> None:
        pytest.fail("it was bound")

    monkeypatch.setattr(socket.socket, "bind", never)
    with pytest.raises(ConfigError, match="can be reached by others: set CREDITRL_SERVE_TOKEN"):
        listen(host, 0)


def test_the_bound_address_counts_not_its_name(monkeypatch):
    # The hosts file decides what "localhost" means.
    monkeypatch.setattr(socket.socket, "getsockname", lambda _: ("192.168.0.3", 80))
    with pytest.raises(ConfigError, match=r"192\.168\.0\.3 can be reached by others"):
        listen("localhost", 0)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 0)])
def test_an_invalid_address_is_refused(host, port):
    with pytest.raises(ConfigError, match="^Cannot serve at port "):
        listen(host, port, "0123456789abcdef")


def test_a_connection_beyond_the_limit_replaces_the_longest_waiting_one():
    crowd, gone = Crowd(3), []
    for name in "abc":
        crowd.enter(name, lambda name=name: gone.append(name))
    crowd.work("a")
    crowd.enter("d", lambda: gone.append("d"))
    assert gone == ["b"] and len(crowd) == 3
    crowd.work("c")
    crowd.wait("a")  # anew, after d
    crowd.enter("e", lambda: gone.append("e"))
    assert gone == ["b", "d"]
    crowd.leave("a")
    crowd.enter("f", lambda: gone.append("f"))
    assert gone == ["b", "d"] and len(crowd) == 3
    for name in "cef":
        crowd.work(name)
    crowd.enter("g", lambda: gone.append("g"))  # all are at work
    assert gone == ["b", "d", "g"]
    crowd.wait("b")  # who is gone is not counted again
    crowd.leave("b")
    assert len(crowd) == 3


def test_connections_leave_file_descriptors_for_the_rest_of_the_process(monkeypatch):
    monkeypatch.setattr("creditrl.door.listen._files", lambda: 8)
    crowd, gone = Crowd(256), []
    for number in range(5):
        crowd.enter(number, lambda number=number: gone.append(number))
    assert gone == [0]
