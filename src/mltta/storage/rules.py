"""Rules for plain data from files: which fields there are, of which type, and how large."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Rule: TypeAlias = Callable[[Any], bool]


def whole(most: int, least: int = 0) -> Rule:
    return lambda value: type(value) is int and least <= value <= most


def matches(pattern: str, longest: int) -> Rule:
    fits = re.compile(pattern).fullmatch
    return lambda value: isinstance(value, str) and len(value) < longest and fits(value) is not None


def text(longest: int) -> Rule:
    return lambda value: isinstance(value, str) and len(value) <= longest


def list_of(rule: Rule, most: int, least: int = 0) -> Rule:
    return lambda value: isinstance(value, list) and least <= len(value) <= most and all(map(rule, value))


def either(*rules: Rule) -> Rule:
    return lambda value: any(rule(value) for rule in rules)


def optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def table(required: Mapping[str, Rule], optional: Mapping[str, Rule] | None = None) -> Rule:
    """An object with these fields and no others."""
    rules = {**required, **(optional or {})}

    def fits(value: Any) -> bool:
        known = isinstance(value, dict) and required.keys() <= value.keys() <= rules.keys()
        return known and all(rules[name](own) for name, own in value.items())

    return fits


def mapping(names: Rule, values: Rule, most: int) -> Rule:
    """An object with any names that fit."""
    pairs = list_of(lambda pair: names(pair[0]) and values(pair[1]), most)
    return lambda value: isinstance(value, dict) and pairs(list(value.items()))


def number(most: float, least: float | None = None) -> Rule:
    return lambda value: type(value) in (int, float) and (-most if least is None else least) <= value <= most


def flag(value: Any) -> bool:
    return isinstance(value, bool)
