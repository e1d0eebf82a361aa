"""A chat endpoint whose process may be killed at any moment; the next one takes over its port.

Run as a program it prints its port, then the id of each process that serves. As ``policy`` it talks
or leaves, as ``judge`` it scores a dialogue.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue

ENTRY = {"goal": ["because", 7]}
JUDGED = json.dumps({"evaluations": {"agent_1": ENTRY, "agent_2": ENTRY}})


class MortalServer:
    """The endpoint, as a test controls it."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        pipe = subprocess.PIPE
        self._keeper = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        assert self._keeper.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._keeper.stdout.readline())}/v1"
        self._pids: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def kill(self) -> bool:
        """Kill the process that serves; False if the next one has not started."""
        try:
            os.kill(self._pids.get_nowait(), signal.SIGKILL)
        except Empty:
            return False
        return True

    def close(self) -> None:
        """End the endpoint."""
        os.killpg(self._keeper.pid, signal.SIGKILL)
        self._keeper.wait()
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._keeper.stdout is not None
        for line in self._keeper.stdout:
            self._pids.put(int(line))


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # while no process serves, requests wait here
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients are killed as well."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(random.uniform(0.001, 0.01))
        said = "leave" if random.random() < 0.2 else "say: Hello."
        message = {"content": JUDGED if body["model"] == "judge" else said}
        content = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        """Log nothing."""


def _serve(server: _Server) -> None:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # ends with the test, if that is itself killed
    os._exit(0)


def main() -> None:
    server = _Server(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    while True:
        pid = os.fork()
        if not pid:
            _serve(server)
        print(pid, flush=True)
        if os.waitpid(pid, 0)[1] == 0:
            return


if __name__ == "__main__":
    main()
