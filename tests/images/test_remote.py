"""Photos from the web: what comes back, what is refused, and that nothing is fetched unasked."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mltta import Tagger
from mltta.errors import ImageError
from mltta.images import remote
from mltta.images.remote import fetch
from tests import golden_data as golden
from tests.test_tagger import LABELS, photo

asked: list[str] = []


def png() -> bytes:
    held = io.BytesIO()
    photo(0).save(held, "PNG")
    return held.getvalue()


class Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked.append(self.path)
        if self.path == "/slow":
            time.sleep(1.5)
        if self.path in ("/there", "/file"):
            self.send_response(302)
            self.send_header("Location", "/photo" if self.path == "/there" else "file:///etc/hostname")
            self.end_headers()
            return
        self.send_response(404 if self.path == "/gone" else 200)
        body = png()
        if self.path == "/announced":
            self.send_header("Content-Length", str(1 << 40))
        elif self.path != "/endless":
            self.send_header("Content-Length", str(len(body) + 10 * (self.path == "/short")))
        self.end_headers()
        try:
            for _ in range(1000 if self.path == "/endless" else 1):
                self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MOST_BYTES", 20 * len(png()))
    monkeypatch.setattr(remote, "PATIENCE", 0.5)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    asked.clear()


@pytest.mark.parametrize("path", ["/photo", "/there"])
def test_the_bytes_of_a_photo_come_back_after_a_redirection_too(web, path):
    assert fetch(web + path) == png()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/gone", "the server responded with 404 Not Found"),
        ("/announced", "more than .* bytes"),
        ("/endless", "more than .* bytes"),
        ("/short", "was interrupted|cannot be downloaded"),
        ("/slow", "no response within"),
        ("/file", "302|not allowed|cannot be downloaded"),
    ],
)
def test_what_cannot_be_had_is_an_error_that_names_the_address(web, path, says):
    with pytest.raises(ImageError, match=rf"^{web}{path}: .*({says})"):
        fetch(web + path)


def test_a_server_that_is_not_there_is_an_error():
    with pytest.raises(ImageError, match=r"^http://127\.0\.0\.1:9/x: cannot be downloaded"):
        fetch("http://127.0.0.1:9/x")


def test_a_tagger_fetches_addresses_where_that_is_allowed_and_only_there(web, tmp_path: Path):
    photo(0).save(tmp_path / "a.png")
    allowed = Tagger(golden.backbone("vit"), LABELS, "clip", allow_urls=True)
    found, gone, file = allowed([f"{web}/photo", f"{web}/gone", tmp_path / "a.png"])
    assert list(found) == list(file) != []
    assert (found.image, gone.image) == (f"{web}/photo", f"{web}/gone")
    assert "404" in gone.error
    asked.clear()
    with pytest.raises(ImageError, match="fetching URLs is not enabled"):
        Tagger(golden.backbone("vit"), LABELS, "clip")(f"{web}/photo")
    assert asked == []
