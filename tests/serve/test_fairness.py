"""One caller cannot delay another, whatever it sends; requests are refused before they cost time or memory."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from mltta.images import remote
from mltta.serve.offer import Limits
from tests.serve.running import PHOTOS, serving

MANY = 2_000_000


@contextmanager
def drip() -> Iterator[str]:
    """A server that sends one header line after another, and never the photo."""
    listening = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def answer(client: socket.socket) -> None:
        with client:
            try:
                client.sendall(b"HTTP/1.1 200 OK\r\n")
                while not stop.wait(0.2):
                    client.sendall(b"X-Slow: 1\r\n")
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/photo.jpg"
    stop.set()
    listening.close()


def tag(url: str) -> httpx.Response:
    files = [("images", ("a.jpg", PHOTOS[0].read_bytes()))]
    return httpx.post(f"{url}/v1/tag", files=files, data={"labels": "dog, cat", "method": "clip"}, timeout=30)


@contextmanager
def watched(url: str) -> Iterator[list[float]]:
    """The seconds that /health took, asked again and again during the block."""
    took: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not stop.wait(0.01):
                start = time.monotonic()
                http.get("/health")
                took.append(time.monotonic() - start)

    asking = threading.Thread(target=ask)
    asking.start()
    yield took
    stop.set()
    asking.join()


def test_a_slow_server_that_one_caller_names_delays_no_other_caller(monkeypatch):
    monkeypatch.setattr(remote, "is_public", lambda _: True)
    limits = Limits(seconds=5)
    with drip() as slow, serving(("clip",), limits=limits, allow_urls=True) as url:
        tag(url)  # its labels are encoded
        body = {"images": [{"url": slow}] * 32, "labels": ["dog"], "method": "clip"}
        with ThreadPoolExecutor(4) as pool:
            start = time.monotonic()
            waiting = [pool.submit(httpx.post, f"{url}/v1/tag", json=body, timeout=60) for _ in range(4)]
            time.sleep(0.5)
            others = []
            for _ in range(3):
                begun = time.monotonic()
                assert tag(url).status_code == 200
                others.append(time.monotonic() - begun)
            assert max(others) < 2
            answers = [one.result() for one in waiting]
        # the time limit covers the header lines too: each waits half of it
        assert time.monotonic() - start < 2 * limits.seconds
        for answer in answers:
            assert answer.status_code == 200
            assert all("slower than" in entry["error"] for entry in answer.json()["images"])


def test_calls_that_fetch_leave_room_for_calls_that_do_not(monkeypatch):
    monkeypatch.setattr(remote, "is_public", lambda _: True)
    with drip() as slow, serving(("clip",), limits=Limits(seconds=5, calls=4), allow_urls=True) as url:
        tag(url)
        body = {"images": [{"url": slow}], "labels": ["dog"], "method": "clip"}
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(httpx.post, f"{url}/v1/tag", json=body, timeout=60) for _ in range(2)]
            time.sleep(0.5)
            assert httpx.post(f"{url}/v1/tag", json=body, timeout=60).status_code == 429
            assert tag(url).status_code == 200
            assert {one.result().status_code for one in waiting} == {200}


def peak() -> int:
    """The largest memory of this process so far, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


LABEL = b'{"label":"dog","score":0.5}'
BODIES = {
    "images": ("/v1/tag", b'{"images":[' + b"{}," * MANY + b"{}]}"),
    "images in white space": ("/v1/tag", b'{"images":[' + b" {} ,\n" * MANY + b"{}]}"),
    "labels": ("/v1/tag", b'{"images":[{"data":""}],"labels":[' + b'"a",' * MANY + b'"a"]}'),
    "a label": ("/v1/tag", b'{"images":[{"data":""}],"labels":["' + b"a" * 50_000_000 + b'"]}'),
    "a text of labels": ("/v1/tag", b'{"images":[{"data":""}],"labels":"' + b"a," * 25_000_000 + b'"}'),
    "escapes": ("/v1/tag", b'{"images":[{"data":"' + rb"\"" * MANY + b'"}]}'),
    "settings": ("/v1/tag", b'{"images":[{"data":""}],"settings":{' + b'"a":1,' * MANY + b'"b":1}}'),
    "depth": ("/v1/tag", b'{"images":' + b"[" * MANY),
    "entries to export": ("/v1/export", b'{"format":"csv","images":[' + b'{"image":""},' * MANY + b"{}]}"),
    "labels to export": (
        "/v1/export",
        b'{"format":"csv","images":[{"image":"","labels":[' + (LABEL + b",") * 1_000_000 + LABEL + b"]}]}",
    ),
    "shown labels to export": (
        "/v1/export",
        b'{"format":"csv","images":[{"image":"","present":[' + b'"a",' * MANY + b'"a"]}]}',
    ),
}


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux")
def test_a_body_with_too_many_parts_is_refused_before_it_is_parsed(url, what):
    path, body = BODIES[what]
    headers = {"content-type": "application/json"}
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    with watched(url) as took:
        start = time.monotonic()
        answer = httpx.post(f"{url}{path}", content=body, headers=headers, timeout=120)
        seconds = time.monotonic() - start
    assert answer.status_code in (413, 422), answer.text
    # the client's and the server's copies of the body are in this process too
    assert peak() - before < 50_000_000 + 3 * len(body)
    assert seconds < 0.2 + len(body) / 20e6
    assert max(took, default=0) < 0.5
    assert len(answer.json()["error"]) < 300


def test_a_client_that_leaves_or_sends_a_bad_chunk_is_no_fault_of_the_server(url, caplog):
    host, _, port = url.removeprefix("http://").rpartition(":")
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: %s\r\n"
    with caplog.at_level(logging.INFO):
        for path in (b"/v1/tag", b"/v1/export"):
            for kind in (b"application/json", b"multipart/form-data; boundary=x"):
                for rest in (b"content-length: 100\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\nzz\r\n{"):
                    with socket.create_connection((host, int(port)), 10) as gone:
                        gone.sendall(head % (path, kind) + rest)
                        time.sleep(0.05)
        end = time.monotonic() + 10
        while caplog.text.count("POST /v1/") < 8 and time.monotonic() < end:
            time.sleep(0.02)
    said = [line for line in caplog.text.splitlines() if "POST /v1/" in line]
    assert len(said) == 8
    assert not any(" 500 " in line for line in said), said
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]
    figures = httpx.get(f"{url}/metrics").text
    assert not [line for line in figures.splitlines() if 'status="500"' in line]


def test_requests_from_another_origin_are_refused_also_by_old_browsers(url):
    host = url.removeprefix("http://")
    for origin in (
        "https://evil.example",
        "null",
        "http://[",
        f"http://{host}.evil.example",
        "http://localhost:1",
    ):
        for path in ("/v1/models", "/v1/tag", "/health"):
            answer = httpx.request(
                "POST" if path == "/v1/tag" else "GET", url + path, headers={"origin": origin}
            )
            assert answer.status_code == 403, (origin, path)
    assert httpx.get(f"{url}/v1/models", headers={"origin": url}).status_code == 200
    # the browser compared the two itself
    fetched = {"origin": "https://proxy.example", "sec-fetch-site": "same-origin"}
    assert httpx.get(f"{url}/v1/models", headers=fetched).status_code == 200


def test_errors_say_which_part_is_too_large(url):
    ask = [(json.dumps({"images": [{"data": ""}] * 33}), 413, "33; the limit per request is 32")]
    long = {"images": [{"data": ""}], "labels": ["a" * 201]}
    ask += [(json.dumps(long), 422, "201 characters; the limit is 200")]
    ask += [(json.dumps({"images": [{"data": "", "name": "a" * 1001}]}), 422, "images.0.name")]
    for body, status, said in ask:
        answer = httpx.post(f"{url}/v1/tag", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
