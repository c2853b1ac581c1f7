"""Settings of methods: frozen dataclasses with the published defaults, validated on creation."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from operator import ge, gt, le
from typing import Any, ClassVar, Literal, get_args, get_type_hints

from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.storage.reading import shown

#: upper limits on views and steps; anything above is a typo and would take days or all memory
MOST_VIEWS, MOST_STEPS, MOST_KEPT, LARGEST = 4096, 1000, 4096, 1e9
#: common ranges
SHARE: Mapping[str, float] = {"least": 0, "most": 1}
PART: Mapping[str, float] = {"above": 0, "most": 1}


#: how a field's range is described and checked
_RANGE = {"least": ("at least", ge), "above": ("above", gt), "most": ("at most", le)}


def setting(default: Any, help: str, **within: float) -> Any:
    """Declare a config field: its default, help text and range (``least``, ``above``, ``most``)."""
    assert within.keys() <= _RANGE.keys(), within
    return dataclasses.field(default=default, metadata={"help": help, **within})


def range_of(field: dataclasses.Field[Any]) -> str:
    """The allowed range of a field as text; empty if unrestricted."""
    about = field.metadata
    return ", ".join(f"{words} {about[name]:g}" for name, (words, _) in _RANGE.items() if name in about)


@dataclass(frozen=True)
class Config:
    """Settings of a method: frozen, with the paper's defaults, validated on creation.

    ``PRESETS["released"]`` contains the differences of the authors' released code.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init_subclass__(cls) -> None:
        """Keep the help and range of an inherited field whose default is overridden."""
        for name in inspect.get_annotations(cls).keys() & getattr(cls, "__dataclass_fields__", {}).keys():
            field: dataclasses.Field[Any] = cls.__dataclass_fields__[name]
            own = vars(cls).get(name, field)
            given = own if isinstance(own, dataclasses.Field) else dataclasses.field(default=own)
            metadata = {**field.metadata, **given.metadata}
            setattr(cls, name, dataclasses.field(default=given.default, metadata=metadata))

    @classmethod
    def make(cls, preset: str = "paper", **options: Any) -> Config:
        """Build a config from a preset and overrides; unknown names raise ConfigError."""
        presets = {"paper": {}, "released": {}, **cls.PRESETS}
        if preset not in presets:
            raise ConfigError(f"unknown preset {preset!r}; choose from {', '.join(presets)}")
        names = [field.name for field in dataclasses.fields(cls)]
        for key in options:
            if key not in names:
                raise ConfigError(f"unknown option {key!r}; this method has {', '.join(names) or 'none'}")
        return cls(**{**presets[preset], **options})

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        """The views required by these settings, for a model with this native input size."""
        return (ViewSpec(count=1),)

    def __post_init__(self) -> None:
        """Raise for the first field of the wrong type or out of range."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            _check_kind(field.name, value, kinds[field.name])
            about = field.metadata
            if not all(holds(value, about[name]) for name, (_, holds) in _RANGE.items() if name in about):
                raise ConfigError(f"{field.name} = {shown(value)} is out of range: give {range_of(field)}")


@dataclass(frozen=True)
class ViewConfig(Config):
    """Settings of methods that use the most confident views of each image."""

    PRESETS = {"released": {"augmix": True}}

    views: int = setting(64, "views per image, including the clean one", least=1, most=MOST_VIEWS)
    augmix: bool = setting(False, "apply AugMix to the crops")
    select_ratio: float = setting(0.1, "fraction of views to keep, most confident first", **PART)
    look: Literal["crops", "local"] = setting("crops", "crops, or windows of one pass at twice the size")

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        if self.look == "local":
            return (local_spec(side, 2),)
        return (ViewSpec(count=self.views, augmix=self.augmix),)


@dataclass(frozen=True)
class TuningConfig(ViewConfig):
    """Settings of methods that also tune one context on those views; TPT's published defaults."""

    lr: float = setting(5e-3, "learning rate of the context", least=0)
    weight_decay: float = setting(0.01, "weight decay of the context", least=0)
    steps: int = setting(1, "optimizer steps per image", least=0, most=MOST_STEPS)


def local_spec(side: int, scale: float, window: int = 4, stride: int = 2, clean: bool = True) -> LocalSpec:
    """Local views of an input of ``scale`` times the native size; window and stride in sevenths of the native view."""
    cell = max(1, side // 7)
    return LocalSpec(cell * round(7 * scale), cell * window, cell * stride, clean)


def _check_kind(name: str, value: Any, kind: Any) -> None:
    """Raise if a setting does not have its field's type: one of several choices, bool, number or string."""
    choices, said = get_args(kind), f"{name} = {shown(value)}"
    if choices and value not in choices:
        raise ConfigError(f"{said}: choose from {', '.join(map(str, choices))}")
    wanted: dict[Any, tuple[Any, str]] = {
        bool: (bool, "true or false"),
        int: (int, "a whole number"),
        float: ((int, float), "a number"),
        str: (str, "a string"),
    }
    own, words = wanted.get(kind, (object, ""))
    if not isinstance(value, own) or (isinstance(value, bool) and own not in (bool, object)):
        raise ConfigError(f"{said}: give {words}")
    if kind in (int, float) and not -LARGEST <= value <= LARGEST:  # also rejects NaN
        raise ConfigError(f"{said} is out of range: give {words} of reasonable size")
