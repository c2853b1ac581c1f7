"""Where methods are registered by name, each in the file of its name, which is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

from mltta.errors import ConfigError
from mltta.methods.plugins import load_installed, method_in_file
from mltta.model.names import matching

if TYPE_CHECKING:
    from mltta.methods.base import Method

#: methods from elsewhere: of a user's own file or of an installed package
_REGISTRY: dict[str, type[Method]] = {}
#: files of this package that serve methods and register none
_SUPPORT = {
    *("base", "config", "create", "memory", "plugins"),
    *("registry", "towers", "tuning", "variations", "words"),
}
#: names of what a tagger or `create_method` is given beside a method's own settings
TAKEN = {
    *("name", "model", "backbone", "labels", "method", "captions", "template", "descriptions", "teacher"),
    *("preset", "presence", "seed", "execution", "where", "explain", "allow_urls", "threshold", "top_k"),
}
M = TypeVar("M", bound="type[Method]")


@cache
def built_in() -> dict[str, str]:
    """The methods of this package and the modules that they are in, by the names of the files."""
    files = {module.name for module in iter_modules([str(Path(__file__).parent)])} - _SUPPORT
    return {file.replace("_", "-"): f"mltta.methods.{file}" for file in files}


def register(name: str, summary: str) -> Callable[[M], M]:
    """Class decorator: make a method known by name."""

    def add(cls: M) -> M:
        own = built_in().get(name) == cls.__module__
        if name in _REGISTRY or (name in built_in() and not own):
            raise ConfigError(f"a method called {name!r} is registered already")
        taken = sorted(TAKEN.intersection(field.name for field in fields(cls.Config)))
        if taken:
            raise ConfigError(f"{name}: a setting cannot be called {taken[0]!r}: taggers take that name")
        cls.name, cls.summary = name, summary
        if not own:
            _REGISTRY[name] = cls
        return cls

    return add


def method_class(name: str) -> type[Method]:
    """The class registered under a name, or by a user's own file: ``my_method.py``, ``my_method.py:name``."""
    if name in built_in():
        classes = vars(import_module(built_in()[name])).values()
        return next(cls for cls in classes if isinstance(cls, type) and vars(cls).get("name") == name)
    if name not in _REGISTRY:
        found = method_in_file(name, _REGISTRY)
        if found is not None:
            return found
        load_installed(_REGISTRY)
    if name not in _REGISTRY:
        raise ConfigError(
            f"no method {name!r}; there are {', '.join(list_methods())}, or give a file, my_method.py"
        )
    return _REGISTRY[name]


def list_methods(filter: str = "") -> list[str]:
    """Names of all methods, those of installed packages too.

    Args:
        filter: only names that contain this, or that match it, such as "t*".

    Example:
        >>> list_methods("*tpt")
        ['c-tpt', 'difftpt', 'tpt']
    """
    load_installed(_REGISTRY)
    return matching(sorted({*built_in(), *_REGISTRY}), filter)
