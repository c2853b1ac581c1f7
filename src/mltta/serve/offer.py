"""What a server has to offer: models, methods and what may be set of them, label sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from mltta.errors import ConfigError, LabelError
from mltta.labels import BUILT_IN, LabelSet
from mltta.methods import Method, list_methods, method_class
from mltta.model.backbone import Backbone
from mltta.serve.limits import Limits

#: what a call may set, where a method has it, and how far a number may go: more would keep others waiting
SETTINGS: dict[str, int | None] = {"effort": None, "look": None, "augmix": None, "views": 128, "steps": 8}


def offered_methods() -> list[str]:
    """The methods that need nothing but photos: no whole dataset, no second model, no images generated before."""
    found = []
    for name in list_methods():
        cls = method_class(name)
        if cls.transductive or "teacher" in cls.requires:
            continue
        if not any(field.name == "generated" for field in dataclasses.fields(cls.Config)):
            found.append(name)
    return found


def allowed_settings(method: str) -> dict[str, Any]:
    """What a call may set of a method: choices, the default first, or the least and the most of a whole number."""
    cls = method_class(method).Config
    kinds = get_type_hints(cls)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name not in SETTINGS:
            continue
        most, kind = SETTINGS[field.name], kinds[field.name]
        if most is not None:
            found[field.name] = {"least": 1, "most": most, "default": field.default}
        else:
            choices = [True, False] if kind is bool else list(get_args(kind))
            found[field.name] = sorted(choices, key=lambda choice: choice != field.default)
    return found


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
    """Turns the words of a call into a choice, or says what there is instead. Nothing of it opens a file."""

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
        methods: names, or files of one's own; the first is the default.
        sets: label lists of one's own by name, beside those built in.
        """
        self.models, self.limits = dict(models), limits
        self.methods: dict[str, type[Method]] = {}
        #: by a method's name, what it was given as: the name, or a file
        self._given: dict[str, str] = {}
        for name in methods:
            cls = method_class(name)
            if cls.transductive:
                raise ConfigError(
                    f"{cls.name} answers when it has seen a whole dataset; a server cannot wait"
                )
            self.methods[cls.name], self._given[cls.name] = cls, name
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
            able = [name for name, cls in self.methods.items() if cls.where is not Method.where]
            raise ConfigError(
                f"{method} cannot tell where a label was found; ask {', '.join(able) or 'another'}"
            )
        chosen = tuple(sorted(self._settings(method, settings or {}).items()))
        return Choice(model, self._given[method], self.label_set(labels), chosen, where, captions)

    def settings_of(self, method: str) -> dict[str, Any]:
        """What a call may set of a method that is offered."""
        return allowed_settings(self._given[method])

    def _settings(self, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        allowed = self.settings_of(method)
        for name, value in settings.items():
            if name not in allowed:
                can = ", ".join(allowed) or "nothing"
                raise ConfigError(f"{name!r} cannot be set here; of {method} a call can set {can}")
            rule = allowed[name]
            whole = isinstance(value, int) and not isinstance(value, bool)
            if isinstance(rule, dict) and not (whole and rule["least"] <= value <= rule["most"]):
                raise ConfigError(f"{name}: give a whole number from {rule['least']} to {rule['most']}")
            if isinstance(rule, list) and not any(value == one and type(value) is type(one) for one in rule):
                raise ConfigError(f"{name}: choose from {', '.join(map(str, rule))}")
        method_class(self._given[method]).Config.make(**settings)
        return dict(settings)

    def label_set(self, labels: Sequence[str] | str | None) -> LabelSet:
        """The labels of a call: a set by its name, or a list, never a file."""
        if labels is None:
            return self.sets[self.default_labels]
        if isinstance(labels, str):
            if labels.strip() in self.sets:
                return self.sets[labels.strip()]
            labels = labels.replace("\n", ",").split(",")
        entries = [label for label in labels if label.strip()]
        if len(entries) == 1 and entries[0].strip().lower().endswith((".txt", ".csv", ".json")):
            raise LabelError(
                f"{entries[0].strip()[:80]!r} looks like a file, and a call cannot name one: send the labels themselves"
            )
        long = next((label for label in entries if len(label) > self.limits.label_length), None)
        if long is not None:
            raise LabelError(
                f"the label {long[:40]!r}… has {len(long):,} characters, and the limit is {self.limits.label_length}"
            )
        words = sum(1 + label.count("|") for label in entries)
        if words > self.limits.labels:
            raise LabelError(
                f"{words:,} labels and synonyms are too many for a call, the limit is {self.limits.labels:,}; "
                "whoever runs the server can offer a longer list by name"
            )
        for label in entries:
            if any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in label.strip()):
                raise LabelError(f"the label {label.strip()[:40]!r} holds letters that nobody can read")
        return LabelSet.of(entries)


def _known(kind: str, name: str | None, there: Sequence[str]) -> str:
    if name is None or name in there:
        return name or there[0]
    raise ConfigError(f"no {kind} {name[:80]!r} here; there is {', '.join(there)}")
