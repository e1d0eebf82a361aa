"""A stand-in for the Unity simulator: our own HTTP server on this machine."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

GRAPH: dict[str, Any] = {
    "nodes": [{"id": 1, "class_name": "kitchen"}, {"id": 7, "class_name": "kitchentable"}],
    "edges": [{"from_id": 7, "relation_type": "INSIDE", "to_id": 1}],
}


def png(red: int, size: tuple[int, int] = (3, 2)) -> str:
    """Return a picture of one colour, with transparency as the simulator may send it."""
    file = io.BytesIO()
    Image.new("RGBA", size, (red, 5, 9, 255)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@dataclass
class Simulator:
    """A stand-in simulator: two fixed cameras, and two more per character."""

    url: str = ""
    plans: list[dict[str, Any]] = field(default_factory=list)
    """How the next requests are answered: ``status``, ``body`` or changed fields of the answer,
    ``delay`` before it, ``drip`` between bytes, ``cut`` after so many, all optional."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    characters: int = 0
    at_work: int = 0
    most_at_once: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def actions(self) -> list[str]:
        return [request["action"] for request in self.requests]

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        action = asked["action"]
        said: dict[str, Any] = {"id": asked["id"], "success": True, "message": "", "value": 0}
        if action == "clear":
            self.characters = 0
        elif action == "add_character":
            self.characters += 1
        elif action == "camera_count":
            said["value"] = 2 + 2 * self.characters
        elif action == "environment_graph":
            said["message"] = json.dumps(GRAPH)
        elif action == "camera_data":
            said["message"] = json.dumps([{"index": i} for i in asked["intParams"]])
        elif action == "camera_image":
            said["message_list"] = [png(i) for i in asked["intParams"]]
        elif action == "expand_scene":
            said["message"] = json.dumps({"unplaced": ["cup.9"]})
        elif action == "render_script":
            said["success"] = "fridge" not in asked["stringParams"][-1]
            said["message"] = json.dumps({"0": {"message": "as told"}})
        return said

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append(asked)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        self.paths.append(handler.path)
        plan = self.plans.pop(0) if self.plans else {}
        # Busy until it answers: a client may ask again before this thread continues.
        self.at_work += 1
        self.most_at_once = max(self.most_at_once, self.at_work)
        self.stopped.wait(plan.get("delay", 0))
        self.at_work -= 1
        content = plan.get("body")
        if content is None:
            content = json.dumps({**self.answer(asked), **plan.get("fields", {})}).encode()
        handler.send_response(plan.get("status", 200))
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.close_connection = True
        if "drip" not in plan:
            handler.wfile.write(content[: plan.get("cut")])
        for byte in content if "drip" in plan else b"":
            handler.wfile.write(bytes([byte]))
            if self.stopped.wait(plan["drip"]):
                return


@contextmanager
def serving(simulator: Simulator | None = None) -> Iterator[Simulator]:
    """Serve a simulator, a new one by default."""
    simulator = simulator or Simulator()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802
            try:
                simulator.handle(self)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has disconnected

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        simulator.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield simulator
        finally:
            simulator.stopped.set()
            server.shutdown()
            thread.join(5)
