"""Settings of methods as they are written: NAME=VALUE on the command line, or a YAML file."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mltta.errors import ConfigError
from mltta.storage.reading import shorten

_BOOLS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def settings(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Turn NAME=VALUE pairs into the types of the method's config."""
    from mltta.methods import method_class

    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(method_class(method).Config)}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in defaults:
            raise ConfigError(
                f"--set {pair}: {method} takes {', '.join(defaults) or 'no settings'}, as NAME=VALUE"
            )
        kind: Any = type(defaults[name])
        try:
            found[name] = _BOOLS[value.lower()] if kind is bool else kind(value)
        except (ValueError, KeyError) as error:
            wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
            raise ConfigError(f"--set {pair}: give {wanted}") from error
    return found


def settings_of(
    methods: Sequence[str], pairs: Sequence[str], config: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Settings of several methods: from a file, then from pairs, which go to every method that has the name."""
    found = read_config(config, methods) if config is not None else {method: {} for method in methods}
    for pair in pairs:
        owner, dot, _ = pair.partition("=")[0].partition(".")
        if dot and owner in methods:
            found[owner] |= settings(owner, [pair.partition(".")[2]])
            continue
        name = owner.strip().replace("-", "_")
        takers = [method for method in methods if name in _names(method)]
        if not takers:
            raise ConfigError(
                f"--set {pair}: none of {', '.join(methods)} has this setting; see `mltta methods`"
            )
        for method in takers:
            found[method] |= settings(method, [pair])
    return found


def read_config(path: Path, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Settings by method from a YAML file; methods it does not name keep the paper's."""
    import yaml

    from mltta.storage.reading import SETTINGS, explain, read_bytes

    try:
        held = yaml.safe_load(read_bytes(path, SETTINGS, ConfigError).decode()) or {}
    except FileNotFoundError:
        raise ConfigError(f"no config file at {path}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is not a YAML file that can be read: {explain(error)}") from error
    if not isinstance(held, dict) or not all(
        isinstance(value, (dict, type(None))) for value in held.values()
    ):
        raise ConfigError(f"{path}: give settings by method, such as `ml-tta: {{views: 16}}`")
    unknown = [name for name in held if name not in methods]
    if unknown:
        raise ConfigError(
            f"{path} has settings for {', '.join(map(shorten, unknown[:5]))}, but {', '.join(methods)} is run"
        )
    return {method: _typed(method, held.get(method) or {}) for method in methods}


def whole_number(text: str, option: str) -> int:
    """A number out of a longer option, or a message that says which."""
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a whole number") from None


def _typed(method: str, values: Mapping[Any, Any]) -> dict[str, Any]:
    """A file's settings; YAML takes 5e-3 for a word, because it has no point, where the method wants a number."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        found[name] = value
        if isinstance(value, str) and name in _numbers(method):
            with contextlib.suppress(ValueError):
                found[name] = float(value)
    return found


def _numbers(method: str) -> list[str]:
    from mltta.methods import method_class

    return [f.name for f in dataclasses.fields(method_class(method).Config) if type(f.default) is float]


def _names(method: str) -> list[str]:
    from mltta.methods import method_class

    return [field.name for field in dataclasses.fields(method_class(method).Config)]
