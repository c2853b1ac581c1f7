"""The seam to the room `mltta.accelerate`: what may be done faster, and here the plain way of it.

The core knows this file and nothing behind it. `choose` opens the room by name, if it is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from mltta.errors import ConfigError
from mltta.model.label_encoder import LabelEncoder, TextTower
from mltta.model.passes import ImageTower
from mltta.model.prompts import Prompts
from mltta.model.search import Search

if TYPE_CHECKING:
    from mltta.images.specs import ViewSpec
    from mltta.images.views import Preprocess

#: set it to none, all, or names of tricks separated by commas, for a whole process
VARIABLE = "MLTTA_ACCELERATE"


class Renderer(Protocol):
    """Makes views where the image tower is."""

    def render(self, images: Sequence[Tensor], spec: ViewSpec, seed: int, ids: Sequence[str]) -> Tensor:
        """Views (B, N, 3, S, S) of images (H, W, 3), uint8; ids are what the randomness of each hangs on."""


class Acceleration:
    """Nothing is sped up."""

    def __init__(self, tricks: Collection[str] = ()):
        #: the tricks that are on, by name
        self.tricks = tricks

    def start(self, visual: torch.nn.Module) -> None:
        """Called once with the image tower, on its device."""

    def image_tower(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ) -> ImageTower:
        """Passes through an image tower."""
        return ImageTower(forward, device, dtype, side)

    def label_encoder(self, tower: TextTower, prompts: Prompts, context: Tensor | None) -> LabelEncoder:
        """Labels under contexts that can change."""
        return LabelEncoder(tower, prompts, context)

    def search(self, base: Tensor) -> Search:
        """Nearest captions."""
        return Search(base)

    def renderer(self, preprocess: Preprocess, device: torch.device, dtype: torch.dtype) -> Renderer | None:
        """What makes views on the device; None: they are made on the CPU."""
        return None


def choose(device: torch.device, wanted: bool | str | None = None) -> Acceleration:
    """The tricks for a device: all that serve it, none, or those named.

    Args:
        wanted: True or "all", False or "none", or names separated by commas; None asks MLTTA_ACCELERATE, then all.
    """
    said = os.environ.get(VARIABLE, "all") if wanted is None else wanted
    if said in (False, "none"):
        return Acceleration()
    room = import_module("mltta.accelerate")
    names = set() if said in (True, "all") else {name.strip() for name in str(said).split(",")}
    if unknown := sorted(names - set(room.TRICKS)):
        wrong, right = ", ".join(unknown), ", ".join(room.TRICKS)
        raise ConfigError(f"accelerate = {wrong}: give all, none, or some of {right}")
    kind = "cuda" if device.type == "cuda" else "cpu"  # the file of the other is not even opened
    opened = import_module(f"{room.__name__}.{kind}")
    return getattr(opened, f"{kind.title()}Acceleration")(names or set(room.TRICKS))  # type: ignore[no-any-return]
