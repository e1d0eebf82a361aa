"""``creditrl serve``: agents over HTTP, and a person who plays a goal in a browser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from creditrl.cli import run
from creditrl.envs.webshop.html import read_clickables, read_text


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode("utf-8"))


def test_it_prints_where_it_is_and_stops_on_ctrl_c() -> None:
    serving = subprocess.Popen(
        [
            *(sys.executable, "-m", "creditrl.cli", "serve", "webshop", "--pages"),
            *("--port", "0", "--num-products", "40", "--task", "2", "--split", "valid_unseen"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert serving.stdout is not None
        first, second = serving.stdout.readline(), serving.stdout.readline()
        assert first.startswith("WebShop is open at http://127.0.0.1:") and "Ctrl-C" in first
        address = first.split()[4]
        assert second.startswith("Play builtin") and second.split()[-1].startswith(address)
        start = page(second.split()[-1])
        assert read_clickables(start) == ("search",)
        found = page(f"{second.split()[-1]}?search_query=a")
        assert "Page 1 (Total results: " in read_text(found)
        assert second.split()[1].rstrip(":") in page(address)
        serving.send_signal(signal.SIGINT)
        out, err = serving.communicate(timeout=30)
        assert (serving.returncode, out, err) == (0, "\nClosed.\n", "")
        with pytest.raises(OSError):
            page(address)
    finally:
        serving.kill()
        serving.communicate()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["serve", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refused(capsys, "webshop", "--pages", "--num-products", "40", "--port", port)
        again = refused(capsys, "VisualSokoban", "--port", port)
    assert again == line
    assert line == (
        f"creditrl: Port {port} of 127.0.0.1 is taken by another program: choose another one by "
        "--port, or 0 for any that is free."
    )


def test_what_cannot_be_served_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no pages to serve" in refused(capsys, "VisualSokoban", "--pages")
    assert "--task needs --pages" in refused(capsys, "VisualSokoban", "--task", "2")
    assert "sessions=0: expected a number above 0" in refused(
        capsys, "VisualSokoban", "--max-sessions", "0"
    )
    assert "Missing environment" in refused(capsys)
    assert "No task" in refused(
        capsys, "webshop", "--pages", "--num-products", "40", "--task", "x/1"
    )
    assert "--prot" in refused(capsys, "webshop", "--prot", "1")


def test_others_need_a_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDITRL_SERVE_TOKEN", raising=False)
    line = refused(capsys, "VisualSokoban", "--host", "0.0.0.0")
    assert "--host 0.0.0.0 can be reached by others: set CREDITRL_SERVE_TOKEN" in line
    monkeypatch.setenv("CREDITRL_SERVE_TOKEN", "short")
    line = refused(capsys, "VisualSokoban", "--host", "0.0.0.0")
    assert "CREDITRL_SERVE_TOKEN has 5 characters: expected 16 or more" in line
    assert "short" not in line.partition("has")[0]


def test_an_environment_is_served_until_ctrl_c() -> None:
    serving = subprocess.Popen(
        [
            *(sys.executable, "-m", "creditrl.cli", "serve", "VisualSokoban"),
            *("--port", "0", "--max-sessions", "2"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert serving.stdout is not None
        first, second = serving.stdout.readline(), serving.stdout.readline()
        assert first.startswith("VisualSokoban is served at http://127.0.0.1:")
        address = first.split()[4]
        assert f"{address}/docs and {address}/openapi.json" in second
        assert json.loads(page(address))["env_id"] == "CreditRL/VisualSokoban-v0"
        serving.send_signal(signal.SIGINT)
        out, err = serving.communicate(timeout=30)
        assert (serving.returncode, out, err) == (0, "\nClosed.\n", "")
    finally:
        serving.kill()
        serving.communicate()
