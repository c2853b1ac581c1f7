"""Checks before every request (access, origin, size, speed), access log and metrics."""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mltta.serve.calls import Refused
from mltta.serve.engine import Engine
from mltta.serve.offer import Limits

log = logging.getLogger("mltta.serve")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
#: bytes of a refused request that are still read, so that the client receives the response
_HEARD_OUT = 8 << 20
#: status in logs and metrics of a request whose client left before the response
LEFT = 499
_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)


class Metrics:
    """Prometheus metrics; each server has its own."""

    def __init__(self, engine: Engine) -> None:
        self._registry = here = CollectorRegistry()
        self.calls = Counter("mltta_calls", "Requests by route, status.", ["route", "status"], registry=here)
        self.images = Counter("mltta_images", "Images by outcome.", ["outcome"], registry=here)
        self.seconds = Histogram(
            "mltta_call_seconds", "Request duration.", ["route"], buckets=_SECONDS, registry=here
        )
        self.in_flight = Gauge("mltta_calls_in_flight", "Requests in progress.", registry=here)
        waiting = Gauge("mltta_calls_waiting", "Requests in the queue.", registry=here)
        waiting.set_function(lambda: engine.waiting)
        kept = Gauge("mltta_label_lists", "Label lists with cached features.", registry=here)
        kept.set_function(lambda: len(engine.taggers))

    def text(self) -> bytes:
        """The metrics in Prometheus format."""
        return generate_latest(self._registry)


class Guard:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        *,
        token: str | None,
        hosts: Iterable[str] | None,
    ):
        """Args:
        token: required bearer token; None allows every request.
        hosts: allowed host names, against DNS rebinding; None allows any.
        """
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._calls = self.bytes = 0
        self.counting = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, headers, status = time.perf_counter(), Headers(scope=scope), 500
        body = scope["mltta.body"] = Body(self, receive)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                for name, value in HEADERS.items():
                    MutableHeaders(scope=message).setdefault(name, value)
            await send(message)

        heavy = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        self._calls += heavy
        self.metrics.in_flight.set(self._calls)
        try:
            self._check(scope["path"], headers, heavy)
            await self.app(scope, body, answer)
        except Refused as refused:
            await (await refusal(refused, body))(scope, body, answer)
        finally:
            self._calls -= heavy
            body.release()
            self.metrics.in_flight.set(self._calls)
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - start
            self.metrics.calls.labels(route, status).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            # log neither the query, which may contain anything, nor headers, which may contain the token
            log.info(
                "%s %s %d %.0f ms", scope["method"], ascii(scope["path"][:200])[1:-1], status, 1000 * seconds
            )

    def _check(self, path: str, headers: Headers, heavy: bool) -> None:
        host = headers.get("host", "").lower()
        name = host if host in LOOPBACK else host.rpartition(":")[0] or host
        if self._hosts is not None and name not in self._hosts:
            raise Refused(403, "host name not allowed; add it with --allow-host")
        # links from other sites may open the page, but other sites may not send requests
        if path != "/" and _is_cross_site(headers, host):
            raise Refused(403, "cross-site request refused; open the page directly")
        if self._token is not None and (path.startswith("/v1/") or path in ("/metrics", "/openapi.json")):
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
                said = "missing or invalid token; send the header Authorization: Bearer TOKEN"
                raise Refused(401, said, {"www-authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.limits.body_bytes:
            raise self.large()
        if heavy and self._calls > self.limits.calls:
            raise full()

    def large(self) -> Refused:
        return Refused(413, f"the request is larger than {self.limits.body_bytes:,} bytes; send fewer images")


class Body:
    """A request body, read within limits of time and size."""

    def __init__(self, guard: Guard, receive: Receive):
        self._guard, self._receive = guard, receive
        self._end = time.monotonic() + guard.limits.body_seconds
        self._taken = 0
        self.refused = self.done = False

    async def __call__(self) -> Message:
        if self.done:  # complete; later calls wait for a disconnect
            return await self._receive()
        left = max(0.0, self._end - time.monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), left)
        except asyncio.TimeoutError:
            seconds = self._guard.limits.body_seconds
            raise Refused(408, f"the request body took longer than {seconds} seconds") from None
        self.done = not message.get("more_body", False)  # also true after a disconnect
        if message["type"] == "http.disconnect":
            raise Refused(LEFT, "the client has disconnected")
        self.take(len(message.get("body", b"")))
        return message

    def take(self, count: int) -> None:
        """Count bytes that are kept for this request: received, or fetched in any of its threads."""
        with self._guard.counting:
            if self.refused:
                return
            self._taken += count
            self._guard.bytes += count
            if self._guard.bytes > self._guard.limits.bytes_in_flight:
                raise full()
            if self._taken > self._guard.limits.body_bytes:
                raise self._guard.large()

    async def hear_out(self) -> None:
        """Keep reading for a while and discard the data: a client that is still sending would miss the response."""
        heard = 0
        while not self.done and heard < _HEARD_OUT:
            try:
                message = await self()
            except Refused:
                return
            heard += len(message.get("body", b""))

    def release(self) -> None:
        """Stop counting: what still arrives is discarded."""
        with self._guard.counting:
            self.refused = True
            self._guard.bytes -= self._taken
            self._taken = 0


def full() -> Refused:
    """The refusal of a server at capacity."""
    return Refused(429, "the server is busy; try again later", {"retry-after": "1"})


def _is_cross_site(headers: Headers, host: str) -> bool:
    """Whether another site made a browser send this; older browsers only send the origin."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != host


async def refusal(refused: Refused, body: Body) -> JSONResponse:
    """The response to a refused request, sent once the client can read it."""
    body.release()
    await body.hear_out()
    headers = refused.headers if body.done else {**refused.headers, "connection": "close"}
    return JSONResponse({"error": refused.message}, refused.status, headers)
