"""The paper's Table 4: seconds to adapt to one image, one image at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import torch

from mltta.data import Dataset
from mltta.images.decode import load_image
from mltta.methods import Method
from mltta.model.encoded import Encoded, look_at
from mltta.model.torch_backbone import TorchBackbone
from mltta.model.torch_engine import encode
from mltta.session.prepare import Photo, Prepare

#: with views encoded, as the released programs do inside their adaptation step; and on features that are ready
TIMES = ("seconds", "seconds beyond encoding")


def adapting_seconds(method: Method, dataset: Dataset, images: int = 10) -> Mapping[str, float]:
    """Median seconds per image from ready views to scores, with and without encoding them.

    The released programs make views in their data loader, outside of what they time, and so does this. The first image
    is measured once more at the start and not counted. A teacher's views are rendered again, which is included.
    """
    backbone = method.problem.backbone
    assert isinstance(backbone, TorchBackbone)
    gpu = backbone.device.type == "cuda"
    wait: Callable[[], object] = torch.cuda.synchronize if gpu else lambda: None
    prepare = Prepare(lambda photo: photo, method.needs, backbone.preprocess)
    seconds: list[tuple[float, float]] = []
    for i in [0, *range(min(images, len(dataset)))]:
        photo = Photo(i, dataset.ids[i], dataset.images[i], dataset.ids[i])
        ready, read = prepare(photo), partial(load_image, photo.source, working=True)
        if ready.errors:
            continue
        wait()
        start = time.perf_counter()
        (found,) = encode(backbone, [ready])
        features = {spec: own.float()[None] for spec, own in found.items()}
        wait()
        encoded = time.perf_counter()
        with backbone.engine.scoring():
            method(Encoded(features, [look_at(read, seed=0, name=photo.name)]))
        wait()
        seconds.append((time.perf_counter() - start, time.perf_counter() - encoded))
    return dict(zip(TIMES, map(median, zip(*seconds[1:], strict=True)), strict=True)) if seconds[1:] else {}
