"""Specifications of views: random crops, generated images or windows of a feature map; and their cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from mltta.errors import ConfigError


@dataclass(frozen=True)
class ViewSpec:
    """Views by cropping: view 0 is the clean view, the other `count - 1` are random crops.

    Args:
        scale: range of the share of the image area that a crop covers.
        ratio: range of the aspect ratio (width / height) of a crop.
        flip: probability of a horizontal flip.
        working_size: an optimization that is not in the papers: crops are cut from a copy whose short side is at
            most this. At 1024, the smallest default crop still has over 224 pixels per side, and 64 views of a
            photo of 12 megapixels take a quarter of the time. None cuts from the full image.
        generated: a folder with one subfolder per image name; all views, including view 0, are clean views of the
            images in that subfolder, sorted by file name.
    """

    count: int = 64
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    augmix: bool = False
    working_size: int | None = 1024
    generated: str = ""

    def __post_init__(self) -> None:
        require(is_count(self.count), f"count of views must be a positive integer, not {self.count!r}")
        for name in ("scale", "ratio"):
            low, high = floats(getattr(self, name), 2, f"{name} must be two numbers")
            require(0 < low <= high, f"{name} must be a range of positive numbers, not {(low, high)}")
            object.__setattr__(self, name, (low, high))
        require(self.scale[1] <= 1, f"scale must be at most 1.0, the whole image, not {self.scale[1]}")
        (flip,) = floats((self.flip,), 1, "flip must be a number")
        require(0 <= flip <= 1, f"flip must be a probability from 0 to 1, not {flip}")
        require(isinstance(self.augmix, bool), f"augmix must be true or false, not {self.augmix!r}")
        small = self.working_size is None or is_count(self.working_size)
        require(small, f"working_size must be a positive integer or none, not {self.working_size!r}")
        require(isinstance(self.generated, str), f"generated must be a folder path, not {self.generated!r}")

    @property
    def is_clean(self) -> bool:
        """Whether the clean view is the only view."""
        return self.count == 1 and not self.generated

    @property
    def has_clean(self) -> bool:
        """Whether view 0 is the clean one."""
        return not self.generated

    def covers(self, other: AnySpec) -> bool:
        """Whether these views start with the views of `other`; the clean view 0 is in every spec of crops."""
        if isinstance(other, LocalSpec):
            return False
        same = replace(self, count=other.count) == other and self.count >= other.count
        return same or (other.is_clean and not self.generated)

    def price(self, side: int) -> float:
        """Return the cost in forward passes at this input size."""
        return float(self.count)


@dataclass(frozen=True)
class LocalSpec:
    """Views from one forward pass: means of the feature map of a larger input, of its quarters and of windows.

    The clean view comes first and needs its own forward pass, unless ``clean`` is false.

    The input is the whole image, squashed to a square. Lengths are in pixels of the input; a window covers at least one
    location of the feature map. A tower without a feature map (`mltta.model.local`) encodes tiles of the input instead,
    in one forward pass each.
    """

    size: int = 448
    window: int = 128
    stride: int = 64
    clean: bool = True
    # attributes of ViewSpec
    augmix: ClassVar[bool] = False
    generated: ClassVar[str] = ""
    #: rows larger than a window: the whole input and its quarters
    PARTS: ClassVar[int] = 5

    def __post_init__(self) -> None:
        for name in ("size", "window", "stride"):
            value = getattr(self, name)
            require(is_count(value), f"{name} of local views must be a positive integer, not {value!r}")
        fits = self.window <= self.size
        require(fits, f"a window of {self.window} is larger than its input of {self.size}")

    def covers(self, other: AnySpec) -> bool:
        """Whether the views of `other` are among these: the same views, or the clean view alone."""
        return other == self or (isinstance(other, ViewSpec) and self.clean and other.is_clean)

    @property
    def has_clean(self) -> bool:
        """Whether view 0 is the clean one."""
        return self.clean

    def price(self, side: int) -> float:
        """Return the cost in forward passes at this input size."""
        return self.clean + (self.size / side) ** 2


#: random crops and generated images, or windows of a map
AnySpec: TypeAlias = ViewSpec | LocalSpec


def require(fine: bool, message: str) -> None:
    if not fine:
        raise ConfigError(message)


def floats(values: Any, count: int, message: str) -> tuple[float, ...]:
    """Parse numbers from a tuple, or from a list of a config file."""
    try:
        floats = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ConfigError(f"{message}, not {values!r}") from None
    require(len(floats) == count and all(map(math.isfinite, floats)), f"{message}, not {values!r}")
    return floats


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
