"""An evaluation that takes its time, to be killed: python -m tests.evaluation.slow_run FOLDER episodic|online."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from mltta.data.dataset import Lazy
from mltta.evaluation import evaluate as evaluator
from mltta.evaluation.recipes import Recipe
from tests.evaluation.scene import EPISODIC, make_dataset, run

IMAGES, BATCH, IMAGES_PER_STATE = 24, 2, 4
RECIPES = {"episodic": EPISODIC, "online": (Recipe("tda", order=3),)}


def main(out: Path, which: str) -> None:
    """Print how many images are done, a line a batch."""
    torch.set_num_threads(1)
    evaluator.IMAGES_PER_STATE = IMAGES_PER_STATE
    dataset = make_dataset(out / "photos", IMAGES)
    fetched: list[int] = []

    def slowly(place: int) -> Path:
        fetched.append(place)
        time.sleep(0.02 if len(fetched) <= IMAGES // 2 else 0.5)  # the second half leaves time to be killed
        return out / "photos" / dataset.ids[place]

    slow = replace(dataset, images=Lazy(slowly, range(IMAGES)))
    run(slow, RECIPES[which], out, batch_size=BATCH, progress=lambda done, _: print(done, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
