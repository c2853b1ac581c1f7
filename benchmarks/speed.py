"""Time per image, by stage and end to end, compared with encoding alone and with a simple reference implementation.

    python -m benchmarks.speed --models RN50 ViT-B/32 ViT-B/16 mini [--device cuda] [--images 256] [--plain 8]
    python -m benchmarks.speed --models ViT-B/16 --growth
    python -m benchmarks.speed --files 800 --models ViT-B/32
    python -m benchmarks.speed --table-4 --models RN50

ML-TTA with the paper's settings: 64 views, 80 labels (COCO), 100,000 captions, both contexts adapted. Images are
500 x 375 pixels, decoded and on the device. Weights are random (except mini's): speed does not depend on them.
"Encoding" is the image tower on rendered views, with the same precision and batch size. The reference is
benchmarks/plain.py: one image at a time, 77 tokens, torch's AdamW, a full sort of the captions. On a GPU it uses half
precision as released and pre-rendered views; on a CPU it uses float32 and includes rendering.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from benchmarks.plain import Plain
from mltta import Execution, LabelSet, Method, create_method, load_backbone
from mltta.accelerate.cuda_labels import CudaLabelEncoder
from mltta.captions.labelled import LabelledCaptions
from mltta.data import Dataset
from mltta.evaluation.evaluate import evaluate
from mltta.images.specs import AnySpec, ViewSpec
from mltta.images.views import render_views
from mltta.methods.ml_tta import MLTTA
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.model.torch_engine import encode
from mltta.reproduction.filled import TIMED, cells_of
from mltta.reproduction.rerun import TITLES
from mltta.reproduction.timing import TIMES, adapting_seconds
from mltta.session.prepare import Photo, Prepare, Prepared
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.render import render

SIZE = (375, 500)


@dataclass
class Scene:
    """A model, labels, captions and images to time."""

    backbone: Backbone
    labels: LabelSet
    captions: LabelledCaptions
    images: list[Prepared]
    spec: ViewSpec

    @classmethod
    def of(cls, model: str, device: str, images: int, labels: int, captions: int, views: int) -> Scene:
        torch.manual_seed(0)
        backbone = load_backbone(model, device=device, random_weights=model != "mini")
        names = list(LabelSet.load("coco").names) + [f"thing number {i}" for i in range(1000)]
        made = []
        for i in range(images):
            small = torch.randint(0, 256, (1, 3, 12, 16), generator=torch.Generator().manual_seed(i)).float()
            large = F.interpolate(small, SIZE, mode="bicubic").clamp(0, 255)[0].permute(1, 2, 0)
            pixels = large.to(backbone.device, torch.uint8)
            made.append(Prepared(Photo(i, f"image {i}", None), decoded=pixels, identity=f"image {i}"))
        return cls(
            backbone,
            LabelSet.of(names[:labels]),
            random_captions(backbone, labels, captions),
            made,
            ViewSpec(count=views),
        )

    def picture(self, image: Prepared) -> Image.Image:
        return Image.fromarray(image.decoded.cpu().numpy())

    def encode(self, images: list[Prepared]) -> Encoded:
        """Render and encode views, as the tagger and the evaluator do on this device."""
        found = encode(self.backbone, [self.prepare(image) for image in images])
        features = torch.stack([own[self.spec] for own in found])
        return Encoded({self.spec: features.to(self.backbone.device).float()})

    def prepare(self, image: Prepared) -> Prepared:
        """Prepare an image for encoding: the image itself if the device renders views, else its views."""
        if self.backbone.renderer is not None:
            return replace(image, missing=(self.spec,))
        make = Prepare(lambda photo: photo, [self.spec], self.backbone.preprocess)
        return make(Photo(0, image.identity, self.picture(image)))

    def method(self) -> MLTTA:
        method = create_method(
            "ml-tta", self.backbone, self.labels, captions=self.captions, views=self.spec.count
        )
        assert isinstance(method, MLTTA)
        return method


def random_captions(backbone: Backbone, labels: int, count: int) -> LabelledCaptions:
    """Random unit vectors with label sets of one to four labels."""
    dim = backbone.encode_texts(["a"]).shape[1]
    rng = np.random.default_rng(0)
    drawn = rng.integers(labels, size=(count, 4)).tolist()
    mentions = [own[: 1 + i % 4] for i, own in enumerate(drawn)]
    embeddings = F.normalize(torch.randn(count, dim), dim=-1).to(backbone.device)
    return LabelledCaptions(embeddings, mentions, labels, backbone.acceleration.search)


def settle(method: Method) -> None:
    """Simulate a run of thousands of images: on a GPU first-step gradients use a stored Jacobian."""
    if isinstance(method.text, CudaLabelEncoder):
        method.text.jacobian = True


def clock(device: torch.device, work: Callable[[], object], repeat: int = 1) -> float:
    """Milliseconds per call, after warm-up calls that select kernels and capture graphs."""
    sync = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(5 if device.type == "cuda" and repeat > 1 else 1):
        work()
    sync()
    start = time.perf_counter()
    for _ in range(repeat):
        work()
    sync()
    return 1000 * (time.perf_counter() - start) / repeat


def stages(scene: Scene, batch: int, compile: bool) -> dict[str, float]:
    """Milliseconds per image: views, encoding, retrieval, adaptation, and all of them in a stream."""
    backbone, method = scene.backbone, scene.method()
    device = backbone.device
    if compile:
        backbone.image_tower.compile(batch * scene.spec.count)
    settle(method)
    first = scene.images[:batch]

    def views() -> Tensor:
        if backbone.renderer is None:
            rendered = [render_views(scene.picture(i), scene.spec, backbone.preprocess) for i in first]
            return torch.from_numpy(np.stack(rendered))
        return backbone.renderer.render(
            [i.decoded for i in first], scene.spec, 0, [i.identity for i in first]
        )

    pixels = views().flatten(0, 1)
    features = backbone.encode_images(pixels).view(len(first), scene.spec.count, -1)
    encoded = Encoded({scene.spec: features})
    batches = [scene.images[i : i + batch] for i in range(0, len(scene.images), batch)]

    def stream() -> None:
        for part in batches:
            method(scene.encode(part))

    n, repeat = len(first), 5 if device.type == "cuda" else 1
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = {
        "views": clock(device, views, repeat) / n,
        "encode": clock(device, lambda: backbone.encode_images(pixels), repeat) / n,
        "retrieve": clock(device, lambda: method.retrieve(features), repeat) / n,
        "adapt": clock(device, lambda: method(encoded), repeat) / n,
        "stream": clock(device, stream) / len(scene.images),
    }
    times["adapt"] -= times["retrieve"]
    return times


def auto_stream(scene: Scene, batch: int) -> dict[str, float]:
    """Milliseconds per image of `auto` in a stream, for both effort levels."""
    times = {}
    for effort in ("fast", "best"):
        method = create_method("auto", scene.backbone, scene.labels, captions=scene.captions, effort=effort)
        specs = tuple(method.needs)

        def stream(method: Method = method, specs: tuple[AnySpec, ...] = specs) -> None:
            for i in range(0, len(scene.images), batch):
                part = [replace(scene.prepare(image), missing=specs) for image in scene.images[i : i + batch]]
                if scene.backbone.renderer is None:
                    make = Prepare(lambda photo: photo, specs, scene.backbone.preprocess)
                    part = [
                        make(Photo(0, image.identity, scene.picture(image)))
                        for image in scene.images[i : i + batch]
                    ]
                found = encode(scene.backbone, part)
                method(Encoded({spec: torch.stack([own[spec] for own in found]).float() for spec in specs}))

        times[effort] = clock(scene.backbone.device, stream, 2) / len(scene.images)
    return times


def peak_gigabytes(device: torch.device) -> float:
    """Peak memory of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def single(scene: Scene) -> float:
    """Milliseconds from one decoded image to its scores, with nothing else running."""
    method, device = scene.method(), scene.backbone.device
    settle(method)
    one = scene.images[:1]
    return clock(device, lambda: method(scene.encode(one)).cpu(), 20 if device.type == "cuda" else 1)


def plain(scene: Scene, images: int) -> float:
    """Milliseconds per image of the reference: on a GPU with pre-rendered views, on a CPU including rendering."""
    backbone = load_backbone(
        scene.backbone.name,
        device=scene.backbone.device,
        image_dtype=torch.float32,
        random_weights=scene.backbone.name != "mini",
    )
    device = backbone.device
    reference = Plain(backbone, scene.labels, scene.captions, autocast=device.type == "cuda")
    if backbone.renderer is None:
        picture = scene.picture(scene.images[0])
        return clock(
            device,
            lambda: reference.ml_tta(
                torch.from_numpy(render_views(picture, scene.spec, backbone.preprocess))
            ),
            images,
        )
    views = backbone.renderer.render([scene.images[0].decoded], scene.spec, 0, ["x"])[0]
    return clock(device, lambda: reference.ml_tta(views), images)


def table_4(scene: Scene) -> Table:
    """Seconds per image of the methods of the paper's Table 4, one image at a time, beside the paper's."""
    printed = {cell.setting.method: cell.value for cell in cells_of(4) if cell.setting.metric == TIMES[0]}
    rows: dict[str, list[Cell]] = {name: [] for name in TIMES}
    with tempfile.TemporaryDirectory() as folder:
        pictures = [scene.picture(image) for image in scene.images]
        ids = [image.identity for image in scene.images]
        for id in ids:
            own = Path(folder, id)
            own.mkdir()
            for j in range(63):  # their content does not change the time
                pictures[0].rotate(j).save(own / f"{j:03}.jpg")
        targets = np.zeros((len(ids), len(scene.labels)), np.int8)
        data = Dataset("speed", scene.labels, ids, pictures, targets)
        for name in printed:
            own = {"generated": folder} if name == "difftpt" else {}
            options = {"captions": scene.captions, "teacher": "self", **own}
            method = create_method(name, scene.backbone, scene.labels, **options)
            settle(method)
            for metric, value in adapting_seconds(method, data, len(ids)).items():
                paper = printed[name] if metric == TIMES[0] else None
                rows[metric].append(Cell(paper=paper, ours=value))
    found = tuple(Row(metric, tuple(cells)) for metric, cells in rows.items())
    title = f"Table 4, {scene.backbone.name} on {scene.backbone.device.type}, {len(scene.labels)} labels"
    columns = tuple(TITLES[name] for name in printed)
    notes = (TIMED, "RLCF is taught by the model itself. The paper does not name its hardware.")
    return Table(title, columns, found, notes, "s", digits=3, best="")


def from_files(scene: Scene, count: int, workers: int) -> float:
    """Images per second of `evaluate` from JPEG files, including writing results."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for i in range(count):
            pixels = scene.images[i % len(scene.images)].decoded.cpu().numpy().copy()
            pixels[0, 0] = (i % 256, i // 256, 0)  # all files differ
            Image.fromarray(pixels).save(top / f"{i:05d}.jpg", quality=92)
        paths = sorted(top.glob("*.jpg"))
        targets = np.zeros((count, len(scene.labels)), np.int8)

        def run(first: int, out: str) -> float:
            data = Dataset(
                "files", scene.labels, [p.stem for p in paths[:first]], paths[:first], targets[:first]
            )
            start = time.perf_counter()
            execution = Execution(workers=workers)
            evaluate(data, scene.backbone, ["ml-tta"], out=top / out, cache=False, execution=execution)
            return time.perf_counter() - start

        run(count // 4, "warm-up")  # computes the Jacobian and selects kernels
        short = run(count // 4, "a")  # start-up is in both, so it cancels out
        return (count - count // 4) / (run(count, "b") - short)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["ViT-B/32"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--labels", type=int, default=80)
    parser.add_argument("--captions", type=int, default=100_000)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--plain", type=int, default=0, help="number of images for the reference")
    parser.add_argument("--auto", action="store_true", help="also time the method auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--single", action="store_true", help="also time a single image")
    parser.add_argument("--files", type=int, default=0, help="also measure with this many JPEG files")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--growth", action="store_true", help="vary labels, captions and views instead")
    parser.add_argument("--table-4", action="store_true", help="time the paper's Table 4 instead")
    args = parser.parse_args()
    if args.table_4:
        for model in args.models:
            images = min(args.images, 20 if args.device == "cuda" else 5)
            scene = Scene.of(model, args.device, images, args.labels, args.captions, args.views)
            print(render(table_4(scene), "text"))
        return
    head = ["model", "views", "encode", "retrieve", "adapt", "stream", "× encode", "peak GB"]
    head += ["auto, fast", "auto, best"] if args.auto else []
    head += ["reference", "× faster"] if args.plain else []
    head += ["alone"] if args.single else []
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    usual = (args.images, args.labels, args.captions, args.views)
    settings = [usual]
    if args.growth:
        settings = [(n, *usual[1:]) for n in (32, 128, 512)]
        settings += [(args.images, c, *usual[2:]) for c in (20, 80, 200, 1000)]
        settings += [(*usual[:2], k, args.views) for k in (10_000, 100_000, 1_000_000)]
        settings += [(*usual[:3], n) for n in (1, 16, 64, 128)]
    for model in args.models:
        for images, labels, captions, views in settings:
            scene = Scene.of(model, args.device, images, labels, captions, views)
            times = stages(scene, args.batch, args.compile)
            name = model
            if args.growth:
                name += f", {images} images, {labels} labels, {captions:,} captions, {views} views"
            row = [
                name,
                *(f"{value:.2f}" for value in times.values()),
                f"{times['stream'] / times['encode']:.2f}",
                f"{peak_gigabytes(scene.backbone.device):.1f}",
            ]
            if args.auto:
                row += [f"{value:.2f}" for value in auto_stream(scene, args.batch).values()]
            if args.plain:
                slow = plain(scene, args.plain)
                row += [f"{slow:.1f}", f"{slow / times['stream']:.0f}"]
            if args.single:
                row.append(f"{single(scene):.1f}")
            if scene.backbone.device.type == "cuda":
                torch.cuda.empty_cache()
            print("| " + " | ".join(row) + " |", flush=True)
        if args.files:
            rate = from_files(scene, args.files, args.workers)
            print(f"{model}: {rate:.0f} images per second from JPEGs, {args.workers} workers", flush=True)


if __name__ == "__main__":
    main()
