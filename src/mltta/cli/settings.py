"""Parse method settings (NAME=VALUE) and YAML files of options and method settings."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mltta.errors import ConfigError
from mltta.storage.reading import SETTINGS, explain, read_bytes, shorten

_BOOLS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


def settings_of(
    methods: Sequence[str], pairs: Sequence[str], given: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the settings of each method: from a YAML file, then from pairs, for every method with that setting."""
    from mltta.methods import method_class

    unknown = [shorten(name) for name in given or {} if name not in methods]
    if unknown:
        named = ", ".join(unknown[:5])
        raise ConfigError(f"--config has settings for {named}, but the command runs {', '.join(methods)}")
    configs = {method: dataclasses.fields(method_class(method).Config) for method in methods}
    defaults = {method: {one.name: one.default for one in own} for method, own in configs.items()}
    found: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for method, values in (given or {}).items():
        for key, value in (values or {}).items():
            name = _field(str(key))
            if isinstance(value, str) and type(defaults[method].get(name)) is float:
                with contextlib.suppress(ValueError):
                    value = float(value)  # YAML reads 5e-3 as a string
            found[method][name] = value
    for pair in pairs:
        name = pair.partition("=")[0]
        owner, dot, _ = name.partition(".")
        takers = [method for method in methods if len(methods) == 1 or _field(name) in defaults[method]]
        if dot and owner in methods:
            takers, pair = [owner], pair.removeprefix(f"{owner}.")
        if not takers:
            missing = f"none of {', '.join(methods)} has this setting"
            raise ConfigError(f"--set {pair}: {missing}; see `mltta methods`")
        for method in takers:
            found[method] |= _parsed(method, pair, defaults[method])
    return found


def read_config(path: Path, fields: Mapping[str, bool]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read options and method settings from YAML; ``fields`` says which options take several values."""
    import yaml

    try:
        held = yaml.safe_load(read_bytes(path, SETTINGS, ConfigError).decode()) or {}
    except FileNotFoundError:
        raise ConfigError(f"no such config file: {path}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {explain(error)}") from error
    if not isinstance(held, dict):
        raise ConfigError(f"{path}: expected options by name and settings by method: `ml-tta: {{views: 16}}`")
    values: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in held.items():
        name = _field(str(key))
        if name not in fields:
            if not isinstance(value, (dict, type(None))):
                where = "put method settings under the method's name, such as `ml-tta: {views: 16}`"
                raise ConfigError(f"{path}: no option {shorten(key)!r}; {where}")
            settings[str(key)] = value or {}
        elif isinstance(value, dict) or (isinstance(value, list) and not fields[name]):
            raise ConfigError(f"{path}: {shorten(key)} takes one value")
        elif value is not None:
            many = value if isinstance(value, list) else [value]
            said = [one if isinstance(one, bool) else str(one) for one in many]
            values[name] = said if fields[name] else said[0]
    return values, settings


def _parsed(method: str, pair: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Convert NAME=VALUE to the type of the setting."""
    name, equals, value = pair.partition("=")
    name = _field(name)
    if not equals or name not in defaults:
        known = ", ".join(defaults) or "none"
        raise ConfigError(f"--set {pair}: expected NAME=VALUE; settings of {method}: {known}")
    kind: Any = type(defaults[name])
    try:
        return {name: _BOOLS[value.lower()] if kind is bool else kind(value)}
    except (ValueError, KeyError) as error:
        wanted = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise ConfigError(f"--set {pair}: expected {wanted}") from error


def _field(name: str) -> str:
    return name.strip().replace("-", "_")
