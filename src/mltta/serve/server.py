"""Creates a server from its settings: access, address, timeouts."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mltta.errors import ConfigError
from mltta.serve.app import make_app
from mltta.serve.engine import Engine, Taggers
from mltta.serve.guard import LOOPBACK, Guard, Metrics
from mltta.serve.offer import Offer

log = logging.getLogger("mltta.serve")
LEAST_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_access(host: str, token: str | None) -> None:
    """Refuse an address that is reachable from other machines without a token, and tokens that can be guessed."""
    if not is_loopback(host) and token is None:
        raise ConfigError(
            f"{host} is reachable from other machines: put a token of at least {LEAST_TOKEN} letters or digits into "
            "a file and pass --token-file FILE, or set the environment variable MLTTA_TOKEN"
        )
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ConfigError(f"the token must have at least {LEAST_TOKEN} ASCII letters or digits")


def make_server(
    offer: Offer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    hosts: Sequence[str] = (),
    allow_urls: bool = False,
) -> uvicorn.Server:
    """Create a server that is ready to run; the default labels are encoded before it listens."""
    check_access(host, token)
    taggers = Taggers(offer.models, offer.limits.label_lists)
    taggers.get(offer.choice()).result()
    engine, limits = Engine(taggers), offer.limits
    metrics = Metrics(engine)
    app = make_app(offer, engine, metrics, allow_urls=allow_urls)
    known = [*LOOPBACK, *hosts] if is_loopback(host) else None
    guard = Guard(app, limits, metrics, token=token, hosts=known)

    class Impatient(H11Protocol):
        """Closes connections whose request head is not completed in time."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None:
                self._watch.cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
                self._await_head(limits.head_seconds + 5)

        def connection_lost(self, exc: Exception | None) -> None:
            self._watch.cancel()
            super().connection_lost(exc)

        def _await_head(self, seconds: float = limits.head_seconds) -> None:
            self._watch = asyncio.get_running_loop().call_later(seconds, self.transport.close)

    config = uvicorn.Config(
        guard,
        host=host,
        port=port,
        http=Impatient,
        ws="none",
        lifespan="on",
        access_log=False,  # the guard writes one without secrets
        log_level="warning",
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=limits.seconds,
        h11_max_incomplete_event_size=64 << 10,
        backlog=256,
    )
    return uvicorn.Server(config)
