"""Photos by their address on the web, fetched only where that was asked for, bounded in size and time."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request

from mltta.errors import ImageError

#: bytes of a photo, seconds without an answer, and seconds in all
MOST_BYTES, PATIENCE, LONGEST = 64 << 20, 10.0, 60.0
_PIECE = 1 << 16


def is_url(source: object) -> bool:
    """Whether a source is an address rather than a file.

    Example:
        >>> is_url("https://example.org/cat.jpg"), is_url("cat.jpg"), is_url(b"https://")
        (True, False, False)
    """
    return isinstance(source, str) and source.lower().startswith(("http://", "https://"))


def fetch(url: str) -> bytes:
    """The bytes behind an address, or an ImageError that says why there are none."""
    # no other handlers: a redirection leads to no file and no other protocol
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    end = time.monotonic() + LONGEST
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "mltta", "Accept": "image/*"})
        with opener.open(request, timeout=PATIENCE) as answer:
            announced = answer.headers.get("Content-Length", "")
            if announced.isdigit() and int(announced) > MOST_BYTES:
                raise _too_large(url)
            pieces, total = [], 0
            while piece := answer.read1(_PIECE):
                pieces.append(piece)
                total += len(piece)
                if total > MOST_BYTES:
                    raise _too_large(url)
                if time.monotonic() > end:
                    raise ImageError(f"{url}: not there after {LONGEST:.0f} seconds; download it first")
            if announced.isdigit() and total < int(announced):
                raise ImageError(f"{url}: the connection broke off; try again")
            return b"".join(pieces)
    except urllib.error.HTTPError as error:
        raise ImageError(f"{url}: the server answers {error.code} {error.reason}") from None
    except TimeoutError:
        raise ImageError(f"{url}: no answer within {PATIENCE:.0f} seconds; try again later") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise ImageError(f"{url}: no answer within {PATIENCE:.0f} seconds; try again later") from None
        raise ImageError(f"{url}: cannot be fetched: {reason}") from None


def _too_large(url: str) -> ImageError:
    return ImageError(f"{url}: more than {MOST_BYTES:,} bytes; download it and make it smaller first")
