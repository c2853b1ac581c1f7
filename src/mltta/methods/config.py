"""Settings of methods: frozen dataclasses with the published defaults, checked when made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_type_hints

from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.storage.reading import shown

#: more than anybody looks at, or steps; what is beyond is a slip, and would take days or all memory
MOST_VIEWS, MOST_STEPS, MOST_KEPT, LARGEST = 4096, 1000, 4096, 1e9
#: what must hold, and what to give when it does not
Rule = tuple[Callable[[], bool], str]


@dataclass(frozen=True)
class Config:
    """Settings of a method: frozen, with the paper's defaults, validated when made.

    ``PRESETS["released"]`` names what the authors' released code does differently.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def make(cls, preset: str = "paper", **options: Any) -> Config:
        """Build from a preset and overrides, naming what does not exist."""
        presets = {"paper": {}, "released": {}, **cls.PRESETS}
        if preset not in presets:
            raise ConfigError(f"no preset {preset!r}; there are {', '.join(presets)}")
        names = [field.name for field in dataclasses.fields(cls)]
        for key in options:
            if key not in names:
                raise ConfigError(f"no option {key!r} for this method; it takes {', '.join(names) or 'none'}")
        return cls(**{**presets[preset], **options})

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        """The views that these settings ask for, of a model whose own views have this side."""
        return (ViewSpec(count=1),)

    def rules(self) -> dict[str, Rule]:
        """For each field that is not free within its kind: what holds, and what to give if it does not."""
        return {}

    def __post_init__(self) -> None:
        """Raise for the first field that is not of its kind, or whose rule does not hold, naming what would."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check_kind(field.name, getattr(self, field.name), kinds[field.name])
        for name, (holds, wanted) in self.rules().items():
            if not holds():
                raise ConfigError(f"{name} = {shown(getattr(self, name))} is out of range: give {wanted}")


@dataclass(frozen=True)
class ViewConfig(Config):
    """What every method that trusts the confident ones of an image's views can be told."""

    PRESETS = {"released": {"augmix": True}}  # noqa: RUF012

    views: int = 64
    augmix: bool = False
    select_ratio: float = 0.1
    #: "crops", as published, or "local": the windows of one pass at twice the size, in the place of crops
    look: Literal["crops", "local"] = "crops"

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        if self.look == "local":
            return (local_spec(side, 2),)
        return (ViewSpec(count=self.views, augmix=self.augmix),)

    def rules(self) -> dict[str, Rule]:
        return {
            **super().rules(),
            "views": (lambda: 1 <= self.views <= MOST_VIEWS, f"at least 1, at most {MOST_VIEWS}"),
            "select_ratio": (lambda: 0 < self.select_ratio <= 1, "a share above 0, up to 1"),
        }


@dataclass(frozen=True)
class TuningConfig(ViewConfig):
    """And what every one that tunes one context on them can be told besides; TPT's published settings."""

    lr: float = 5e-3
    weight_decay: float = 0.01
    steps: int = 1

    def rules(self) -> dict[str, Rule]:
        return {
            **super().rules(),
            "lr": (lambda: self.lr >= 0, "0 or more"),
            "weight_decay": (lambda: self.weight_decay >= 0, "0 or more"),
            "steps": (lambda: 0 <= self.steps <= MOST_STEPS, f"0 or more, at most {MOST_STEPS}"),
        }


def local_spec(side: int, scale: float, window: int = 4, stride: int = 2, clean: bool = True) -> LocalSpec:
    """Local views of an input so many times a model's own; windows and strides in sevenths of its own view."""
    cell = max(1, side // 7)
    return LocalSpec(cell * round(7 * scale), cell * window, cell * stride, clean)


def _check_kind(name: str, value: Any, kind: Any) -> None:
    """Raise when a setting is not of the kind its field declares: a choice, yes or no, a number."""
    choices = get_args(kind)
    if choices and value not in choices:
        raise ConfigError(f"{name} = {shown(value)}: choose from {', '.join(map(str, choices))}")
    wanted: tuple[Any, str] | None = {
        bool: (bool, "true or false"),
        int: (int, "a whole number"),
        float: ((int, float), "a number"),
    }.get(kind)
    if wanted and (not isinstance(value, wanted[0]) or (isinstance(value, bool) and kind is not bool)):
        raise ConfigError(f"{name} = {shown(value)}: give {wanted[1]}")
    if kind in (int, float) and not -LARGEST <= value <= LARGEST:  # NaN fails too
        raise ConfigError(
            f"{name} = {shown(value)} is out of range: give {wanted and wanted[1]} of a usual size"
        )
