"""Settings of methods: frozen dataclasses with the published defaults, checked when made."""

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

#: more than anybody looks at, or steps; what is beyond is a slip, and would take days or all memory
MOST_VIEWS, MOST_STEPS, MOST_KEPT, LARGEST = 4096, 1000, 4096, 1e9
#: ranges that occur often
SHARE: Mapping[str, float] = {"least": 0, "most": 1}
PART: Mapping[str, float] = {"above": 0, "most": 1}


#: how the range of a field is said and checked
_RANGE = {"least": ("at least", ge), "above": ("above", gt), "most": ("at most", le)}


def setting(default: Any, help: str, **within: float) -> Any:
    """A field of a config: its default, what it means, and its range: ``least``, ``above``, ``most``."""
    assert within.keys() <= _RANGE.keys(), within
    return dataclasses.field(default=default, metadata={"help": help, **within})


def range_of(field: dataclasses.Field[Any]) -> str:
    """The values that a field takes, in words; empty if all of its kind."""
    about = field.metadata
    return ", ".join(f"{words} {about[name]:g}" for name, (words, _) in _RANGE.items() if name in about)


@dataclass(frozen=True)
class Config:
    """Settings of a method: frozen, with the paper's defaults, validated when made.

    ``PRESETS["released"]`` names what the authors' released code does differently.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init_subclass__(cls) -> None:
        """Let a field with another default keep the help and the range of the class above."""
        for name in inspect.get_annotations(cls).keys() & getattr(cls, "__dataclass_fields__", {}).keys():
            field: dataclasses.Field[Any] = cls.__dataclass_fields__[name]
            own = vars(cls).get(name, field)
            given = own if isinstance(own, dataclasses.Field) else dataclasses.field(default=own)
            setattr(
                cls,
                name,
                dataclasses.field(default=given.default, metadata={**field.metadata, **given.metadata}),
            )

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

    def __post_init__(self) -> None:
        """Raise for the first field that is not of its kind, or out of its range."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            _check_kind(field.name, value, kinds[field.name])
            about = field.metadata
            if not all(holds(value, about[name]) for name, (_, holds) in _RANGE.items() if name in about):
                raise ConfigError(f"{field.name} = {shown(value)} is out of range: give {range_of(field)}")


@dataclass(frozen=True)
class ViewConfig(Config):
    """What every method that trusts the confident ones of an image's views can be told."""

    PRESETS = {"released": {"augmix": True}}

    views: int = setting(64, "views per image, the clean one among them", least=1, most=MOST_VIEWS)
    augmix: bool = setting(False, "mix the crops by AugMix")
    select_ratio: float = setting(0.1, "share of the views that are kept, the most confident ones", **PART)
    look: Literal["crops", "local"] = setting("crops", "crops, or the windows of one pass at twice the size")

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        if self.look == "local":
            return (local_spec(side, 2),)
        return (ViewSpec(count=self.views, augmix=self.augmix),)


@dataclass(frozen=True)
class TuningConfig(ViewConfig):
    """And what every one that tunes one context on them can be told besides; TPT's published settings."""

    lr: float = setting(5e-3, "learning rate of the context", least=0)
    weight_decay: float = setting(0.01, "weight decay of the context", least=0)
    steps: int = setting(1, "optimizer steps per image", least=0, most=MOST_STEPS)


def local_spec(side: int, scale: float, window: int = 4, stride: int = 2, clean: bool = True) -> LocalSpec:
    """Local views of an input so many times a model's own; windows and strides in sevenths of its own view."""
    cell = max(1, side // 7)
    return LocalSpec(cell * round(7 * scale), cell * window, cell * stride, clean)


def _check_kind(name: str, value: Any, kind: Any) -> None:
    """Raise when a setting is not of the kind its field declares: a choice, yes or no, a number, a text."""
    choices, said = get_args(kind), f"{name} = {shown(value)}"
    if choices and value not in choices:
        raise ConfigError(f"{said}: choose from {', '.join(map(str, choices))}")
    wanted: dict[Any, tuple[Any, str]] = {
        bool: (bool, "true or false"),
        int: (int, "a whole number"),
        float: ((int, float), "a number"),
        str: (str, "a text"),
    }
    own, words = wanted.get(kind, (object, ""))
    if not isinstance(value, own) or (isinstance(value, bool) and own not in (bool, object)):
        raise ConfigError(f"{said}: give {words}")
    if kind in (int, float) and not -LARGEST <= value <= LARGEST:  # NaN fails too
        raise ConfigError(f"{said} is out of range: give {words} of a usual size")
