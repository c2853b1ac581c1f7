"""Chat completions on the wire: questions written, answers and complaints read, whatever they turn out to be."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.error
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from mltta.captions.generate.engines import Answer


class Trouble(Exception):
    """A request that failed, and whether it may work when tried again."""

    def __init__(
        self, why: str, *, passing: bool = True, wait: float | None = None, refuses: tuple[str, ...] = ()
    ) -> None:
        """Args:
        wait: seconds that the endpoint asked to wait.
        refuses: names of parameters that it complained about.
        """
        super().__init__(why)
        self.passing, self.wait, self.refuses = passing, wait, refuses


def encode(model: str, prompt: str, extra: Mapping[str, Any]) -> bytes:
    """A chat of one question."""
    held = {"model": model, "messages": [{"role": "user", "content": prompt}], **extra}
    return json.dumps(held).encode()


def completion(n: int, body: bytes) -> Answer:
    """The answer in a response; an empty one, as filters give, is an answer too."""
    try:
        held = json.loads(body)
        text = held["choices"][0]["message"]["content"]
        usage = held.get("usage") or {}
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise Trouble(f"what came back is no chat completion: {_excerpt(body)}") from error
    if not isinstance(text, str | None):
        raise Trouble(f"what came back is no chat completion: {_excerpt(body)}")
    return Answer(n, text or "", *(count if isinstance(count, int) else 0 for count in counts))


def complaint(error: urllib.error.HTTPError) -> str:
    """What an endpoint says about a failure, in a line."""
    body = b""
    with contextlib.suppress(OSError):
        body = error.read(4000)
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        held = json.loads(body)["error"]
        return _excerpt(str(held["message"] if isinstance(held, dict) else held).encode())
    return _excerpt(body) if body else str(error.reason)


def wait_asked_for(header: str | None) -> float | None:
    """Seconds from a Retry-After header: a number, or a date."""
    if header is None:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(header))
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return None


def _excerpt(body: bytes) -> str:
    """The beginning of a body, in one line and without HTML."""
    text = " ".join(re.sub(r"<[^>]*>", " ", body[:4000].decode(errors="replace")).split())
    return f"{text[:200]}…" if len(text) > 200 else text or "nothing"
