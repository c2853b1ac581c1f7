"""The command reference, written from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from mltta.cli import app


def commands() -> Iterator[str]:
    """Every command with its arguments and options, as Markdown lines."""
    root = typer.main.get_command(app)
    yield from _described(root, "mltta", 2)


def _described(command: Any, name: str, level: int) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if level > 2:
        yield f"{'#' * (level - 1)} {name}\n"
    yield f"{_plain(command.help)}\n"
    context = command.make_context(name, [], resilient_parsing=True)
    if not below:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```text\n{name} {usage}\n```\n"
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{' '.join(names.split())}` | {_cell(said)} |" for names, said in filter(None, records)]
    if rows:
        yield from ("| | |", "|---|---|", *rows, "")
    for inner in below:
        if not below[inner].hidden:
            yield from _described(below[inner], f"{name} {inner}", level + 1 if level == 2 else level)


def _cell(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _plain(text: str | None) -> str:
    """Help as it stands; a line break that typer is told by a form feed or \\b is one here."""
    return (text or "").replace("\b", "").replace("\f", "").strip()
