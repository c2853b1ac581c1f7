"""Many clients for minutes, misbehaving ones among them; and a server that is killed under load, again and again."""

from __future__ import annotations

import base64
import os
import random
import re
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from mltta import Tagger
from mltta.serve.client import Client
from tests.fuzz.mutate import bytes_of
from tests.serve.running import PHOTOS, mini, process, wait_for

LABELS = ["person", "dog", "train", "flower"]
SECONDS = float(os.environ.get("MLTTA_LOAD_SECONDS", "300"))


class Load:
    """What 64 clients saw."""

    def __init__(self, url: str, seconds: float):
        self.url, self.end = url, time.monotonic() + seconds
        self.seen: Counter[str] = Counter()
        self.took: list[float] = []
        self.wrong: list[str] = []
        self.lock = threading.Lock()
        tagger = Tagger(mini(), LABELS, "clip")
        self.want = {photo: tagger(photo).shown for photo in PHOTOS}

    def polite(self, number: int) -> None:
        """Sends photos one by one, and checks each answer."""
        chance = random.Random(number)
        with httpx.Client(base_url=self.url, timeout=120) as http:
            while time.monotonic() < self.end:
                photo = chance.choice(PHOTOS)
                start = time.monotonic()
                try:
                    answer = self._ask(http, photo, chance.random() < 0.3)
                except httpx.HTTPError as error:
                    self._note(f"polite {type(error).__name__}", wrong=repr(error))
                    continue
                took = time.monotonic() - start
                if answer.status_code == 429:
                    self._note("polite 429")
                    time.sleep(chance.uniform(0.5, 1.5))
                elif (
                    answer.status_code != 200 or answer.json()["images"][0].get("labels") != self.want[photo]
                ):
                    self._note(f"polite {answer.status_code}", wrong=answer.text[:300])
                else:
                    self._note("polite 200", took)

    def _ask(self, http: httpx.Client, photo: Path, as_json: bool) -> httpx.Response:
        if as_json:
            data = base64.b64encode(photo.read_bytes()).decode()
            body = {"images": [{"data": data}], "labels": LABELS, "method": "clip"}
            return http.post("/v1/tag", json=body)
        files = [("images", ("a.jpg", photo.read_bytes()))]
        return http.post("/v1/tag", files=files, data={"labels": ", ".join(LABELS), "method": "clip"})

    def rude(self, number: int) -> None:
        """Leaves, sends slowly, sends too much, or sends what is not an image."""
        chance = random.Random(number)
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        head = b"POST /v1/tag HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        large = b'{"images":[' + b"{}," * 1_000_000 + b"{}]}"
        while time.monotonic() < self.end:
            how = chance.randrange(5)
            try:
                if how == 0:
                    answer = httpx.post(
                        f"{self.url}/v1/tag", content=large, headers={"content-type": "application/json"}
                    )
                    self._note(
                        f"rude {answer.status_code}", wrong=answer.text if answer.status_code >= 500 else ""
                    )
                elif how == 1:
                    spoiled = bytes_of(chance.choice(PHOTOS).read_bytes(), chance)
                    answer = httpx.post(f"{self.url}/v1/tag", files=[("images", ("a", spoiled))], timeout=120)
                    self._note(
                        f"rude {answer.status_code}", wrong=answer.text if answer.status_code >= 500 else ""
                    )
                else:
                    with socket.create_connection((host, int(port)), 10) as raw:
                        raw.sendall(
                            head
                            + (
                                b"content-length: 1000\r\n\r\n{",
                                b"transfer-encoding: chunked\r\n\r\nzz\r\n",
                                b"x",
                            )[how - 2]
                        )
                        time.sleep(chance.uniform(0, 3))
                    self._note("rude left")
            except (httpx.HTTPError, OSError) as error:
                self._note(f"rude {type(error).__name__}")
            time.sleep(chance.uniform(0, 0.5))

    def _note(self, what: str, took: float | None = None, wrong: str = "") -> None:
        with self.lock:
            self.seen[what] += 1
            if took is not None:
                self.took.append(took)
            if wrong:
                self.wrong.append(f"{what}: {wrong}")

    def run(self, polite: int, rude: int) -> None:
        clients = [threading.Thread(target=self.polite, args=(n,)) for n in range(polite)]
        clients += [threading.Thread(target=self.rude, args=(n,)) for n in range(rude)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()


def memory(running: int) -> int:
    """Resident memory of a process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{running}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.soak
def test_sixty_four_clients_for_five_minutes_sixteen_of_them_misbehaving(capsys):
    with process("--method", "clip", "--quiet") as (url, running):
        Load(url, 5).run(4, 0)
        before = memory(running.pid)
        load = Load(url, SECONDS)
        load.run(48, 16)
        time.sleep(2)
        after = memory(running.pid)
        took = sorted(load.took)
        middle, slow = (took[int(share * len(took))] for share in (0.5, 0.99))
        with capsys.disabled():
            print(
                f"\n{dict(load.seen)}; seconds: median {middle:.2f}, p99 {slow:.2f}; MB {before} -> {after}"
            )
        assert load.wrong == []
        assert load.seen["polite 200"] > 0
        assert after < before + 300
        figures = httpx.get(f"{url}/metrics").text
        assert "mltta_calls_in_flight 0.0" in figures
        assert 'status="500"' not in figures


@pytest.mark.soak
def test_a_server_killed_ten_times_under_load_gives_equal_answers(tmp_path):
    tagger = Tagger(mini(), LABELS, "clip")
    want = {photo: tagger(photo).shown for photo in PHOTOS}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, wrong, answered, stop = f"http://127.0.0.1:{port}", [], Counter(), threading.Event()

    def ask(first: int) -> None:
        number = first
        with Client(url, retries=60) as client:
            while not stop.is_set():
                photo = PHOTOS[number % len(PHOTOS)]
                if client.tag([photo], LABELS, method="clip")[0].get("labels") != want[photo]:
                    wrong.append(photo.name)
                answered["calls"] += 1
                number += 1

    clients = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for round_ in range(10):
        with process("--method", "clip", "--quiet", "--port", str(port)) as (_, running):
            if round_ == 0:
                for one in clients:
                    one.start()
            time.sleep(random.Random(round_).uniform(0.5, 2))
            running.kill()
            running.wait()
    with process("--method", "clip", "--quiet", "--port", str(port)):
        wait_for(url)
        stop.set()
        for one in clients:
            one.join(120)
    assert wrong == []
    assert answered["calls"] > 10
