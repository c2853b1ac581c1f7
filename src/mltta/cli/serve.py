"""`mltta serve`: a page and an API."""

from __future__ import annotations

import logging
import os
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from mltta.cli import options
from mltta.errors import ConfigError

HELP = """Serve a page and an API that tag images.

`mltta serve`, then open http://127.0.0.1:8000

`curl -F images=@photo.jpg -F "labels=dog, cat" http://127.0.0.1:8000/v1/tag`

Only this machine can reach it. For others: `mltta serve --host 0.0.0.0 --token-file secret.txt`

Nothing that is sent leaves the machine or is written to its disk. Ctrl-C, or SIGTERM, finishes what was accepted.
"""
ACCESS = "Who may ask"


def serve(
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond this machine only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one.")] = 8000,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A model to offer, as in `mltta tag`; several may be given."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method to offer, or your own my_method.py; the first is the default. By default all."
        ),
    ] = None,
    labels: Annotated[
        str, typer.Option("--labels", "-l", help="The label set of calls that name none: everyday, coco …")
    ] = "everyday",
    label_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="A label list of your own to offer by name.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with a secret that calls have to show; or MLTTA_TOKEN.", rich_help_panel=ACCESS
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name by which this machine may be called.", rich_help_panel=ACCESS),
    ] = None,
    allow_urls: Annotated[
        bool,
        typer.Option("--allow-urls", help="Fetch images from public addresses.", rich_help_panel=ACCESS),
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="A limit, e.g. images=64; docs/serve.md lists them.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    accelerate: options.Accelerate = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for each call.")] = False,
) -> None:
    try:
        from mltta.serve.limits import Limits
        from mltta.serve.offer import Offer, offered_methods
        from mltta.serve.server import check_access, make_server
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}: pip install 'mltta[serve]'") from None
    from mltta.labels import LabelSet

    limits = Limits.of(limit or [])
    token = read_token(token_file)
    check_access(host, token)  # before a model is loaded
    names = model or ["mini"]
    opened = {
        name: options.open_backbone(name, None, device, None, False, None, dtype, accelerate, False)
        for name in names
    }
    methods = method or sorted(offered_methods(), key=lambda name: name != "auto")
    sets = {}
    for given in label_set or []:
        name, _, file = given.partition("=")
        if not name or not file:
            raise ConfigError(f"--label-set {given}: give NAME=FILE")
        sets[name] = LabelSet.from_file(file)
    listening = listen(host, port)
    try:
        offer = Offer(opened, methods, sets, limits, default_labels=labels)
        server = make_server(
            offer, host=host, port=port, token=token, hosts=allow_host or [], allow_urls=allow_urls
        )
        logging.getLogger("mltta.serve").setLevel(logging.WARNING if quiet else logging.INFO)
        place = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"open http://{shown}:{place}  (Ctrl-C ends it)", err=True)
        for end in (signal.SIGINT, signal.SIGTERM):  # uvicorn sends itself once more what it has stopped for
            signal.signal(end, lambda *_: None)
        server.run(sockets=[listening])
    finally:
        listening.close()
    if not server.started:
        raise typer.Exit(1)


def read_token(file: Path | None) -> str | None:
    """The secret, which stands on no command line, where other users could read it."""
    if file is None:
        return os.environ.get("MLTTA_TOKEN") or None
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None
    if not text:
        raise ConfigError(f"{file}: holds no token")
    return text


def listen(host: str, port: int) -> socket.socket:
    """An open port, before anything is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; give another --port"
        ) from None
    return listening
