"""How a run is carried out where it is: images at once, processes, compiling. What is not said is chosen and logged.

Nothing here changes a result beyond the rounding of a GPU.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mltta.methods.base import Method
    from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")
# Compiling takes half a minute, and saves about a millisecond and a half of an image's 64 views.
COMPILED_IMAGES = 20_000
# On a GPU so many images are worked on at once, if each may take this much of an eighth of the free memory.
IMAGES_AT_ONCE, IMAGE_BYTES = 32, 32 * 2**20


@dataclass(frozen=True)
class Execution:
    """What to do as told; None chooses."""

    batch_size: int | None = None
    workers: int | None = None
    compile: bool | None = None
    jacobian: bool | None = None

    def prepare(self, backbone: Backbone, images: int) -> None:
        """Compile the image tower where that pays for so many images."""
        pays = backbone.device.type == "cuda" and images >= COMPILED_IMAGES
        if pays if self.compile is None else self.compile:
            log.debug("compiling the image tower for %d images", images)
            backbone.image_tower.compile()

    def apply(self, method: Method) -> None:
        """Tell a method whether to keep the Jacobian of its label features."""
        method.text.jacobian = self.jacobian

    def images_at_once(self, backbone: Backbone) -> int:
        """On a CPU they are encoded one by one in any case: then a batch is what a kill may lose."""
        if self.batch_size is not None:
            return self.batch_size
        chosen = 8
        if backbone.device.type == "cuda":
            room = torch.cuda.mem_get_info(backbone.device)[0] // 8 // IMAGE_BYTES
            chosen = int(max(1, min(IMAGES_AT_ONCE, room)))
        log.debug("%d images at a time", chosen)
        return chosen

    def processes(self, backbone: Backbone) -> int:
        """Those that decode and make views: some on a CPU that encodes, many beside a GPU.

        None where processes have too little memory to share, as in a container: views of a batch take 100s of MB.
        """
        if self.workers is not None:
            return self.workers
        cores = os.cpu_count() or 1
        chosen = min(16, cores // 4 if backbone.device.type == "cpu" else cores)
        try:
            room = os.statvfs("/dev/shm")
            if room.f_bavail * room.f_frsize < 4 * 2**30:
                chosen = 0
        except (OSError, AttributeError):
            pass  # another system shares memory in other ways
        log.debug("%d processes decode images", chosen)
        return chosen
