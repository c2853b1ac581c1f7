"""Gain of each optimization of `mltta.accelerate`: all enabled, compared with all but one, in the case it targets.

    python -m benchmarks.tricks [--device cuda] [--model ViT-B/32] [--images 64] [--only views graphs]

Weights are random (except mini's), captions and images are synthetic: speed does not depend on them. Cases: ML-TTA
with the paper's settings (64 views, 80 labels, 100,000 captions) in a stream of decoded images; a single image; and
search in a base of a million captions. "Lines" counts the files used only by this optimization.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import mltta
from mltta import LabelSet, ViewSpec, create_method, load_backbone
from mltta.accelerate import TRICKS
from mltta.captions.labelled import LabelledCaptions
from mltta.methods.base import Method
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.model.torch_engine import encode
from mltta.session.prepare import Photo, Prepare, Prepared

SPEC = ViewSpec(count=64)
#: files of an optimization, and the case it targets
CPU = {
    "shared-prefix": (("labels", "prefix_attention"), "stream"),
    "allocation": (("allocation",), "stream"),
    "folding": (("folding",), "stream"),
    "search": (("search",), "search"),
}
CUDA = {
    "shared-prefix": (("labels", "prefix_attention"), "stream"),
    "search": (("cuda_search",), "search"),
    "views": (("views", "augmix", "boxes", "kernels"), "stream"),
    "draws": (("draws",), "stream"),
    "patches": (("patches",), "stream"),
    "graphs": (("graph",), "alone"),
    "tensor-cores": ((), "stream"),
    "jacobian": (("jacobian",), "stream"),
}


class Case:
    """A model with some optimizations, a method, and images."""

    def __init__(self, model: str, device: str, tricks: set[str], images: int):
        torch.manual_seed(0)
        self.backbone: Backbone = load_backbone(
            model, device=device, random_weights=model != "mini", accelerate=",".join(sorted(tricks)) or False
        )
        self.tricks = tricks
        self.photos = [self._photo(i) for i in range(images)]

    def method(self, captions: int) -> Method:
        rng = np.random.default_rng(0)
        dim = self.backbone.encode_texts(["a"]).shape[1]
        named = [own[: 1 + i % 4] for i, own in enumerate(rng.integers(80, size=(captions, 4)).tolist())]
        vectors = F.normalize(torch.randn(captions, dim), dim=-1).to(self.backbone.device)
        base = LabelledCaptions(vectors, named, 80, self.backbone.acceleration.search)
        method = create_method("ml-tta", self.backbone, LabelSet.load("coco"), captions=base)
        if hasattr(method.text, "jacobian"):  # as in a run of thousands of images
            method.text.jacobian = "jacobian" in self.tricks
        return method

    def _photo(self, i: int) -> Prepared:
        small = torch.randint(0, 256, (1, 3, 12, 16), generator=torch.Generator().manual_seed(i)).float()
        pixels = F.interpolate(small, (375, 500), mode="bicubic").clamp(0, 255)[0].permute(1, 2, 0).byte()
        photo = Photo(i, f"image {i}", pixels.numpy())
        if self.backbone.renderer is None:
            return Prepare(lambda key: key, [SPEC], self.backbone.preprocess)(photo)
        return Prepared(
            photo, decoded=pixels.to(self.backbone.device), identity=f"image {i}", missing=(SPEC,)
        )

    def encoded(self, photos: list[Prepared]) -> Encoded:
        if (
            self.backbone.renderer is None and self.backbone.device.type != "cpu"
        ):  # views rendered on the CPU each time
            prepare = Prepare(lambda key: key, [SPEC], self.backbone.preprocess)
            photos = [prepare(photo.photo) for photo in photos]
        found = encode(self.backbone, photos)
        return Encoded({SPEC: torch.stack([one[SPEC] for one in found]).float()})


def clock(device: torch.device, work: Callable[[], object], repeat: int = 3) -> float:
    """Milliseconds of the fastest call, after a warm-up call."""
    sync = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        work()
        sync()
        times.append(1000 * (time.perf_counter() - start))
    return min(times[1:])


def measure(case: Case, kind: str, batch: int) -> float:
    """Milliseconds per image in one case."""
    device, photos = case.backbone.device, case.photos
    if kind == "search":
        search = case.backbone.acceleration.search(
            F.normalize(torch.randn(2**20 + 1, 384), dim=-1).to(device)
        )
        views = F.normalize(torch.randn(64, 384), dim=-1).to(device)
        return clock(device, lambda: search(views, 16))
    method = case.method(100_000)
    if kind == "alone":
        return clock(device, lambda: method(case.encoded(photos[:1])).cpu(), 10)

    def stream() -> None:
        for i in range(0, len(photos), batch):
            method(case.encoded(photos[i : i + batch]))

    return clock(device, stream) / len(photos)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="ViT-B/32")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--only", nargs="+", metavar="TRICK", help="measure only these")
    args = parser.parse_args()
    device = load_backbone("mini", device=args.device).device
    table = CUDA if device.type == "cuda" else CPU
    table = {trick: own for trick, own in table.items() if trick in (args.only or table)}
    room = Path(mltta.__file__).parent / "accelerate"
    everything = Case(args.model, args.device, set(TRICKS), args.images)
    base = {kind: measure(everything, kind, args.batch) for kind in {kind for _, kind in table.values()}}
    print("| trick | lines | case | with, ms | without, ms | gain |\n|---|---|---|---|---|---|", flush=True)
    for trick, (files, kind) in table.items():
        case = Case(args.model, args.device, set(TRICKS) - {trick}, args.images)
        without = measure(case, kind, args.batch)
        lines = sum(len((room / f"{file}.py").read_text().splitlines()) for file in files)
        gain = 1 - base[kind] / without
        print(f"| {trick} | {lines} | {kind} | {base[kind]:.2f} | {without:.2f} | {gain:.0%} |", flush=True)
    nothing = Case(args.model, args.device, set(), args.images)
    plain = measure(nothing, "stream", args.batch)
    print(f"\nWithout any, stream: {plain:.2f} ms per image, {plain / base['stream']:.1f} times as long.")


if __name__ == "__main__":
    main()
