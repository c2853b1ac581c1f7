"""Captions by any endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

import http.client
import logging
import queue
import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mltta.captions.generate.engines import Answer, Request
from mltta.captions.generate.engines.protocol import Trouble, complaint, completion, encode, wait_asked_for
from mltta.errors import EngineError

log = logging.getLogger("mltta")
OPENAI = "https://api.openai.com/v1"
#: statuses that may pass by themselves; a request that is wrong stays wrong
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LONGEST_BACKOFF, LONGEST_WAIT, LONGEST_ANSWER = 60.0, 600.0, 4_000_000
#: parameters that some endpoints refuse; refused ones are left out from then on
OPTIONAL = ("temperature", "max_tokens", "seed")


class OpenAIEngine:
    """Asks several questions at once, tries again with growing pauses, and gives up with a clear error."""

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
        model: as the endpoint calls it.
        base_url: what stands before /chat/completions.
        key: sent as a bearer token; None for an endpoint that asks for none.
        timeout: seconds until an answer must have come.
        retries: further tries of a request that failed for a reason that may pass.
        pause: seconds before the first further try; doubled for each one after.
        """
        if not base_url.startswith(("http://", "https://")):
            raise EngineError(f"{base_url} is no endpoint: give a URL such as http://localhost:8000/v1")
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.model = model
        self.concurrency, self.timeout, self.retries, self.pause = concurrency, timeout, retries, pause
        self._settings = {"temperature": temperature, "max_tokens": max_tokens}
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key and key.strip():
            self._headers["Authorization"] = f"Bearer {key.strip()}"
        self._refused: set[str] = set()
        self._told = False
        self._opener = urllib.request.build_opener(_NoRedirect)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and how it samples; the same model may move to another address."""
        return {"engine": "openai", "model": self.model, **self._settings}

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Give answers as they arrive; after a failure or Ctrl-C those under way are waited for, then it is raised."""
        waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        for request in requests:
            waiting.put(request)
        done: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()
        stop = threading.Event()
        running = min(self.concurrency, len(requests))
        for _ in range(running):
            threading.Thread(target=self._work, args=(waiting, done, stop), daemon=True).start()
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

    def _work(
        self,
        waiting: queue.SimpleQueue[Request],
        done: queue.SimpleQueue[Answer | Exception | None],
        stop: threading.Event,
    ) -> None:
        """Take requests until there are none left, or one fails."""
        try:
            while not stop.is_set():
                done.put(self._ask(waiting.get_nowait(), stop))
        except queue.Empty:
            pass
        except Exception as error:
            done.put(error)
        finally:
            done.put(None)

    def _ask(self, request: Request, stop: threading.Event) -> Answer:
        """One request, tried again while the reason may pass."""
        tries = 0
        while True:
            try:
                body, sent = self._body(request)
                return completion(request.n, self._post(body))
            except Trouble as trouble:
                if any(name in sent for name in trouble.refuses):
                    self._refused.update(trouble.refuses)
                    continue
                tries += 1
                wait = self._wait(tries, trouble)
                if not trouble.passing or tries > self.retries or wait > LONGEST_WAIT or stop.wait(wait):
                    times = "" if tries == 1 else f" {tries} times in a row, at last"
                    raise EngineError(f"{self.url} failed{times}: {trouble}") from trouble

    def _body(self, request: Request) -> tuple[bytes, set[str]]:
        """The request as sent, and which parameters that may be refused it has."""
        extra = {**self._settings, "seed": request.seed}
        extra = {name: value for name, value in extra.items() if name not in self._refused}
        return encode(self.model, request.prompt, extra), set(extra)

    def _wait(self, tries: int, trouble: Trouble) -> float:
        """Seconds to the next try: what the endpoint asks for, or a doubling pause, shortened at random."""
        if trouble.wait is not None:
            return trouble.wait
        if not self._told and trouble.passing and self.retries:
            self._told = True
            log.warning("%s: %s; trying again, up to %d times", self.url, trouble, self.retries)
        return min(LONGEST_BACKOFF, self.pause * 2.0 ** (tries - 1)) * random.uniform(0.5, 1.0)

    def _post(self, body: bytes) -> bytes:
        """Send one request; whatever goes wrong becomes Trouble."""
        deadline = time.monotonic() + self.timeout
        try:
            request = urllib.request.Request(self.url, body, self._headers, method="POST")
            with self._opener.open(request, timeout=self.timeout) as response:
                return _read(response, deadline)
        except urllib.error.HTTPError as error:
            text = complaint(error)
            refuses = tuple(name for name in OPTIONAL if name in text) if error.code in (400, 422) else ()
            raise Trouble(
                f"HTTP {error.code} {text}".strip() + _advice(error.code),
                passing=error.code in PASSING,
                wait=wait_asked_for(error.headers.get("Retry-After")),
                refuses=refuses,
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, TimeoutError):
                raise Trouble(f"no answer within {self.timeout:g} s") from error
            passing = not isinstance(reason, ssl.SSLCertVerificationError)
            raise Trouble(str(reason) or type(reason).__name__, passing=passing) from error
        except ValueError as error:  # a URL or a key with characters that HTTP has no place for
            raise EngineError(f"{self.url} cannot be asked: check the address and the key") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another address and lose the question."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, if it ends in time and at a size that a sentence can have."""
    parts, size = [], 0
    while part := response.read1(65536):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError
        if size > LONGEST_ANSWER:
            raise Trouble(f"an answer of more than {LONGEST_ANSWER:,} bytes")
    return b"".join(parts)


def _advice(status: int) -> str:
    """What to do about a status, where that is clear."""
    if status in (401, 403):
        return "; set OPENAI_API_KEY to a key for this endpoint"
    if status in (404, 405) or 300 <= status < 400:
        return "; check --base-url (it mostly ends in /v1) and --model"
    return ""
