"""A chat endpoint on this machine that answers or fails as a test plans."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONGEST_HANG = 30.0


@dataclass
class Plan:
    """How to answer one request."""

    text: str | None = "say: Hello."
    """The answer's content."""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Functions that the model calls, with their arguments."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The whole body, in place of a chat completion."""
    delay: float = 0.0
    """Seconds before the answer."""
    drip: float = 0.0
    """Seconds between the answer's bytes."""
    cut: int | None = None
    """End the connection after so many bytes of the body."""
    hang: bool = False
    """Never answer."""
    finish_reason: str = "stop"
    usage: dict[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    )


Answer = Callable[[dict[str, Any]], "Plan | str"]


@dataclass
class ChatServer:
    """The planned answers, and the requests received."""

    url: str = ""
    plans: list[Plan | str] = field(default_factory=list)
    """For the next requests, in the order in which they come."""
    answer: Answer = lambda body: Plan()
    """For all others: the request's body to a plan, or to the text of an answer."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies, in the order in which they came."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of the same, names in lower case."""
    times: list[float] = field(default_factory=list)
    """When each came, in seconds of ``time.monotonic``."""
    most_at_once: int = 0
    """Most requests that waited for an answer at once."""
    slot: AbstractContextManager[Any] = field(default_factory=nullcontext)
    """Held during each delay; a lock answers one request at a time."""
    _at_work: int = 0
    _lock: Any = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def prompts(self) -> list[str]:
        """Return the last message of each request."""
        return [body["messages"][-1]["content"] for body in self.requests]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.requests.append(body)
            self.headers.append({k.lower(): v for k, v in handler.headers.items()})
            self.times.append(time.monotonic())
            self._at_work += 1
            self.most_at_once = max(self.most_at_once, self._at_work)
            plan = self.plans.pop(0) if self.plans else self.answer(body)
        plan = Plan(plan) if isinstance(plan, str) else plan
        if plan.delay:
            with self.slot:
                self._stopped.wait(plan.delay)
        # Before the answer, because its receiver can ask again before this thread continues.
        with self._lock:
            self._at_work -= 1
        self._send(handler, plan, body)

    def _send(self, handler: BaseHTTPRequestHandler, plan: Plan, body: dict[str, Any]) -> None:
        handler.close_connection = plan.hang or plan.cut is not None
        if plan.hang:
            self._stopped.wait(LONGEST_HANG)
            return
        content = plan.body
        if content is None and plan.status == 200:
            content = json.dumps(completion(plan, str(body.get("model")))).encode()
        elif content is None:
            content = json.dumps({"error": {"message": f"told to answer {plan.status}"}}).encode()
        handler.send_response(plan.status)
        for name, value in plan.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        sent = content[: plan.cut]
        if not plan.drip:
            handler.wfile.write(sent)
            return
        for byte in sent:
            if self._stopped.wait(plan.drip):
                return
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()


def completion(plan: Plan, model: str) -> dict[str, Any]:
    """Return a chat completion as OpenAI's interface has it."""
    message: dict[str, Any] = {"role": "assistant", "content": plan.text}
    if plan.calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in plan.calls
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{model}-2026-01-01",
        "choices": [{"index": 0, "message": message, "finish_reason": plan.finish_reason}],
        **({} if plan.usage is None else {"usage": plan.usage}),
    }


@contextmanager
def serving() -> Iterator[ChatServer]:
    """Serve until the block ends; requests that hang are let go then."""
    chat = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # noqa: N802
            if self.path != "/v1/chat/completions":
                self.send_error(404)
                return
            try:
                chat.handle(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client has disconnected

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        chat.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield chat
        finally:
            chat._stopped.set()
            server.shutdown()
            thread.join(5)
