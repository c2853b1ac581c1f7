"""How a run is carried out where it is: images at once, processes, compiling. What is not said is chosen and logged.

Nothing here changes a result beyond the rounding of a GPU.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from mltta.errors import ConfigError
from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")
# Compiling takes half a minute, and saves about a millisecond and a half of an image's 64 views.
COMPILED_IMAGES = 20_000
# On a GPU so many images are worked on at once, if each may take this much of an eighth of the free memory.
IMAGES_AT_ONCE, IMAGE_BYTES = 32, 32 * 2**20


@dataclass(frozen=True)
class Execution:
    """What to do as told; None chooses.

    Args:
        batch_size: images at once; what a kill can lose.
        workers: processes that decode images and make views; 0: a thread of this process.
        compile: compile the image tower first.
    """

    batch_size: int | None = None
    workers: int | None = None
    compile: bool | None = None

    def __post_init__(self) -> None:
        if (self.batch_size is not None and self.batch_size < 1) or (self.workers or 0) < 0:
            raise ConfigError(f"give a batch size of at least 1 and 0 or more workers, not {self}")

    def prepare(self, backbone: Backbone, images: int) -> None:
        """Compile the image tower where that pays for so many images."""
        pays = backbone.device.type == "cuda" and images >= COMPILED_IMAGES
        if pays if self.compile is None else self.compile:
            log.debug("compiling the image tower for %d images", images)
            backbone.image_tower.compile()

    def images_at_once(self, backbone: Backbone) -> int:
        """As many as fill a GPU, or as there are threads."""
        if self.batch_size is not None:
            return self.batch_size
        chosen = max(1, min(8, torch.get_num_threads()))
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
        if multiprocessing.get_context().get_start_method() != "fork":
            # A process that starts anew imports torch again, and the caller's script: only where it is asked for.
            log.debug("a thread decodes images")
            return 0
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


class Halving:
    """Work on as many items at once as memory holds: half as many, from then on, when it does not."""

    #: one result for each item
    Work: TypeAlias = Callable[[Sequence[Any]], list[Any]]

    def __init__(self, size: int):
        self.size = size

    def __call__(self, work: Work, items: Sequence[Any]) -> list[Any]:
        """The results of all items, in their order."""
        found: list[Any] = []
        while len(found) < len(items):
            part = items[len(found) : len(found) + self.size]
            try:
                found += work(part)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                torch.cuda.empty_cache()
                self.size = len(part) // 2
                log.warning("out of GPU memory: %d images at a time from here on", self.size)
        return found
