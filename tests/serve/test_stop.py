"""A server that is told to stop finishes what it accepted; a client of a killed one asks again and loses nothing."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest

from mltta import Tagger
from mltta.serve.client import Client
from tests.serve.running import PHOTOS, mini, process

LABELS = ["person", "dog", "train", "flower"]


@pytest.mark.torch
def test_sigterm_finishes_what_was_accepted_and_takes_nothing_new():
    with process("--method", "ml-tta") as (url, running):
        found: list[dict] = []
        asking = threading.Thread(target=lambda: found.extend(Client(url, retries=0).tag(PHOTOS[:3], LABELS)))
        asking.start()
        end = time.monotonic() + 60
        while "mltta_calls_in_flight 1.0" not in httpx.get(f"{url}/metrics").text:
            assert time.monotonic() < end
        running.send_signal(signal.SIGTERM)
        asking.join(120)
        assert running.wait(60) == 0
        want = Tagger(mini(), LABELS, "ml-tta")
        assert [entry["labels"] for entry in found] == [want(photo).shown for photo in PHOTOS[:3]]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health")


@pytest.mark.soak
def test_killed_and_started_again_every_answer_comes_and_is_the_offline_one():
    tagger = Tagger(mini(), LABELS)
    want = {photo: tagger(photo).shown for photo in PHOTOS}
    wrong: list[str] = []
    answered = 0
    lock = threading.Lock()
    stop = threading.Event()

    def ask(url: str, first: int) -> None:
        nonlocal answered
        number = first
        with Client(url, retries=30) as client:
            while not stop.is_set():
                photo = PHOTOS[number % len(PHOTOS)]
                (entry,) = client.tag([photo], LABELS)
                with lock:
                    answered += 1
                    if entry.get("labels") != want[photo]:
                        wrong.append(f"{photo.name}: {entry}")
                number += 1

    with process() as (url, running):
        port = url.rpartition(":")[2]
        clients = [threading.Thread(target=ask, args=(url, n)) for n in range(4)]
        for one in clients:
            one.start()
        time.sleep(5)
        running.kill()
        running.wait()
    before = answered
    for _ in range(3):
        with process("--port", port) as (_, running):
            time.sleep(6)
            running.kill()
            running.wait()
    with process("--port", port):
        time.sleep(5)
        stop.set()
        for one in clients:
            one.join(120)
            assert not one.is_alive()
    assert wrong == []
    assert answered > before > 0
