"""How a run is carried out where it is: images at once, who decodes, compiling. What is not said is chosen and logged.

Nothing here changes a result beyond the rounding of a GPU.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")
# Compiling takes half a minute, and saves about a millisecond and a half of an image's 64 views.
COMPILED_IMAGES = 20_000
MOST_DECODERS = 16


@dataclass(frozen=True)
class Execution:
    """What to do as told; None chooses.

    Args:
        batch_size: images at once; what a kill can lose.
        workers: processes that decode images and make views; by default threads of this process do, which copy nothing.
        compile: compile the image tower first.
        threads: how many decode where no processes do.
    """

    batch_size: int | None = None
    workers: int | None = None
    compile: bool | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        least = ((self.batch_size, 1), (self.threads, 1), (self.workers, 0))
        if any(value is not None and value < low for value, low in least):
            raise ConfigError(
                f"give a batch size and threads of at least 1 and 0 or more workers, not {self}"
            )

    def prepare(self, backbone: Backbone, images: int) -> None:
        """Compile the image tower where that pays for so many images."""
        pays = backbone.device.type == "cuda" and images >= COMPILED_IMAGES
        if pays if self.compile is None else self.compile:
            log.debug("compiling the image tower for %d images", images)
            backbone.image_tower.compile()

    def decoders(self, backbone: Backbone) -> int:
        """Threads that decode and make views where no processes do: one a core, on a CPU beside those that encode."""
        # beside a CPU's encoding few are enough, and each holds all views of two photos
        chosen = self.threads or min(8 if backbone.device.type == "cpu" else MOST_DECODERS, cores())
        log.debug("%d threads decode images", chosen)
        return chosen


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
