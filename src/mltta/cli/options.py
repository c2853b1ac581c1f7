"""Options as data: one frozen dataclass per command, set from Python, from a YAML file or from the shell."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from mltta.cli.settings import read_config
from mltta.errors import ConfigError
from mltta.storage import atomic

TableFormat = Literal["text", "markdown", "csv", "json", "latex"]


def option(default: Any, help: str, short: str = "", *, panel: str | None = None, **more: Any) -> Any:
    """A field that the shell sets with ``--field-name``.

    Args:
        default: MISSING for an option that is required.
        short: a second name, such as "-l".
        panel: where the help shows it, by default the PANEL of its class, or among the options needed first.
        more: what else ``typer.Option`` takes: metavar, min, max, envvar …
    """
    names = (short,) if short else ()
    return field(default=default, metadata={"names": names, "panel": panel, "typer": {"help": help, **more}})


def argument(metavar: str, help: str, default: Any = MISSING) -> Any:
    """A field that the shell sets by position."""
    return field(default=default, metadata={"typer": {"metavar": metavar, "help": help}})


def shell(run: Callable[[Any], None]) -> Callable[..., None]:
    """The function that typer makes a command of: its parameters are the fields of the options that ``run`` takes.

    A command whose options have ``settings`` also gets ``--config``: a YAML file of its fields, and of method settings.
    """
    options: Any = get_type_hints(run)["options"]
    hints = get_type_hints(options)
    known = {one.name: one for one in fields(options)}
    owners: dict[str, type] = {}
    for base in options.__mro__:  # a command's own options come first
        for name in inspect.get_annotations(base):
            owners.setdefault(name, base)
    shown = [known[name] for name in owners if name in known and known[name].metadata]
    parameters = [_parameter(own, hints[own.name], owners[own.name]) for own in shown]
    if "settings" in known:
        parameters.append(_config({one.name: one.annotation for one in parameters}))

    def call(**given: Any) -> None:
        if given.get("verbose"):
            logging.getLogger("mltta").setLevel(logging.DEBUG)
        if "config" in given:
            given["settings"] = given.pop("config") or {}
        run(options(**{name: _plain(value, known[name].default) for name, value in given.items()}))

    call.__doc__, call.__annotations__ = options.__doc__, {}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameter(own: Any, hint: Any, owner: type) -> inspect.Parameter:
    kind, more = _kind(hint), dict(own.metadata["typer"])
    default = inspect.Parameter.empty if own.default is MISSING else own.default
    if default == ():
        kind, default = kind | None, None
    if "names" in own.metadata:
        panel = own.metadata["panel"] or owner.__dict__.get("PANEL")
        told = typer.Option(_flag(own.name, hint), *own.metadata["names"], rich_help_panel=panel, **more)
    else:
        told = typer.Argument(**more)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(own.name, keyword, default=default, annotation=Annotated[kind, told])


def _flag(name: str, hint: Any) -> str:
    """An option's name; what may be on, off or chosen has two."""
    plain = name.replace("_", "-")
    return f"--{plain}/--no-{plain}" if hint == bool | None else f"--{plain}"


def _kind(hint: Any) -> Any:
    """A type as typer knows it: a list for a tuple, an enumeration for a Literal."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _kind(inner[0]) | None
    if origin is tuple:
        return list[_kind(inner[0])]  # type: ignore[misc]
    if origin is Literal:
        return Enum("Choice", {word: word for word in inner}, type=str)
    return hint


def _plain(value: Any, default: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(one, None) for one in value)
    return value.value if isinstance(value, Enum) else () if value is None and default == () else value


def _config(kinds: dict[str, Any]) -> inspect.Parameter:
    def read(context: typer.Context, path: Path | None) -> Any:
        """The fields become defaults, which the shell overrides; the method settings are handed on."""
        if path is None:
            return {}
        values, settings = read_config(path, {name: _is_list(kind) for name, kind in kinds.items()})
        context.default_map = {**(context.default_map or {}), **values}
        return settings

    told = typer.Option(
        "--config",
        metavar="FILE",
        help="YAML file with options, e.g. `top-k: 5`, and settings by method: `ml-tta: {views: 16}`.",
        is_eager=True,
        callback=read,
    )
    annotation = Annotated[Path | None, told]
    return inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _is_list(annotation: Any) -> bool:
    kind = get_args(annotation)[0]
    return any(get_origin(one) is list for one in (kind, *get_args(kind)))


def write_text(path: Path, text: str) -> None:
    """Write a file, or say why it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text.encode(errors="surrogateescape"), durable=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
