"""Captions from any server with OpenAI's chat completions API: llama.cpp, vLLM, Ollama, hosted ones."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import queue
import random
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from mltta.captions.generate.sampling import Answer, Request
from mltta.errors import EngineError

log = logging.getLogger("mltta")
OPENAI = "https://api.openai.com/v1"
#: status codes worth retrying
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LONGEST_BACKOFF, LONGEST_WAIT, LONGEST_ANSWER = 60.0, 600.0, 4_000_000
#: parameters that some endpoints reject; they are then omitted
OPTIONAL = ("temperature", "max_tokens", "seed")


class Trouble(Exception):
    """A failed request, and whether a retry may succeed."""

    def __init__(
        self, why: str, *, passing: bool = True, wait: float | None = None, refuses: tuple[str, ...] = ()
    ) -> None:
        """Args:
        wait: seconds to wait, as requested by the endpoint.
        refuses: names of rejected parameters.
        """
        super().__init__(why)
        self.passing, self.wait, self.refuses = passing, wait, refuses


class OpenAIEngine:
    """Sends several requests in parallel, retries with exponential backoff, and fails with a clear error."""

    def __init__(
        self,
        model: str,
        base_url: str = OPENAI,
        *,
        key: str | None = None,
        temperature: float = 0.7,
        max_tokens: int = 96,
        concurrency: int = 8,
        timeout: float = 60.0,
        retries: int = 5,
        pause: float = 1.0,
    ) -> None:
        """Args:
        model: model name at the endpoint.
        base_url: address, without /chat/completions.
        key: bearer token; None if the endpoint needs none.
        timeout: maximum seconds for a complete answer.
        retries: number of retries after a transient failure.
        pause: seconds before the first retry, doubled for each one after.
        """
        if not base_url.startswith(("http://", "https://")):
            raise EngineError(f"{base_url} is not a URL: give one such as http://localhost:8000/v1")
        self.url, self.model = base_url.rstrip("/") + "/chat/completions", model
        self.concurrency, self.timeout, self.retries, self.pause = concurrency, timeout, retries, pause
        self._settings = {"temperature": temperature, "max_tokens": max_tokens}
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key and key.strip():
            self._headers["Authorization"] = f"Bearer {key.strip()}"
        self._refused, self._warned = set[str](), False
        self._opener = urllib.request.build_opener(_NoRedirect)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and its sampling parameters; the address is not part of it."""
        return {"engine": "openai", "model": self.model, **self._settings}

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Yield answers as they arrive; after a failure or Ctrl-C, wait for pending requests, then raise."""
        waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        done: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()
        stop = threading.Event()
        for request in requests:
            waiting.put(request)

        def work() -> None:
            try:
                while not stop.is_set():
                    done.put(self._ask(waiting.get_nowait(), stop))
            except queue.Empty:
                pass
            except Exception as error:
                done.put(error)
            finally:
                done.put(None)

        running = min(self.concurrency, len(requests))
        for _ in range(running):
            threading.Thread(target=work, daemon=True).start()
        failure: BaseException | None = None
        try:
            while running:
                try:
                    item = done.get()
                except KeyboardInterrupt as interrupt:
                    if stop.is_set():
                        raise
                    failure = interrupt
                    stop.set()
                    continue
                if isinstance(item, Answer):
                    yield item
                elif item is None:
                    running -= 1
                else:
                    failure = failure or item
                    stop.set()
        finally:
            stop.set()
        if failure is not None:
            raise failure

    def _ask(self, request: Request, stop: threading.Event) -> Answer:
        """Send one request, with retries after transient failures."""
        tries = 0
        while True:
            extra = {**self._settings, "seed": request.seed}
            extra = {name: value for name, value in extra.items() if name not in self._refused}
            held = {"model": self.model, "messages": [{"role": "user", "content": request.prompt}], **extra}
            try:
                return completion(request.n, self._post(json.dumps(held).encode()))
            except Trouble as trouble:
                if extra.keys() & set(trouble.refuses):
                    self._refused.update(trouble.refuses)
                    continue
                tries += 1
                wait = trouble.wait
                if wait is None:  # as requested by the endpoint, or exponential backoff with jitter
                    wait = min(LONGEST_BACKOFF, self.pause * 2.0 ** (tries - 1)) * random.uniform(0.5, 1.0)
                    if not self._warned and trouble.passing and self.retries:
                        self._warned = True
                        log.warning("%s: %s; retrying up to %d times", self.url, trouble, self.retries)
                if not trouble.passing or tries > self.retries or wait > LONGEST_WAIT or stop.wait(wait):
                    times = "" if tries == 1 else f" {tries} times in a row, last error"
                    raise EngineError(f"{self.url} failed{times}: {trouble}") from trouble

    def _post(self, body: bytes) -> bytes:
        """Send one request; every failure raises Trouble."""
        deadline = time.monotonic() + self.timeout
        try:
            request = urllib.request.Request(self.url, body, self._headers, method="POST")
            with self._opener.open(request, timeout=self.timeout) as response:
                return _read(response, deadline)
        except urllib.error.HTTPError as error:
            said = complaint(error)
            raise Trouble(
                f"HTTP {error.code} {said}".strip() + _advice(error.code),
                passing=error.code in PASSING,
                wait=wait_asked_for(error.headers.get("Retry-After")),
                refuses=tuple(name for name in OPTIONAL if name in said) if error.code in (400, 422) else (),
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, TimeoutError):
                raise Trouble(f"no answer within {self.timeout:g} s") from error
            passing = not isinstance(reason, ssl.SSLCertVerificationError)
            raise Trouble(str(reason) or type(reason).__name__, passing=passing) from error
        except ValueError as error:  # a URL or key with characters not allowed in HTTP
            raise EngineError(f"{self.url}: invalid request: check the address and the key") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to another address and lose the request body."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def completion(n: int, body: bytes) -> Answer:
    """Parse the answer in a response; an empty answer, e.g. from a filter, is valid."""
    try:
        held = json.loads(body)
        text = held["choices"][0]["message"]["content"]
        usage = held.get("usage") or {}
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        if not isinstance(text, str | None):
            raise TypeError
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise Trouble(f"the response is not a chat completion: {_excerpt(body)}") from error
    return Answer(n, text or "", *(count if isinstance(count, int) else 0 for count in counts))


def complaint(error: urllib.error.HTTPError) -> str:
    """The error message of an endpoint, in one line."""
    body = b""
    with contextlib.suppress(OSError):
        body = error.read(4000)
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        held = json.loads(body)["error"]
        return _excerpt(str(held["message"] if isinstance(held, dict) else held).encode())
    return _excerpt(body) if body else str(error.reason)


def wait_asked_for(header: str | None) -> float | None:
    """Seconds from a Retry-After header: a number or a date."""
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, float(header or ""))
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(header or "").timestamp() - time.time())
    return None


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Read the body, up to the deadline and a maximum size."""
    body = b""
    while part := response.read1(65536):
        body += part
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(body) > LONGEST_ANSWER:
            raise Trouble(f"the answer exceeds {LONGEST_ANSWER:,} bytes")
    return body


def _excerpt(body: bytes) -> str:
    """The beginning of a body, in one line and without HTML."""
    text = " ".join(re.sub(r"<[^>]*>", " ", body[:4000].decode(errors="replace")).split())
    return f"{text[:200]}…" if len(text) > 200 else text or "nothing"


def _advice(status: int) -> str:
    if status in (401, 403):
        return "; set OPENAI_API_KEY to a key for this endpoint"
    if status in (404, 405) or 300 <= status < 400:
        return "; check --base-url (it usually ends in /v1) and --model"
    return ""
