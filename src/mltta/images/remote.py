"""Download of photos by URL, only if enabled, with limits on size and time."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import time
import urllib.error
import urllib.request
from typing import Any

from mltta.errors import ImageError

#: limits: bytes per photo, seconds without a response, and seconds in total
MOST_BYTES, PATIENCE, LONGEST = 64 << 20, 10.0, 60.0
_PIECE = 1 << 16


def fetch(url: str, *, public: bool = False) -> bytes:
    """Download a URL; raises ImageError with the reason.

    Args:
        public: only from public hosts, so that a server's internal network cannot be read.
    """
    # no other handlers, so redirects cannot lead to files or other protocols
    opener = urllib.request.OpenerDirector()
    ways: list[Any] = [_Public]
    if not public:  # a proxy would resolve names itself
        ways = [urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler]
    ways += [urllib.request.HTTPRedirectHandler, urllib.request.HTTPDefaultErrorHandler]
    for handler in (*ways, urllib.request.HTTPErrorProcessor):
        opener.add_handler(handler())
    end = time.monotonic() + LONGEST
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "mltta", "Accept": "image/*"})
        with opener.open(request, timeout=PATIENCE) as answer:
            announced = answer.headers.get("Content-Length", "")
            if announced.isdigit() and int(announced) > MOST_BYTES:
                raise _too_large(url)
            found = bytearray()
            while piece := answer.read1(_PIECE):
                found += piece
                if len(found) > MOST_BYTES:
                    raise _too_large(url)
                if time.monotonic() > end:
                    raise ImageError(f"{url}: slower than {LONGEST:.0f} seconds; download it first")
            if announced.isdigit() and len(found) < int(announced):
                raise ImageError(f"{url}: the connection was interrupted; try again")
            return bytes(found)
    except urllib.error.HTTPError as error:
        raise ImageError(f"{url}: the server responded with {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise ImageError(f"{url}: no response within {PATIENCE:.0f} seconds; try again later") from None
        raise ImageError(f"{url}: cannot be downloaded: {reason}") from None


def _too_large(url: str) -> ImageError:
    return ImageError(f"{url}: more than {MOST_BYTES:,} bytes; download it and make it smaller first")


def is_public(address: str) -> bool:
    """Whether an IP address is public, including addresses embedded in IPv6.

    Example:
        >>> is_public("93.184.215.14"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1")
        (True, False, False)
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if not inner and (found in _NAT64 or found in _COMPATIBLE):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner and not is_public(str(inner)):
            return False
    return found.is_global and not found.is_multicast


_NAT64, _COMPATIBLE = ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96")


def _connect_public(place: tuple[str, int], timeout: float, source: Any = None) -> socket.socket:
    """Resolve a name once, refuse it if any address is not public, and connect to the resolved address."""
    found = [own[4] for own in socket.getaddrinfo(*place, type=socket.SOCK_STREAM)]
    if not found or not all(is_public(str(own[0])) for own in found):
        raise OSError("this host is not on the public internet")
    return socket.create_connection((str(found[0][0]), place[1]), timeout, source)


class _Public(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Open URLs only on the public internet; certificates are verified against the host name."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._opened(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._opened(http.client.HTTPSConnection, req)

    def _opened(self, kind: Any, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(*args: Any, **options: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = kind(*args, **options)
            vars(made)["_create_connection"] = _connect_public
            return made

        return self.do_open(connection, req)
