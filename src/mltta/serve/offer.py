"""What a server offers: models, methods and their settings, label sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, get_args, get_type_hints

from mltta.errors import ConfigError, LabelError, NeedsTorch
from mltta.labels import BUILT_IN, LabelSet
from mltta.methods import Method, list_methods, method_class
from mltta.model.backbone import Backbone

#: what a call may set if a method has it, and how far a number may go: more would keep others waiting
SETTINGS: dict[str, int | None] = {"effort": None, "look": None, "augmix": None, "views": 128, "steps": 8}


def offered_methods() -> list[str]:
    """The methods that need nothing but photos: no whole dataset, no second model, no images generated before."""
    found = []
    for name in list_methods():
        with suppress(NeedsTorch):  # which is not installed
            found.append(method_class(name))
    return [
        cls.name
        for cls in found
        if not (cls.transductive or "teacher" in cls.requires or hasattr(cls.Config, "generated"))
    ]


def allowed_settings(method: type[Method]) -> dict[str, Any]:
    """What a call may set of a method: choices, the default first, or the least and the most of a whole number."""
    kinds = get_type_hints(method.Config)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(method.Config):
        if most := SETTINGS.get(field.name):
            found[field.name] = {"least": 1, "most": most, "default": field.default}
        elif field.name in SETTINGS:
            choices = [True, False] if kinds[field.name] is bool else list(get_args(kinds[field.name]))
            found[field.name] = sorted(choices, key=lambda choice: choice != field.default)
    return found


@dataclass(frozen=True)
class Limits:
    """Calls beyond a limit are refused with a sentence, before any work. docs/serve.md describes each limit."""

    images: int = 32
    image_bytes: int = 32 << 20
    body_bytes: int = 128 << 20
    megapixels: int = 60
    labels: int = 1000
    label_length: int = 200
    calls: int = 32
    bytes_in_flight: int = 512 << 20
    label_lists: int = 16
    seconds: int = 120
    head_seconds: int = 10
    body_seconds: int = 60

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(f"--limit {field.name}: give a whole number of at least 1")

    @classmethod
    def of(cls, given: list[str]) -> Limits:
        """The default limits, some changed by NAME=VALUE.

        >>> Limits.of(["images=4"]).images
        4
        """
        names = [field.name for field in dataclasses.fields(cls)]
        values: dict[str, int] = {}
        for one in given:
            name, _, value = one.partition("=")
            if name not in names or not value.isdecimal():
                raise ConfigError(f"--limit {one}: give NAME=NUMBER, where NAME is one of {', '.join(names)}")
            values[name] = int(value)
        return cls(**values)


@dataclass(frozen=True)
class Choice:
    """All that an answer depends on but the image: calls with the same one are answered together."""

    model: str
    method: str
    labels: LabelSet
    settings: tuple[tuple[str, Any], ...] = ()
    where: bool = False
    captions: bool = False


class Offer:
    """Turns the words of a call into a choice, or says what there is instead. It never opens a file for a call."""

    #: the fields of a call that make its choice
    CHOICE: ClassVar = {"labels", "model", "method", "settings", "where", "captions"}

    def __init__(
        self,
        models: Mapping[str, Backbone],
        methods: Sequence[str],
        sets: Mapping[str, LabelSet],
        limits: Limits,
        *,
        default_labels: str = "everyday",
    ):
        """Args:
        models: by name, loaded; the first is the default.
        methods: names, or files of your own; the first is the default.
        sets: label lists of your own by name, besides the built-in ones.
        """
        self.models, self.limits = dict(models), limits
        self.methods: dict[str, type[Method]] = {cls.name: cls for cls in map(method_class, methods)}
        bound = next((name for name, cls in self.methods.items() if cls.transductive), None)
        if bound is not None:
            raise ConfigError(f"{bound} answers once it has seen a whole dataset; a server cannot wait")
        self.sets = {name: LabelSet.load(name) for name in BUILT_IN} | dict(sets)
        if default_labels not in self.sets:
            raise ConfigError(f"no label set {default_labels!r}; there are {', '.join(self.sets)}")
        self.default_labels = default_labels

    def choice(
        self,
        *,
        labels: Sequence[str] | str | None = None,
        model: str | None = None,
        method: str | None = None,
        settings: Mapping[str, Any] | None = None,
        where: bool = False,
        captions: bool = False,
    ) -> Choice:
        """What a call asks for, checked."""
        model = _known("model", model, list(self.models))
        method = _known("method", method, list(self.methods))
        if where and self.methods[method].where is Method.where:
            able = ", ".join(name for name, cls in self.methods.items() if cls.where is not Method.where)
            raise ConfigError(f"{method} cannot tell where a label was found; ask {able or 'another'}")
        _check_settings(self.methods[method], settings or {})
        chosen = tuple(sorted((settings or {}).items()))
        return Choice(model, method, self.label_set(labels), chosen, where, captions)

    def label_set(self, labels: Sequence[str] | str | None) -> LabelSet:
        """The labels of a call: a set by its name, or a list, never a file."""
        if labels is None:
            return self.sets[self.default_labels]
        if isinstance(labels, str):
            if labels.strip() in self.sets:
                return self.sets[labels.strip()]
            labels = labels.replace("\n", ",").split(",")
        given = [label.strip() for label in labels if label.strip()]
        limits = self.limits
        if len(given) == 1 and given[0].lower().endswith((".txt", ".csv", ".json")):
            raise LabelError(f"{given[0][:80]!r} looks like a file; a call cannot name one: send the labels")
        for label in given:
            if len(label) > limits.label_length:
                raise LabelError(
                    f"the label {label[:40]!r}… has {len(label):,} characters; the limit is {limits.label_length}"
                )
        words = sum(1 + label.count("|") for label in given)
        if words > limits.labels:
            raise LabelError(
                f"{words:,} labels and synonyms are too many for a call; the limit is {limits.labels:,}; "
                "whoever runs the server can offer a longer list by name"
            )
        return LabelSet.of(given)


def _check_settings(method: type[Method], settings: Mapping[str, Any]) -> None:
    allowed = allowed_settings(method)
    for name, value in settings.items():
        if name not in allowed:
            can = ", ".join(allowed) or "nothing"
            raise ConfigError(f"{name!r} cannot be set here; of {method.name} a call can set {can}")
        rule = allowed[name]
        if isinstance(rule, dict) and not (type(value) is int and rule["least"] <= value <= rule["most"]):
            raise ConfigError(f"{name}: give a whole number from {rule['least']} to {rule['most']}")
    method.Config.make(**settings)


def _known(kind: str, name: str | None, there: Sequence[str]) -> str:
    if name is None or name in there:
        return name or there[0]
    raise ConfigError(f"no {kind} {name[:80]!r} here; there is {', '.join(there)}")
