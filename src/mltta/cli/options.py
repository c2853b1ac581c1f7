"""Options as data: one frozen dataclass per command, set from Python, YAML or the shell."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand

from mltta.storage import atomic

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # missing in Python 3.10, and only type checkers use it

    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        return lambda cls: cls


TableFormat = Literal["text", "markdown", "csv", "json", "latex"]
#: use a running cluster, or start one for the run
ANY = "auto"
#: placeholders of values in the help
_METAVARS = {bool: "", str: "TEXT", int: "N", float: "X", Path: "PATH"}
_ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:
    """Options of a command: subclasses become frozen dataclasses, shown in the help panel ``panel``."""

    PANEL: ClassVar[str | None] = None

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.PANEL = panel
        dataclass(frozen=True, kw_only=True)(cls)

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return some of the options by name, as keyword arguments."""
        return {name: getattr(self, name) for name in names}


def option(default: Any, help: str, short: str = "", *, panel: str | None = None, **more: Any) -> Any:
    """Return a field that is set by ``--field-name``.

    Args:
        default: MISSING for a required option.
        short: a second name, such as "-l".
        panel: panel of the help (default: that of the class, or the main options).
        more: further arguments of ``typer.Option``: metavar, min, max, envvar …
    """
    names = (short,) if short else ()
    return field(default=default, metadata={"names": names, "panel": panel, "typer": {"help": help, **more}})


def argument(metavar: str, help: str, default: Any = MISSING) -> Any:
    """Return a field that is set by position."""
    return field(default=default, metadata={"typer": {"metavar": metavar, "help": help}})


class Words(TyperCommand):
    """A command whose ``--ray`` takes an optional address, and whose ``--not`` takes any number of words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        said, negative = [], False
        for word, after in zip_longest(args, args[1:], fillvalue=""):
            bare = word == "--ray" and not _ADDRESS.fullmatch(after)
            negative = word == "--not" or (negative and not word.startswith("-"))
            if word != "--not":
                said.append(f"--ray={ANY}" if bare else f"--not={word}" if negative else word)
        return super().parse_args(ctx, said)


def shell(run: Callable[[Any], None]) -> Callable[..., None]:
    """Return a function for typer whose parameters are the fields of the options that ``run`` takes.

    Options with a field ``settings`` also get ``--config``, a YAML file of options and method settings.
    """
    options: Any = get_type_hints(run)["options"]
    hints = get_type_hints(options)
    known = {one.name: one for one in fields(options)}
    owners: dict[str, type] = {}
    for base in options.__mro__:  # a command's own options come first
        for name in inspect.get_annotations(base):
            if name in known and known[name].metadata:
                owners.setdefault(name, base)
    parameters = [_parameter(known[name], hints[name], owner) for name, owner in owners.items()]
    if "settings" in known:
        parameters.append(_config({name: get_origin(hints[name]) is tuple for name in owners}))

    def call(**given: Any) -> None:
        if given.get("verbose"):
            logging.getLogger("mltta").setLevel(logging.DEBUG)
        if "config" in given:
            given["settings"] = given.pop("config") or {}
        run(options(**{name: _plain(value, known[name].default) for name, value in given.items()}))

    call.__doc__, call.__annotations__ = options.__doc__, {}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def alone(run: Callable[[Any], None]) -> Callable[..., None]:
    """The same for a group of commands that does something if none of them is named."""
    call: Any = shell(run)

    def callback(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            call(**given)

    first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    callback.__doc__, callback.__annotations__ = call.__doc__, {}
    parameters = [first, *call.__signature__.parameters.values()]
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return callback


def _parameter(own: Any, hint: Any, owner: Any) -> inspect.Parameter:
    kind, more = _kind(hint), dict(own.metadata["typer"])
    plain = next((one for one in (*get_args(hint), hint) if one in _METAVARS), None)
    if plain is not None:
        more.setdefault("metavar", _METAVARS[plain])
    default = inspect.Parameter.empty if own.default is MISSING else own.default
    if default == ():
        kind, default = kind | None, None
    told: Any = typer.Argument(**more)
    if "names" in own.metadata:
        flag = f"--{own.name}".replace("_", "-").removesuffix("-")
        if hint == bool | None:  # an optional boolean has two flags
            flag = f"{flag}/--no-{flag[2:]}"
        panel = own.metadata["panel"] or owner.PANEL
        told = typer.Option(flag, *own.metadata["names"], rich_help_panel=panel, **more)
    return _keyword(own.name, default, Annotated[kind, told])


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(hint: Any) -> Any:
    """Convert a type for typer: a tuple to a list, a Literal to an enumeration."""
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


def _config(several: dict[str, bool]) -> inspect.Parameter:
    def read(context: typer.Context, path: Path | None) -> Any:
        """Use the options as defaults, which the shell overrides; return the method settings."""
        if path is None:
            return {}
        from mltta.cli.settings import read_config

        values, settings = read_config(path, several)
        context.default_map = {**(context.default_map or {}), **values}
        return settings

    help = "YAML file with options, e.g. `top-k: 5`, and method settings, e.g. `ml-tta: {views: 16}`."
    told = typer.Option("--config", metavar="FILE", help=help, is_eager=True, callback=read)
    return _keyword("config", None, Annotated[Path | None, told])


def write_text(path: Path, text: str) -> None:
    """Write a text file; errors name the file."""
    with atomic.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text.encode(errors="surrogateescape"), durable=False)
