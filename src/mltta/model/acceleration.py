"""Interface to the optional package `mltta.accelerate`, and its plain implementation.

The core imports only this file. `choose` imports the package if it is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from mltta.errors import ConfigError
from mltta.model.search import Search

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from mltta.arrays import Array
    from mltta.images.specs import ViewSpec
    from mltta.images.views import Preprocess
    from mltta.model.label_encoder import LabelEncoder, TextTower
    from mltta.model.passes import ImageTower
    from mltta.model.prompts import Prompts

#: environment variable: none, all, or names of optimizations separated by commas
VARIABLE = "MLTTA_ACCELERATE"


class Renderer(Protocol):
    """Renders views on the image tower's device."""

    def render(self, images: Sequence[Tensor], spec: ViewSpec, seed: int, ids: Sequence[str]) -> Tensor:
        """Views (B, N, 3, S, S) of images (H, W, 3), uint8; the ids seed each image's randomness."""


class Acceleration:
    """No optimizations."""

    def __init__(self, tricks: Collection[str] = ()):
        #: names of the enabled optimizations
        self.tricks = tricks

    def start(self, visual: torch.nn.Module) -> None:
        """Called once with the image tower, on its device."""

    def image_tower(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ) -> ImageTower:
        """Runs an image tower."""
        from mltta.model.passes import ImageTower

        return ImageTower(forward, device, dtype, side)

    def label_encoder(self, tower: TextTower, prompts: Prompts, context: Tensor | None) -> LabelEncoder:
        """Encodes labels with variable contexts."""
        from mltta.model.label_encoder import LabelEncoder

        return LabelEncoder(tower, prompts, context)

    def search(self, base: Array) -> Search:
        """Searches the nearest captions."""
        return Search(base)

    def renderer(self, preprocess: Preprocess, device: torch.device, dtype: torch.dtype) -> Renderer | None:
        """Renders views on the device; None renders them on the CPU."""
        return None


def choose(device: torch.device, wanted: bool | str | None = None) -> Acceleration:
    """The optimizations for a device: all that apply, none, or those named.

    Args:
        wanted: True or "all", False or "none", or comma-separated names; None reads MLTTA_ACCELERATE (default: all).
    """
    said = os.environ.get(VARIABLE, "all") if wanted is None else wanted
    if said in (False, "none"):
        return Acceleration()
    room = import_module("mltta.accelerate")
    names = set() if said in (True, "all") else {name.strip() for name in str(said).split(",")}
    if unknown := sorted(names - set(room.TRICKS)):
        wrong, right = ", ".join(unknown), ", ".join(room.TRICKS)
        raise ConfigError(f"unknown optimization {wrong}: use all, none, or some of {right}")
    kind = "cuda" if device.type == "cuda" else "cpu"  # imports only the module for this device
    opened = import_module(f"{room.__name__}.{kind}")
    return getattr(opened, f"{kind.title()}Acceleration")(names or set(room.TRICKS))  # type: ignore[no-any-return]
