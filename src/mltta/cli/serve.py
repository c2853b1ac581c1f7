"""`mltta serve`: a web page and an HTTP API."""

from __future__ import annotations

import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mltta.cli.groups import DeviceOptions, open_backbone
from mltta.cli.options import option
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.labels import LabelSet

ACCESS = "Access"


class ServeOptions(DeviceOptions):
    """Serve a web page and an HTTP API that tag images.

    `mltta serve`, then open http://127.0.0.1:8000

    `curl -F images=@photo.jpg -F "labels=dog, cat" http://127.0.0.1:8000/v1/tag`

    Only this machine can connect. To allow others: `mltta serve --host 0.0.0.0 --token-file secret.txt`

    Images are never sent elsewhere or written to disk. Ctrl-C or SIGTERM stops after accepted requests.
    """

    host: str = option("127.0.0.1", "Address to listen on; a token is required unless it is local.")
    port: int = option(8000, "Port (0: any free port).", "-p", min=0, max=65535)
    model: tuple[str, ...] = option((), "Model to offer, as in `mltta tag`. May be repeated.", "-m")
    method: tuple[str, ...] = option(
        (), "Method to offer, or path to a Python file (default: all). The first is the default method."
    )
    labels: str = option("everyday", "Default label set of requests: everyday, coco …", "-l")
    label_set: tuple[str, ...] = option((), "Label file to offer. May be repeated.", metavar="NAME=FILE")
    token_file: Path | None = option(
        None, "File with the token that requests must send; or set MLTTA_TOKEN.", panel=ACCESS
    )
    allow_host: tuple[str, ...] = option((), "Additional host name to accept. May be repeated.", panel=ACCESS)
    allow_urls: bool = option(False, "Fetch images from public URLs.", panel=ACCESS)
    limit: tuple[str, ...] = option(
        (), "Limit, e.g. images=64 (docs/serve.md). May be repeated.", panel=ACCESS, metavar="NAME=NUMBER"
    )
    quiet: bool = option(False, "Do not log requests.", "-q")


def serve(options: ServeOptions) -> None:
    try:
        from mltta.serve.offer import Limits, Offer, offered_methods
        from mltta.serve.server import check_access, make_server
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}: pip install 'mltta[serve]'") from None

    limits, token, host = Limits.of(list(options.limit)), read_token(options.token_file), options.host
    check_access(host, token)  # before a model is loaded
    methods = options.method or sorted(offered_methods(), key=lambda name: name != "auto")
    opened = {name: open_backbone(options, name, methods) for name in options.model or ("mini",)}
    sets = read_label_sets(options.label_set)
    listening = listen(host, options.port)
    try:
        offer = Offer(opened, methods, sets, limits, default_labels=options.labels)
        how = options.chosen("host", "port", "allow_urls")
        server = make_server(offer, token=token, hosts=options.allow_host, **how)
        logging.getLogger("mltta.serve").setLevel(logging.WARNING if options.quiet else logging.INFO)
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"open http://{shown}:{listening.getsockname()[1]}  (press Ctrl-C to stop)", err=True)
        for end in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the stop signal again
            signal.signal(end, lambda *_: None)
        server.run(sockets=[listening])
    finally:
        listening.close()
    if not server.started:
        raise typer.Exit(1)


def read_label_sets(given: tuple[str, ...]) -> dict[str, LabelSet]:
    """Read label files by the names under which they are offered."""
    from mltta.labels import LabelSet

    for pair in given:
        if not all(pair.partition("=")[::2]):
            raise ConfigError(f"--label-set {pair}: expected NAME=FILE")
    return {name: LabelSet.from_file(file) for name, _, file in (pair.partition("=") for pair in given)}


def read_token(file: Path | None) -> str | None:
    """Read the token from a file or the environment; a command line is visible to other users."""
    if file is None:
        return os.environ.get("MLTTA_TOKEN") or None
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None
    if not text:
        raise ConfigError(f"{file}: contains no token")
    return text


def listen(host: str, port: int) -> socket.socket:
    """Open the port before anything is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot listen at {host}:{port}: {why}; choose another --port") from None
    return listening
