"""Lookup of methods by name: in this package, a user's own file, or an installed package."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from importlib import import_module, metadata, util
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

from mltta.errors import ConfigError, needs_torch
from mltta.model.names import matching

if TYPE_CHECKING:
    from mltta.methods.base import Method

log = logging.getLogger("mltta")
#: methods from a user's own file or an installed package
_REGISTRY: dict[str, type[Method]] = {}
#: files of this package that are not methods
_SUPPORT = {"base", "config", "create", "memory", "registry", "taught", "towers", "tuning", "variations"}
#: reserved setting names: arguments of a tagger or of `create_method`
TAKEN = {
    *("name", "model", "backbone", "labels", "method", "captions", "template", "descriptions", "teacher"),
    *(
        "preset",
        "presence",
        "seed",
        "execution",
        "where",
        "explain",
        "allow_urls",
        "threshold",
        "top_k",
        "engine",
        "keywords_from",
        "language",
        "cache",
    ),
}
#: entry point group; each entry names a module that registers methods when imported
GROUP = "mltta.methods"
_IN_FILE = re.compile(r"(?P<path>.+\.py)(:(?P<name>[^:/\\]+))?", re.IGNORECASE)
#: by file: its content when it was executed, and the names it registered
_run: dict[Path, tuple[bytes, list[str]]] = {}
_offered: set[str] = set()
M = TypeVar("M", bound="type[Method]")


@cache
def built_in() -> dict[str, str]:
    """The built-in methods and their modules, by name (the file name)."""
    files = {module.name for module in iter_modules([str(Path(__file__).parent)])} - _SUPPORT
    return {file.replace("_", "-"): f"mltta.methods.{file}" for file in files}


def register(name: str, summary: str) -> Callable[[M], M]:
    """Class decorator: register a method under a name."""

    def add(cls: M) -> M:
        own = built_in().get(name) == cls.__module__
        if name in _REGISTRY or (name in built_in() and not own):
            raise ConfigError(f"method {name!r} is already registered; choose another name")
        taken = sorted(TAKEN.intersection(field.name for field in fields(cls.Config)))
        if taken:
            raise ConfigError(f"{name}: setting name {taken[0]!r} is reserved; rename it")
        cls.name, cls.summary = name, summary
        if not own:
            _REGISTRY[name] = cls
        return cls

    return add


def method_class(name: str) -> type[Method]:
    """The class registered under a name, or by a user's own file: ``my_method.py``, ``my_method.py:name``."""
    if name in built_in():
        try:
            classes = vars(import_module(built_in()[name])).values()
        except ModuleNotFoundError as error:
            if error.name in ("torch", "open_clip", "timm", "torchvision"):
                raise needs_torch(f"the method {name}") from None
            raise
        return next(cls for cls in classes if isinstance(cls, type) and vars(cls).get("name") == name)
    if name not in _REGISTRY and (said := _IN_FILE.fullmatch(name)):
        return _method_in_file(Path(said["path"]).expanduser(), said["name"])
    if name not in _REGISTRY:
        _load_installed()
    if name not in _REGISTRY:
        raise ConfigError(
            f"unknown method {name!r}; choose from {', '.join(list_methods())}, or give a file such as my_method.py"
        )
    return _REGISTRY[name]


def list_methods(filter: str = "") -> list[str]:
    """Names of all methods, including those of installed packages.

    Args:
        filter: only names that contain this text or match this pattern, such as "t*".

    Example:
        >>> list_methods("*tpt")
        ['c-tpt', 'difftpt', 'tpt']
    """
    _load_installed()
    return matching(sorted({*built_in(), *_REGISTRY}), filter)


def summary(name: str) -> str:
    """What a method does, in a line; of a method of this package without importing it, and so without PyTorch."""
    if name not in built_in():
        return method_class(name).summary
    source = (Path(__file__).parent / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    found = re.search(rf'@register\(\s*"{name}",\s*"([^"]*)"', source)
    assert found is not None, name
    return found[1]


def all_array_api(names: Iterable[str]) -> bool:
    """Whether all of these methods run without PyTorch."""
    return all(method_class(name).array_api for name in names)


def source_digest(method: type[Method]) -> str | None:
    """Hash of the source of a method outside this package, which the package version does not cover."""
    try:
        file = inspect.getsourcefile(method)
    except TypeError:  # defined interactively
        return None
    if file is None or Path(file).resolve().parent == Path(__file__).resolve().parent:
        return None
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()


@contextmanager
def _registering() -> Iterator[list[str]]:
    """Collect the names registered inside the block; after an error they are removed again."""
    before, names = set(_REGISTRY), list[str]()
    try:
        yield names
    except Exception:
        for name in set(_REGISTRY) - before:
            del _REGISTRY[name]
        raise
    names += (name for name in _REGISTRY if name not in before)


def _method_in_file(path: Path, name: str | None) -> type[Method]:
    """The method with that name in a file, or its only one; the file is executed again only if it has changed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the method file: {(error.strerror or str(error)).lower()}"
        ) from None
    held, names = _run.get(path.resolve(), (None, []))
    if held != content or any(own not in _REGISTRY for own in names):
        for own in names:  # from an earlier version of the file
            _REGISTRY.pop(own, None)
        names = _execute(path)
        _run[path.resolve()] = content, names
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        which = f"no method {name!r}" if name else "several methods"
        raise ConfigError(f"{path} registers {which}: give {' or '.join(f'{path}:{own}' for own in names)}")
    return _REGISTRY[name]


def _execute(path: Path) -> list[str]:
    """Execute a file as a module, and return the names it registers."""
    title = f"{path.stem}_{hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()}"
    spec = util.spec_from_file_location(title, path.resolve())
    assert spec is not None  # always set for .py files
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[title] = module  # needed by dataclasses to resolve types
    try:
        with _registering() as names:
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[title]
        raise ConfigError(f"{path}: cannot be executed: {type(error).__name__}: {error}") from error
    if not names:
        raise ConfigError(f"{path} registers no method: add @mltta.register('name', 'summary') to its class")
    return names


def _load_installed() -> None:
    """Import methods of installed packages, once; a broken one is logged and skipped."""
    for entry in metadata.entry_points(group=GROUP):
        package = entry.dist.name if entry.dist else "an installed package"
        if f"{package} {entry.name}" in _offered:
            continue
        _offered.add(f"{package} {entry.name}")
        try:
            with _registering():
                entry.load()
        except Exception as error:
            kind = type(error).__name__
            log.warning("skipping method %r of %s: %s: %s", entry.name, package, kind, error)
        else:
            if entry.name not in _REGISTRY:
                log.warning("%s declares method %r, but %s lacks it", package, entry.name, entry.value)
