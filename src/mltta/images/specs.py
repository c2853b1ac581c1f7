"""Which views of an image are wanted: random crops, generated images, or windows of a map; and their price."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from mltta.errors import ConfigError


@dataclass(frozen=True)
class ViewSpec:
    """Which views of an image: view 0 is clean, the other `count - 1` are random crops.

    Args:
        scale: range of the part of the image's area that a crop covers.
        ratio: range of a crop's width over its height.
        flip: how often a crop is mirrored.
        working_size: our own shortcut, not in the papers: crops are cut from a copy whose short side is at
            most this. At 1024 the smallest default crop still has over 224 pixels a side, and 64 views of a
            photo of 12 megapixels take a quarter of the time. None cuts from the image as it is loaded.
        generated: a folder; then all views, view 0 too, are clean views of the images in its folder of the
            image's name, sorted by file name, and nothing is cropped.
    """

    count: int = 64
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    augmix: bool = False
    working_size: int | None = 1024
    generated: str = ""

    def __post_init__(self) -> None:
        require(is_count(self.count), f"count of views must be a whole number above 0, not {self.count!r}")
        for name in ("scale", "ratio"):
            low, high = floats(getattr(self, name), 2, f"{name} must be two numbers")
            require(0 < low <= high, f"{name} must run from above 0 upwards, not {(low, high)}")
            object.__setattr__(self, name, (low, high))
        require(self.scale[1] <= 1, f"scale ends at the whole image, 1.0, not at {self.scale[1]}")
        (flip,) = floats((self.flip,), 1, "flip must be a number")
        require(0 <= flip <= 1, f"flip is a probability, from 0 to 1, not {flip}")
        require(isinstance(self.augmix, bool), f"augmix is true or false, not {self.augmix!r}")
        small = self.working_size is None or is_count(self.working_size)
        require(small, f"working_size must be a whole number above 0 or none, not {self.working_size!r}")
        require(isinstance(self.generated, str), f"generated is the path of a folder, not {self.generated!r}")

    @property
    def is_clean(self) -> bool:
        """Whether it is the clean view alone."""
        return self.count == 1 and not self.generated

    @property
    def has_clean(self) -> bool:
        """Whether view 0 is the clean one."""
        return not self.generated

    def covers(self, other: AnySpec) -> bool:
        """Say whether the views of `other` are the first of these; the clean view 0 is in every spec of crops."""
        if isinstance(other, LocalSpec):
            return False
        same = replace(self, count=other.count) == other and self.count >= other.count
        return same or (other.is_clean and not self.generated)

    def price(self, side: int) -> float:
        """Arithmetic in units of a view of this side."""
        return float(self.count)


@dataclass(frozen=True)
class LocalSpec:
    """Views that one pass gives: the mean of the map of a larger input, those of its quarters, then windows of it.

    Before them stands the clean view, which takes a pass of its own, unless it is left out.

    The input shows the whole image, squashed to a square. All lengths are in its pixels: a window is so many locations
    of the tower's map as it takes to cover them, at least one. A tower without a map (`mltta.model.local`) looks at
    tiles of the input instead, one pass each.
    """

    size: int = 448
    window: int = 128
    stride: int = 64
    clean: bool = True
    # what the other kind of views can be
    augmix: ClassVar[bool] = False
    generated: ClassVar[str] = ""
    #: rows that show more than a window: the whole and its quarters
    PARTS: ClassVar[int] = 5

    def __post_init__(self) -> None:
        for name in ("size", "window", "stride"):
            value = getattr(self, name)
            require(is_count(value), f"{name} of local views must be a whole number above 0, not {value!r}")
        fits = self.window <= self.size
        require(fits, f"a window of {self.window} is larger than its input of {self.size}")

    def covers(self, other: AnySpec) -> bool:
        """Say whether the views of `other` are among these: the same ones, or the clean one alone."""
        return other == self or (isinstance(other, ViewSpec) and self.clean and other.is_clean)

    @property
    def has_clean(self) -> bool:
        """Whether view 0 is the clean one."""
        return self.clean

    def price(self, side: int) -> float:
        """Arithmetic in units of a view of this side."""
        return self.clean + (self.size / side) ** 2


#: random crops and generated images, or windows of a map
AnySpec: TypeAlias = ViewSpec | LocalSpec


def require(fine: bool, message: str) -> None:
    if not fine:
        raise ConfigError(message)


def floats(values: Any, count: int, message: str) -> tuple[float, ...]:
    """Read numbers given as a tuple, or as a list from a config file."""
    try:
        floats = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ConfigError(f"{message}, not {values!r}") from None
    require(len(floats) == count and all(map(math.isfinite, floats)), f"{message}, not {values!r}")
    return floats


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
