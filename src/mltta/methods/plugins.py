"""Methods from elsewhere: a user's own file, or installed packages that offer some."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.methods.base import Method

    Registry = dict[str, type[Method]]

log = logging.getLogger("mltta")
#: the entry points of a package that name modules, which register methods when imported
GROUP = "mltta.methods"
_IN_FILE = re.compile(r"(?P<path>.+\.py)(:(?P<name>[^:/\\]+))?", re.IGNORECASE)
#: by file: what it held when it was run, and the names it registered
_run: dict[Path, tuple[bytes, list[str]]] = {}
_offered: set[str] = set()


def method_in_file(given: str, registry: Registry) -> type[Method] | None:
    """The method that ``my_method.py``, or ``my_method.py:name``, registers; None where no file is named.

    The file is run, as its user wishes; again only when it has changed.
    """
    said = _IN_FILE.fullmatch(given)
    if said is None:
        return None
    path, name = Path(said["path"]).expanduser(), said["name"]
    names = _names_in(path, registry)
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        which = f"no method {name!r}" if name else "several methods"
        raise ConfigError(f"{path} registers {which}: give {' or '.join(f'{path}:{own}' for own in names)}")
    return registry[name]


def _names_in(path: Path, registry: Registry) -> list[str]:
    """What a file registers, run if that was not done yet."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"there is no method file {path}: {(error.strerror or str(error)).lower()}"
        ) from None
    key = path.resolve()
    held, names = _run.get(key, (None, []))
    if held == content and all(name in registry for name in names):
        return names
    for name in names:  # of the file as it was before
        registry.pop(name, None)
    before = set(registry)
    _execute(path, key, registry)
    names = [name for name in registry if name not in before]
    if not names:
        raise ConfigError(f"{path} registers no method: put @mltta.register('name', 'summary') on its class")
    _run[key] = content, names
    return names


@contextmanager
def _all_or_none(registry: Registry) -> Iterator[None]:
    """What is registered before an error is forgotten."""
    before = set(registry)
    try:
        yield
    except Exception:
        for name in set(registry) - before:
            del registry[name]
        raise


def _execute(path: Path, key: Path, registry: Registry) -> None:
    """Run a file as a module."""
    title = f"{path.stem}_{hashlib.blake2b(str(key).encode(), digest_size=4).hexdigest()}"
    spec = util.spec_from_file_location(title, key)
    assert spec is not None  # its name ends in .py
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[title] = module  # dataclasses look up their types there
    try:
        with _all_or_none(registry):
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[title]
        raise ConfigError(f"{path} cannot be run: {type(error).__name__}: {error}") from error


def load_installed(registry: Registry) -> None:
    """Let installed packages register what they offer, once; one that is broken is named and left out."""
    for entry in metadata.entry_points(group=GROUP):
        package = entry.dist.name if entry.dist else "an installed package"
        if f"{package} {entry.name}" in _offered:
            continue
        _offered.add(f"{package} {entry.name}")
        try:
            with _all_or_none(registry):
                entry.load()
        except Exception as error:
            log.warning(
                "the method %r of %s is left out: %s: %s", entry.name, package, type(error).__name__, error
            )
            continue
        if entry.name not in registry:
            log.warning("%s offers a method %r, but %s registers none", package, entry.name, entry.value)


def source_digest(method: type[Method]) -> str | None:
    """Names the code of a method that is none of the package, whose version says nothing about it."""
    try:
        file = inspect.getsourcefile(method)
    except TypeError:  # written at a prompt
        return None
    if file is None or Path(file).resolve().parent == Path(__file__).resolve().parent:
        return None
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()
