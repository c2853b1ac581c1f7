"""A chat endpoint on loopback that answers, fails or misbehaves as a test asks it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: what to do with the i-th request: handle it, and say so with True; or leave it to be answered as usual
Behaviour = Callable[[int, "Handler"], bool]


class Handler(BaseHTTPRequestHandler):
    """Answers with a sentence made of the keywords; numbers the requests as they come."""

    server: Endpoint

    def do_POST(self) -> None:
        with self.server.lock:
            i = len(self.server.bodies)
            self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.server.headers_seen.append(dict(self.headers))
        if not self.server.behaviour(i, self):
            self.answer(self.server.bodies[i])

    def answer(self, body: dict[str, Any]) -> None:
        keywords = body["messages"][0]["content"].rpartition(": ")[2]
        text = f'Sure! Here it is:\n"A photo {body.get("seed", 0)} of {keywords}."'
        usage = {"prompt_tokens": 30, "completion_tokens": 9}
        held = {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}
        self.send(200, json.dumps(held).encode())

    def send(self, status: int, content: bytes, **headers: str) -> bool:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return True

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour = behaviour
        self.lock = threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.headers_seen: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *args: Any) -> None:
        """A client that gave up is no news."""


@contextmanager
def endpoint(behaviour: Behaviour = lambda i, handler: False) -> Iterator[Endpoint]:
    """Serve while the block runs."""
    server = Endpoint(behaviour)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
