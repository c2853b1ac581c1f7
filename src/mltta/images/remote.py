"""Download of photos by URL, only if enabled, with limits on size and time."""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

from mltta.errors import ImageError
from mltta.storage.reading import shorten

#: limits: bytes per photo, seconds without a response, and seconds from the connection to the last byte
MOST_BYTES, PATIENCE, LONGEST = 64 << 20, 10.0, 60.0
_PIECE = 1 << 16


def fetch(
    url: str,
    *,
    public: bool = False,
    most: int | None = None,
    seconds: float | None = None,
    hold: Callable[[int], object] = lambda _: None,
) -> bytes:
    """Download a URL; raises ImageError with the reason.

    Args:
        public: only from public hosts, so that a server's internal network cannot be read.
        most: maximum number of bytes (default: MOST_BYTES).
        seconds: time limit until the last byte (at most LONGEST).
        hold: receives the size of each piece, and may raise an error.
    """
    most = MOST_BYTES if most is None else most
    allowed = LONGEST if seconds is None else min(seconds, LONGEST)
    end = time.monotonic() + allowed
    # no other handlers, so redirects cannot lead to files or other protocols
    opener = urllib.request.OpenerDirector()
    ways: list[Any] = [urllib.request.HTTPRedirectHandler(), urllib.request.HTTPDefaultErrorHandler()]
    ways += [] if public else [urllib.request.ProxyHandler()]  # a proxy would resolve names itself
    for handler in (_Web(end, public), *ways, urllib.request.HTTPErrorProcessor()):
        opener.add_handler(handler)
    try:
        if allowed <= 0:
            raise TimeoutError
        request = urllib.request.Request(url, headers={"User-Agent": "mltta", "Accept": "image/*"})
        with opener.open(request, timeout=min(PATIENCE, allowed)) as answer:
            announced = answer.headers.get("Content-Length", "")
            if announced.isdigit() and int(announced) > most:
                raise _too_large(url, most)
            found = bytearray()
            while piece := answer.read1(_PIECE):
                hold(len(piece))
                found += piece
                if len(found) > most:
                    raise _too_large(url, most)
            if announced.isdigit() and len(found) < int(announced):
                raise ImageError(f"{url}: the connection was interrupted; try again")
            return bytes(found)
    except urllib.error.HTTPError as error:
        raise ImageError(f"{url}: the server responded with {error.code} {shorten(error.reason)}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if time.monotonic() >= end:
            raise ImageError(f"{url}: slower than {max(0, allowed):.0f} seconds; download it first") from None
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise ImageError(f"{url}: no response within {PATIENCE:.0f} seconds; try again later") from None
        raise ImageError(f"{url}: cannot be downloaded: {shorten(str(reason))}") from None


class _Timed(io.RawIOBase):
    """Reads from a socket until a time; each read waits at most PATIENCE."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, end: float):
        self._sock, self._raw, self._end = sock, raw, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (left := self._end - time.monotonic()) <= 0:
            raise TimeoutError
        self._sock.settimeout(min(PATIENCE, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response whose header lines count against the time limit too."""

    def __init__(self, sock: socket.socket, *args: Any, end: float, **options: Any):
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_Timed(sock, self.fp.detach(), end))


def _too_large(url: str, most: int) -> ImageError:
    return ImageError(f"{url}: more than {most:,} bytes; download it and make it smaller first")


def is_public(address: str) -> bool:
    """Whether an IP address is public, including addresses embedded in IPv6.

    Example:
        >>> is_public("93.184.215.14"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1")
        (True, False, False)
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if any(found in network for network in _SPECIAL if network.version == found.version):
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if not inner and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner:
            return is_public(str(inner)) and (found in _NAT64 or bool(found.ipv4_mapped) or found.is_global)
        if found not in _UNICAST:
            return False
    return found.is_global and not found.is_multicast


#: the only IPv6 addresses that are assigned to hosts on the internet
_UNICAST, _NAT64 = ipaddress.ip_network("2000::/3"), ipaddress.ip_network("64:ff9b::/96")
#: routed only inside a network or a cloud: protocol assignments, 6to4 relays, Azure's host, documentation
_SPECIAL = [
    ipaddress.ip_network(one)
    for one in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20", "2001:db8::/32")
]


def _connect_public(place: tuple[str, int], timeout: float, source: Any = None) -> socket.socket:
    """Resolve a name once, refuse it if any address is not public, and connect to the resolved address."""
    found = [own[4] for own in socket.getaddrinfo(*place, type=socket.SOCK_STREAM)]
    if not found or not all(is_public(str(own[0])) for own in found):
        raise OSError("this host is not on the public internet")
    return socket.create_connection((str(found[0][0]), place[1]), timeout, source)


class _Web(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens web URLs, if asked only on the public internet; certificates are verified against the host name."""

    def __init__(self, end: float, public: bool):
        super().__init__()
        self._end, self._public = end, public

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._opened(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._opened(http.client.HTTPSConnection, req)

    def _opened(self, kind: Any, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(*args: Any, **options: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = kind(*args, **options)
            vars(made)["response_class"] = partial(_Response, end=self._end)
            if self._public:
                vars(made)["_create_connection"] = _connect_public
            return made

        return self.do_open(connection, req)
