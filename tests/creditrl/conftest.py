"""A browser, and a web server for downloads that disconnects, refuses, changes and miscounts."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Web:
    """The server's files, its planned behaviour, and the requests it received."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """By path, e.g. ``"/a/b.zip"``."""
    etag: str | None = '"one"'
    ranges: bool = True
    """Whether it answers ranges; without, it sends the whole file."""
    cuts: list[int] = field(default_factory=list)
    """The next answers end after so many bytes of their body."""
    statuses: list[int] = field(default_factory=list)
    """The next answers are these alone."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(path, Range header) of every request."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range", "")
        self.requests.append((handler.path, wanted))
        if self.statuses:
            handler.send_error(self.statuses.pop(0))
            return
        body = self.files.get(handler.path)
        if body is None:
            handler.send_error(404)
            return
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted) if self.ranges else None
        condition = handler.headers.get("If-Range")
        whole = len(body)
        if span is not None and (condition is None or condition == self.etag):
            begin = int(span[1])
            end = min(int(span[2] or whole - 1), whole - 1)
            if begin >= whole:
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{whole}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            body = body[begin : end + 1]
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {begin}-{end}/{whole}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        if self.etag is not None:
            handler.send_header("ETag", self.etag)
        handler.end_headers()
        handler.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)
        handler.close_connection = True


@pytest.fixture
def browser() -> Iterator[Any]:
    """A tab of headless Chromium; see ``viewed_runs.py``."""
    from viewed_runs import Browser

    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def artefacts(tmp_path) -> Path:
    """Folder for pictures to look at: ``$CREDITRL_TEST_ARTEFACTS``, or the test's own."""
    folder = Path(os.environ.get("CREDITRL_TEST_ARTEFACTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def web(monkeypatch) -> Iterator[Web]:
    """A server on this machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    served = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            served.answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
