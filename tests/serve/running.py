"""A real server for tests: in a thread of this process, or as a process of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from mltta import load_backbone
from mltta.cli.serve import listen
from mltta.model.backbone import Backbone
from mltta.serve.offer import Limits, Offer
from mltta.serve.server import make_server

ROOT = Path(__file__).parents[2]
PHOTOS = sorted((ROOT / "examples" / "photos").glob("*.jpg"))


@lru_cache(maxsize=1)
def mini() -> Backbone:
    return load_backbone("mini")


@contextmanager
def serving(
    methods: tuple[str, ...] = ("auto", "clip", "tpt", "ml-tta", "tda"),
    *,
    limits: Limits | None = None,
    **options,
) -> Iterator[str]:
    """The address of a server with the embedded model."""
    offer = Offer({"mini": mini()}, methods, {}, limits or Limits(), default_labels="voc")
    server = make_server(offer, **options)
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
        assert not thread.is_alive()


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of `mltta serve`, and its process."""
    command = [sys.executable, "-m", "mltta", "serve", "--labels", "voc", *arguments]
    if "--port" not in arguments:
        command += ["--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stderr is not None
        line = running.stderr.readline()
        found = re.match(r"open (http://\S+)", line)
        assert found, line + running.stderr.read()
        wait_for(found[1])
        try:
            yield found[1], running
        finally:
            running.kill()


def wait_for(url: str, seconds: float = 60) -> None:
    """Until a server takes connections."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.05)
