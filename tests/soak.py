"""Serve an environment to honest and hostile clients at once, and say how it went.

Run as ``python tests/soak.py --seconds 600``. It fails (exit code 1) where an answer is
5xx, memory grows, an honest client is refused but for sessions that hostile ones hold (429), or 1
of 100 honest requests takes over 20 ms. All of it stays on the loopback interface and ends by
itself.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

HONEST, HOSTILE = 4, 4
"""Clients of either kind; a hostile one attacks 20 times a second."""
_ENV = {"CREDITRL_SERVE_TOKEN": ""}


@dataclass
class Found:
    """The measurements."""

    honest: list[float] = field(default_factory=list)
    """Seconds of each honest request."""
    refused: Counter[str] = field(default_factory=Counter)
    """Honest requests that were not carried out."""
    answers: Counter[int] = field(default_factory=Counter)
    """Status codes of all answers."""
    attacks: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    """Resident kB of the server, every half second."""

    def quantile(self, share: float) -> float:
        """Return the time in which that share of the honest requests was answered, in ms."""
        times = sorted(self.honest)
        return 1000 * times[min(int(share * len(times)), len(times) - 1)]

    def grown(self) -> float:
        """Return how much more memory the last third needed than the second, as a share."""
        third = len(self.memory) // 3
        before, after = max(self.memory[third : 2 * third]), max(self.memory[2 * third :])
        return after / before - 1


def soak(seconds: float, env: str = "VisualSokoban") -> Found:
    """Serve ``env`` for so long and return what was measured."""
    server = subprocess.Popen(
        [sys.executable, "-m", "creditrl", "serve", env, "--port", "0", "--idle", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **_ENV},
    )
    found, ended = Found(), threading.Event()
    try:
        assert server.stdout is not None
        told = re.search(r"http://127\.0\.0\.1:(\d+)", server.stdout.readline())
        assert told is not None, "the server said no address"
        port = int(told[1])
        drain = threading.Thread(target=server.stdout.read, daemon=True)
        clients = [
            threading.Thread(target=_play, args=(port, number, found, ended))
            for number in range(HONEST)
        ] + [
            threading.Thread(target=_attack, args=(port, number, found, ended))
            for number in range(HOSTILE)
        ]
        for thread in (drain, *clients):
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found.memory.append(_resident(server.pid))
            time.sleep(0.5)
        ended.set()
        for thread in clients:
            thread.join(60)
        assert server.poll() is None, "the server has ended"
    finally:
        ended.set()
        server.terminate()
        server.wait(20)
    return found


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def _play(port: int, number: int, found: Found, ended: threading.Event) -> None:
    """Play episodes as a client should, one after another, at some 100 requests a second."""
    rng = random.Random(number)
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(method: str, path: str, body: object = None) -> dict[str, object]:
        start = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        line.request(method, path, None if body is None else json.dumps(body), headers)
        answer = line.getresponse()
        data = answer.read()
        found.honest.append(time.perf_counter() - start)
        found.answers[answer.status] += 1
        if answer.status >= 300 and answer.status != 429:
            found.refused[f"{method} {path.split('/')[-1]}: {answer.status} {data[:80]!r}"] += 1
        time.sleep(0.01)
        return dict(json.loads(data)) if data else {}

    while not ended.is_set():
        session = ask("POST", "/sessions").get("session")
        if session is None:
            continue  # the hostile ones hold all sessions, until these are idle for 5 s
        at = f"/sessions/{session}"
        state = ask("POST", f"{at}/reset", {"seed": rng.randrange(1000)})
        for _ in range(20):
            actions = state["info"]["admissible_actions"]  # type: ignore[index]
            state = ask("POST", f"{at}/step", {"action": rng.choice(actions or ["up"])})
            if state.get("terminated") or state.get("truncated") or ended.is_set():
                break
        ask("DELETE", at)
    line.close()


def _attack(port: int, number: int, found: Found, ended: threading.Event) -> None:
    """Perform one hostile act after another."""
    rng = random.Random(1000 + number)
    held: list[socket.socket] = []
    for name, parts in _hostile(rng):
        if ended.wait(0.05):
            break
        found.attacks[name] += 1
        try:
            line = socket.create_connection(("127.0.0.1", port), timeout=2)
            for part in parts:
                line.sendall(part)
            if name in ("half a head", "half a body", "no word"):
                held.append(line)  # left open until the server or this list drops it
                if len(held) > 40:
                    held.pop(0).close()
                continue
            if name != "gone before the answer":
                status = line.recv(65536)[:12].split()
                if len(status) > 1 and status[1].isdigit():
                    found.answers[int(status[1])] += 1
            line.close()
        except OSError:
            continue  # it was disconnected
    for line in held:
        line.close()


def _hostile(rng: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
        head = [
            f"POST {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            f"Content-Length: {len(body) if length is None else length}",
            "Connection: close",
            *headers,
        ]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    session = "/sessions/" + "0" * 32
    while True:
        noise = rng.randbytes(rng.randrange(1, 2000))
        yield from rng.sample(
            [
                ("half a head", [b"POST /sessions HTTP/1.1\r\nHost: 127"]),
                ("half a body", [post("/sessions", b'{"a"', length=1000)]),
                ("no word", []),
                ("noise", [noise + b"\r\n\r\n"]),
                ("a body too large", [post(f"{session}/step", b" " * (3 << 20))]),
                ("a length too large", [post(f"{session}/step", b"{}", length=1 << 60)]),
                ("nested JSON", [post(f"{session}/step", b"[" * 100_000)]),
                ("a number of 5,000 digits", [post(f"{session}/reset", b"1" * 5000)]),
                ("another type", [post(f"{session}/step", b'{"action": ["up"]}')]),
                ("an unknown session", [post(f"{session}/step", b'{"action": "up"}')]),
                ("another Host", [b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"]),
                ("another Origin", [post("/sessions", b"", "Origin: http://evil.example")]),
                ("an odd path", [b"GET /../..%2f%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]),
                ("a long head", [b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"]),
                ("half a character", [post(f"{session}/step", b'{"action": "\\ud800"}')]),
                ("gone before the answer", [post("/sessions", b"{}")]),
                ("a session left open", [post("/sessions", b"{}")]),
            ],
            17,
        )


def main() -> int:
    """Soak, print a table, and return 0 where all of it held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--env", default="VisualSokoban")
    given = parser.parse_args()
    found = soak(given.seconds, given.env)
    broken = sum(count for status, count in found.answers.items() if status >= 500)
    print(
        f"honest requests   {len(found.honest):,}, median {found.quantile(0.5):.1f} ms, "
        f"99 % within {found.quantile(0.99):.1f} ms, all within {found.quantile(1):.0f} ms"
    )
    print(f"refused           {sum(found.refused.values())} {dict(found.refused.most_common(3))}")
    print(f"attacks           {sum(found.attacks.values()):,} of {len(found.attacks)} kinds")
    print(f"answers           {dict(sorted(found.answers.items()))}")
    print(
        f"memory            {found.memory[0] / 1024:.0f} MB at first, "
        f"{max(found.memory) / 1024:.0f} MB at most, last third {found.grown():+.1%}"
    )
    sound = not broken and not found.refused and found.grown() < 0.05
    return 0 if sound and found.quantile(0.99) < 20 else 1


if __name__ == "__main__":
    sys.exit(main())
