"""A server that fetches photos from addresses reads nothing of its own network."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest

from mltta.errors import ImageError
from mltta.images import remote


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ],
)
def test_this_machine_cannot_be_read_however_it_is_written(port, host):
    with pytest.raises(ImageError, match=r"not on the public internet|cannot be downloaded"):
        remote.fetch(f"http://{host}:{port}/", public=True)
    assert remote.fetch(f"http://127.0.0.1:{port}/") == b"secret"


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("255.255.255.255", "::", "::1", "fe80::1%eth0", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
        *("2002:7f00:1::", "ff02::1", "::7f00:1"),
        *("fec0::1", "64:ff9b:1::7f00:1", "::ffff:0:127.0.0.1", "192.0.0.192", "168.63.129.16"),
        *("192.88.99.1", "5f00::1", "3fff::1", "2001:db8::1", "::ffff:168.63.129.16", "2002:a83f:8110::1"),
        *("64:ff9b::168.63.129.16", "100::1", "4000::1", "192.0.0.9"),
    ],
)
def test_addresses_that_not_everybody_can_reach_are_none(address):
    assert not remote.is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "1.1.1.1", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::101:101"]
)
def test_addresses_on_the_internet_are_public(address):
    assert remote.is_public(address)


def names(monkeypatch, answers: dict[str, list[list[str]]], port: int) -> list[str]:
    """Have names resolve to these addresses, one answer after another; and where connections went."""
    went: list[str] = []

    def look_up(host, at, *_, **__):
        waiting = answers[host]
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, at)) for address in found]

    def connect(place, *_):
        went.append(place[0])
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.settimeout(10)
        made.connect(("127.0.0.1", port))
        return made

    monkeypatch.setattr(remote.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(remote.socket, "create_connection", connect)
    return went


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"]])
def test_a_name_that_leads_here_is_refused_also_beside_one_that_does_not(port, monkeypatch, answer):
    went = names(monkeypatch, {"photos.example": [answer]}, port)
    with pytest.raises(ImageError, match="not on the public internet"):
        remote.fetch("http://photos.example/", public=True)
    assert went == []


def test_a_name_is_looked_up_once_so_that_a_second_answer_changes_nothing(port, monkeypatch):
    went = names(monkeypatch, {"photos.example": [["93.184.215.14"], ["127.0.0.1"]]}, port)
    assert remote.fetch("http://photos.example/", public=True) == b"secret"
    assert went == ["93.184.215.14"]


def test_a_redirection_home_is_refused(port, monkeypatch):
    went = names(monkeypatch, {"photos.example": [["93.184.215.14"]], "home.example": [["127.0.0.1"]]}, port)
    with pytest.raises(ImageError, match="not on the public internet"):
        remote.fetch("http://photos.example/to/http://home.example/", public=True)
    for other in ("file:///etc/passwd", "ftp://home.example/x"):
        with pytest.raises(ImageError):
            remote.fetch(f"http://photos.example/to/{other}", public=True)
    assert went == ["93.184.215.14"] * 3


def test_a_proxy_of_the_environment_is_not_asked(port, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    with pytest.raises(ImageError, match="not on the public internet"):
        remote.fetch("http://localhost:1/", public=True)
