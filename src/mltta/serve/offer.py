"""What a server provides: models, methods with their settings, label sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, get_args, get_type_hints

from mltta.errors import ConfigError, LabelError, NeedsTorch
from mltta.labels import BUILT_IN, LabelSet
from mltta.labels.languages import names
from mltta.labels.sets import MOST_LABELS
from mltta.methods import Method, list_methods, method_class
from mltta.model.backbone import Backbone

#: settings that a request may change if the method has them, with limits that keep requests short
SETTINGS: dict[str, int | None] = {"effort": None, "look": None, "augmix": None, "views": 128, "steps": 8}

#: what no server can allow more of per request
MOST_IMAGES = 10_000


def offered_methods() -> list[str]:
    """The methods that need only photos: no complete dataset, no teacher, no generated images."""
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
    """The settings that a request may change: choices with the default first, or the range of an integer."""
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
    """Request limits, checked before any work. docs/serve.md describes each limit."""

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
                raise ConfigError(f"--limit {field.name}: must be an integer of at least 1")
        if self.images > MOST_IMAGES or self.labels > MOST_LABELS:
            raise ConfigError(f"--limit: at most {MOST_IMAGES:,} images and {MOST_LABELS:,} labels")

    @classmethod
    def of(cls, given: list[str]) -> Limits:
        """The default limits, with changes of the form NAME=VALUE.

        >>> Limits.of(["images=4"]).images
        4
        """
        names = [field.name for field in dataclasses.fields(cls)]
        values: dict[str, int] = {}
        for one in given:
            name, _, value = one.partition("=")
            if name not in names or not value.isdecimal():
                raise ConfigError(f"--limit {one}: must be NAME=NUMBER; names: {', '.join(names)}")
            values[name] = int(value)
        return cls(**values)


@dataclass(frozen=True)
class Choice:
    """Everything that results depend on except the image; requests with the same choice share a batch."""

    model: str
    method: str
    labels: LabelSet
    settings: tuple[tuple[str, Any], ...] = ()
    where: bool = False
    captions: bool = False
    language: str | None = None


class Offer:
    """Resolves the fields of a request to a choice, or raises an error that lists the options. Never opens files."""

    #: the fields of a request that determine its choice
    CHOICE: ClassVar = {"labels", "model", "method", "settings", "where", "captions", "language"}

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
        models: loaded models by name; the first is the default.
        methods: names, or files of your own; the first is the default.
        sets: your own label lists by name, besides the built-in ones.
        """
        self.models, self.limits = dict(models), limits
        self.methods: dict[str, type[Method]] = {cls.name: cls for cls in map(method_class, methods)}
        bound = next((name for name, cls in self.methods.items() if cls.transductive), None)
        if bound is not None:
            raise ConfigError(f"{bound} needs a complete dataset, so it cannot be used in a server")
        self.sets = {name: LabelSet.load(name) for name in BUILT_IN} | dict(sets)
        if default_labels not in self.sets:
            raise ConfigError(f"unknown label set {default_labels!r}; available: {', '.join(self.sets)}")
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
        language: str | None = None,
    ) -> Choice:
        """Validate the fields of a request."""
        model = _known("model", model, list(self.models))
        method = _known("method", method, list(self.methods))
        if where and self.methods[method].where is Method.where:
            able = ", ".join(name for name, cls in self.methods.items() if cls.where is not Method.where)
            raise ConfigError(f"{method} does not support heat maps; use {able or 'another method'}")
        _check_settings(self.methods[method], settings or {})
        chosen = tuple(sorted((settings or {}).items()))
        if language not in (None, "en"):
            names(str(language))  # refuse unknown ones
        return Choice(model, method, self.label_set(labels), chosen, where, captions, language)

    def label_set(self, labels: Sequence[str] | str | None) -> LabelSet:
        """The labels of a request: the name of a set, or a list, never a file."""
        if labels is None:
            return self.sets[self.default_labels]
        if isinstance(labels, str):
            if labels.strip() in self.sets:
                return self.sets[labels.strip()]
            labels = labels.replace("\n", ",")
            if labels.count(",") > 10 * self.limits.labels:
                raise LabelError(f"too many labels; the limit per request is {self.limits.labels:,}")
            labels = labels.split(",")
        given = [label.strip() for label in labels if label.strip()]
        limits = self.limits
        if len(given) == 1 and given[0].lower().endswith((".txt", ".csv", ".json")):
            raise LabelError(f"{given[0][:80]!r} looks like a file; send the labels instead")
        for label in given:
            if len(label) > limits.label_length:
                raise LabelError(
                    f"the label {label[:40]!r}… has {len(label):,} characters; the limit is {limits.label_length}"
                )
        words = sum(1 + label.count("|") for label in given)
        if words > limits.labels:
            raise LabelError(
                f"too many labels and synonyms: {words:,}; the limit per request is {limits.labels:,}. "
                "The server's operator can provide longer lists by name"
            )
        return LabelSet.of(given)


def _check_settings(method: type[Method], settings: Mapping[str, Any]) -> None:
    allowed = allowed_settings(method)
    for name, value in settings.items():
        if name not in allowed:
            can = ", ".join(allowed) or "nothing"
            raise ConfigError(f"{name!r} cannot be set here; available settings of {method.name}: {can}")
        rule = allowed[name]
        if isinstance(rule, dict) and not (type(value) is int and rule["least"] <= value <= rule["most"]):
            raise ConfigError(f"{name}: must be an integer from {rule['least']} to {rule['most']}")
    method.Config.make(**settings)


def _known(kind: str, name: str | None, there: Sequence[str]) -> str:
    if name is None or name in there:
        return name or there[0]
    raise ConfigError(f"unknown {kind} {name[:80]!r}; available: {', '.join(there)}")
