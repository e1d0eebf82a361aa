"""The part of the Hugging Face hub that makes a repository and accepts a commit of small files."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeHub(ThreadingHTTPServer):
    """What was uploaded."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.refuses = False
        self.private: dict[str, bool] = {}
        """Repositories by name."""
        self.files: dict[str, bytes] = {}
        self.tokens: set[str] = set()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub = self.server
        if self.path == "/api/repos/create":
            hub.tokens.add(self.headers["Authorization"])
            if hub.refuses:
                return self._answer({"error": "You may not write here"}, 403)
            wanted = json.loads(body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            private = wanted.get("private", wanted.get("visibility") == "private")
            if name in hub.private:
                return self._answer({"url": f"{hub.url}/{name}", "error": "exists"}, 409)
            hub.private[name] = bool(private)
            return self._answer({"url": f"{hub.url}/{name}", "name": name})
        if self.path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            return self._answer({"files": [{"path": f["path"], **modes} for f in files]})
        if "/commit/main" in self.path:
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    hub.files[value["path"]] = base64.b64decode(value["content"])
            address = f"{hub.url}/me/policy/commit/abc"
            return self._answer({"commitUrl": address, "commitOid": "abc"})
        return self._answer({})

    def do_GET(self) -> None:
        name = self.path.removeprefix("/api/models/").partition("?")[0].partition("/revision")[0]
        if name not in self.server.private:
            return self._answer({"error": "Repository not found"}, 404)
        return self._answer({"id": name, "private": self.server.private[name], "siblings": []})

    def _answer(self, content: Any, code: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def serving() -> Iterator[FakeHub]:
    """Serve until the block ends."""
    with FakeHub() as hub:
        threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()
