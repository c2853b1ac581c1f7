"""Who may ask, from where, how much and how slowly."""

from __future__ import annotations

import hmac
import logging
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from mltta.cli import app
from mltta.errors import ConfigError
from mltta.serve.offer import Limits
from mltta.serve.server import check_access
from tests.serve.running import PHOTOS, serving

TOKEN = "a-secret-of-some-length-7c1f"
SMALL = Limits(
    body_bytes=300_000, image_bytes=200_000, images=3, megapixels=2, calls=2, head_seconds=1, body_seconds=1
)


@pytest.fixture(scope="module")
def small():
    with serving(("clip",), limits=SMALL, token=TOKEN) as address:
        yield address


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def post(url: str, **options) -> httpx.Response:
    options.setdefault("headers", bearer())
    return httpx.post(f"{url}/v1/tag", timeout=30, **options)


def photo(name: str = "a.jpg") -> list:
    return [("images", (name, PHOTOS[0].read_bytes()))]


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong"), bearer(TOKEN[:-1]), bearer(TOKEN + "x"), {"authorization": TOKEN}]
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/labels/voc", "/metrics", "/openapi.json"])
def test_without_the_token_nothing_is_told(small, headers, path):
    answer = httpx.get(f"{small}{path}", headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "missing or invalid token" in answer.json()["error"]
    assert httpx.get(f"{small}{path}", headers=bearer()).status_code == 200


def test_tokens_are_compared_in_constant_time(small, monkeypatch):
    seen = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append((a, b)) or compare(a, b))
    httpx.get(f"{small}/v1/models", headers=bearer("guess"))
    assert seen == [(b"guess", TOKEN.encode())]


def test_the_page_and_its_health_need_no_token(small):
    for path in ("/", "/health", "/ready"):
        assert httpx.get(f"{small}{path}").status_code == 200


def test_beyond_this_machine_a_token_is_asked_for_and_a_short_one_refused():
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org"):
        with pytest.raises(ConfigError, match="is reachable from other machines"):
            check_access(host, None)
    with pytest.raises(ConfigError, match="at least 16"):
        check_access("0.0.0.0", "short")
    check_access("127.0.0.1", None)
    with pytest.raises(ConfigError, match="--token-file FILE"):
        app(["serve", "--host", "0.0.0.0"], standalone_mode=False)


def test_another_name_or_another_site_is_turned_away(url):
    for headers in ({"host": "evil.example"}, {"host": "evil.example:80"}, {"sec-fetch-site": "cross-site"}):
        answer = httpx.get(f"{url}/v1/models", headers=headers)
        assert answer.status_code == 403, headers
    assert httpx.get(f"{url}/", headers={"sec-fetch-site": "cross-site"}).status_code == 200
    for headers in ({"host": "localhost:99"}, {"host": "[::1]"}, {"sec-fetch-site": "same-origin"}):
        assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/page/../../../../../../etc/passwd",
        "/page/..%2f..%2f__init__.py",
        "/page/%2e%2e/%2e%2e/app.py",
        "/page//etc/passwd",
        "/page/index.html%00.js",
        "/..%5c..%5cwindows",
        "/v1/labels/..%2f..%2fetc%2fpasswd",
        "/v1/labels//etc/passwd",
    ],
)
def test_no_file_can_be_reached_by_a_path(url, path):
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), 10) as raw:  # a client of ours would tidy the path up
        raw.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split(b" ")[1] in (b"404", b"400")
    assert b"root:" not in answer
    assert b"import" not in answer


def test_no_file_can_be_reached_by_a_label_a_method_or_a_setting(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "labels.txt"
    secret.write_text("secret word\nanother\n")
    own = tmp_path / "my_method.py"
    own.write_text("raise SystemExit('this ran')\n")
    form = {"labels": "labels.txt, dog", "all": "true"}
    answer = httpx.post(f"{url}/v1/tag", files=photo(), data=form).json()
    assert {item["label"] for item in answer["images"][0]["labels"]} == {"labels.txt", "dog"}
    for field in (
        {"labels": "labels.txt"},
        {"labels": str(secret)},
        {"method": own.name},
        {"method": str(own)},
        {"model": str(tmp_path)},
        {"settings": '{"generated": "/etc"}'},
    ):
        answer = httpx.post(f"{url}/v1/tag", files=photo(), data=field)
        assert answer.status_code == 422
        assert "secret word" not in answer.text


def test_too_much_is_refused_before_it_is_read(small):
    answer = post(small, files=[("images", ("a", b"x" * 400_000))])
    assert (answer.status_code, "larger than 300,000 bytes" in answer.text) == (413, True)

    def chunks():
        for _ in range(40):
            yield b"x" * 10_000

    answer = post(small, content=chunks(), headers={**bearer(), "content-type": "application/json"})
    assert answer.status_code == 413
    answer = post(small, files=[("images", (str(n), b"x")) for n in range(4)])
    assert answer.status_code in (400, 413)
    answer = post(small, files=[("images", ("large.jpg", b"\xff\xd8\xff" + b"x" * 250_000))])
    assert "large.jpg: larger than 200,000 bytes" in answer.json()["images"][0]["error"]


def bomb(wide: int, tall: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", wide, tall, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def test_bombs_are_defused(small):
    files = [("images", ("pixels.png", bomb(60_000, 60_000))), ("images", ("large.png", bomb(2000, 1001)))]
    entries = post(small, files=files).json()["images"]
    assert entries[0]["error"].startswith("pixels.png: too large")
    assert entries[1]["error"].startswith("large.png: 2000x1001 exceeds 2 megapixels")
    headers = {**bearer(), "content-type": "application/json", "content-encoding": "gzip"}
    squeezed = zlib.compress(b'{"images": []}' + b" " * 50_000_000, wbits=31)
    assert post(small, content=squeezed, headers=headers).status_code in (415, 422)


def raw(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def test_a_client_that_never_finishes_its_head_is_left(small):
    with raw(small) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        start = time.monotonic()
        assert slow.recv(100) == b""
        assert 0.5 < time.monotonic() - start < 5


def test_a_client_that_sends_its_body_too_slowly_is_told_so(small):
    with raw(small) as slow:
        head = f"POST /v1/tag HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
        slow.sendall(head.encode() + b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
        answer = b"".join(iter(lambda: slow.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"took longer than 1 seconds" in answer


def test_a_client_that_leaves_harms_nobody(url):
    for _ in range(3):
        with raw(url) as gone:
            gone.sendall(b"POST /v1/tag HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
            gone.sendall(b"content-length: 100\r\n\r\n{")
    assert (
        httpx.post(f"{url}/v1/tag", files=photo(), data={"labels": "dog", "method": "clip"}).status_code
        == 200
    )


def test_a_full_server_says_when_to_come_back_and_serves_on(small):
    def ask(_: int) -> httpx.Response:
        return post(small, files=photo(), data={"labels": "dog, cat"})

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(24)))
    found = {answer.status_code for answer in answers}
    assert found == {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "1"
    assert post(small, files=photo(), data={"labels": "dog"}).status_code == 200


def test_logs_hold_no_token_no_image_and_no_query(small, caplog):
    def said() -> str:
        ours = (record for record in caplog.records if record.name.startswith(("mltta", "uvicorn")))
        return "\n".join(record.getMessage() for record in ours)

    with caplog.at_level(logging.DEBUG):
        post(small, files=photo("private-name.jpg"), data={"labels": "private-label, dog"})
        httpx.get(f"{small}/v1/models?key=private-query", headers=bearer())
        end = time.monotonic() + 10
        while "GET /v1/models 200" not in said() and time.monotonic() < end:
            time.sleep(0.02)  # a call is written down after its answer has gone
    assert "POST /v1/tag 200" in said()
    assert "GET /v1/models 200" in said()
    assert "private" not in said()
    assert TOKEN not in said()


def test_nothing_that_is_sent_is_written_to_disk(url, monkeypatch):
    import tempfile

    def refuse(*_, **__):
        raise AssertionError("a file was made")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", refuse)
    large = PHOTOS[0].read_bytes() + b"\0" * 3_000_000
    answer = httpx.post(f"{url}/v1/tag", files=[("images", ("a.jpg", large))], data={"labels": "dog, person"})
    assert "present" in answer.json()["images"][0]


def test_answers_tell_browsers_to_keep_to_themselves(url):
    headers = httpx.get(f"{url}/").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers
