"""Libraries: teaching, search, duplicates, export and encodings, on real photos (docs/library.md).

    python -m benchmarks.library teach --coco DIR [--voc VOCdevkit --first 500]
    python -m benchmarks.library search --flickr DIR
    python -m benchmarks.library duplicates --flickr DIR
    python -m benchmarks.library speed

Features of photos are cached in the user's cache folder, so a second run takes minutes less.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from mltta import load_backbone, load_dataset
from mltta.arrays import to_numpy
from mltta.labels import LabelSet
from mltta.library.duplicates import ALIKE, pairs
from mltta.library.teaching import Examples, Teacher
from mltta.library.vectors import best, photo_vector, similarities
from mltta.methods.create import create_method
from mltta.methods.taught import summary
from mltta.metrics import average_precision
from mltta.session.cache import FeatureCache
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo

COUNTS, DRAWS = (1, 2, 4, 8, 16), 5
NONSENSE = "blicket, dax, wug, tomaroo, glorp, zibber, mochi, kelvane, tulver, prauda"
Floats = NDArray[np.float32]


def seen(photos: Sequence[object], labels: Sequence[LabelSet]) -> tuple[Floats, Floats, Floats, list[Floats]]:
    """Of each photo: its vector, its whole, its windows, and its log-odds for each label list."""
    backbone = load_backbone("mini")
    methods = [create_method("auto", backbone, own) for own in labels]
    needs = methods[0].needs
    stream = FeatureStream(backbone, needs, cache=lambda spec: FeatureCache(backbone, spec, packed=True))
    rows: list[list[Floats]] = []
    for batch in stream(Photo(i, str(i), photo) for i, photo in enumerate(photos)):
        for item in batch:
            encoded = stream.encoded([item])
            vector = photo_vector(
                [np.asarray(to_numpy(encoded.features(s)[0, 0]), np.float16) for s in needs]
            )
            odds = [method.branches(encoded)["view"] for method in methods]
            found = [vector[None], *summary(encoded, needs), *odds]
            rows.append([np.asarray(to_numpy(part)[0], np.float32) for part in found])
    vectors, whole, windows, *odds = (np.array(part) for part in zip(*rows, strict=True))
    return vectors, whole, windows, odds


def teach(name: str, folder: Path, first: int | None) -> None:
    """AP per number of examples: photos are split in two halves, one to teach and one to test."""
    data = load_dataset(name, folder, split="train2017" if name == "coco2017" else "val")
    count = min(first or len(data), len(data))
    nonsense = LabelSet.of(NONSENSE)
    _, whole, windows, (odds, meaningless) = seen(data.images[:count], [data.labels, nonsense])
    targets = data.targets[:count]
    figures: dict[tuple[str, int], list[float]] = {}
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(count)
        taught, tested = order[: count // 2], order[count // 2 :]
        every = Examples(whole, windows)
        teacher = Teacher(every.some(list(taught)))
        for n in COUNTS:
            for label in range(targets.shape[1]):
                yes = [i for i in taught if targets[i, label] == 1][:n]
                known = [i for i in tested if targets[i, label] >= 0]
                wanted = targets[known, label]
                if len(yes) < n or wanted.sum() < 2:
                    continue
                for kind, text in (
                    ("", odds[:, label]),
                    ("meaningless ", meaningless[:, label % len(nonsense)]),
                ):
                    head = teacher.learn(every.some(yes), every.some([]), text[yes], text[taught])
                    trust, direction, window, bias = head
                    taught_odds = trust * text[known] + whole[known] @ direction + bias
                    taught_odds = taught_odds + (windows[known] @ window).max(axis=1)
                    for what, scores in (("text", text[known]), ("taught", taught_odds)):
                        ap = float(average_precision(scores[:, None], wanted[:, None])[0])
                        figures.setdefault((f"{kind}{what}", n), []).append(100 * ap)
    print(f"{name}, {count} photos, {DRAWS} draws, AP\n")
    print("| | " + " | ".join(map(str, COUNTS)) + " |\n|---|" + "---|" * len(COUNTS))
    for kind in ("text", "taught", "meaningless text", "meaningless taught"):
        print(
            f"| {kind} | "
            + " | ".join(f"{np.mean(figures.get((kind, n), [np.nan])):.1f}" for n in COUNTS)
            + " |"
        )
    labels = (f"{len(figures.get(('text', n), [])) / DRAWS:.0f}" for n in COUNTS)
    print("| labels | " + " | ".join(labels) + " |")


def flickr(folder: Path) -> tuple[list[str], dict[str, bytes], dict[str, list[str]]]:
    """Flickr8k in the order of its archives: ids with captions, files, captions."""
    captions: dict[str, list[str]] = {}
    with gzip.open(folder / "captions.tsv.gz", "rt", encoding="utf-8") as file:
        for name, text in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            captions.setdefault(name, []).append(text)
    files: dict[str, bytes] = {}
    for half in "ab":
        with tarfile.open(folder / f"images-{half}.tar") as archive:
            for member in archive:
                if member.isfile() and (held := archive.extractfile(member)) is not None:
                    files[Path(member.name).stem] = held.read()
    return [name for name in files if captions.get(name)], files, captions


def search(folder: Path) -> None:
    """Recall of held-out captions among the 400 held-out photos of training/material.py."""
    names, files, captions = flickr(folder)
    held = [names[i] for i in np.random.default_rng(1234).permutation(len(names))[:400]]
    backbone = load_backbone("mini")
    vectors, *_ = seen([files[name] for name in held], [LabelSet.load("voc")])
    from mltta.images.specs import ViewSpec
    from mltta.session.features import encode_images

    clean = ViewSpec(count=1)
    plain = np.concatenate(
        [to_numpy(encode_images(backbone, [files[name]], [clean]).features(clean)[:, 0]) for name in held]
    )
    texts = [text for name in held for text in captions[name]]
    owner = np.array([i for i, name in enumerate(held) for _ in captions[name]])
    queries = np.asarray(to_numpy(backbone.encode_texts(texts)), np.float32)
    for what, rows in (("library", vectors), ("plain CLIP", plain)):
        scores = similarities(np.asarray(rows, np.float16), queries)
        rank = (scores > scores[owner, np.arange(len(owner))]).sum(axis=0)
        recalls = ", ".join(f"recall@{k} {100 * (rank < k).mean():.1f}" for k in (1, 5, 10))
        print(f"{what}: {recalls} ({len(texts):,} captions, {len(held)} photos)")


def changed(image: Image.Image, which: int, random: np.random.Generator) -> Image.Image | bytes:
    """A copy: scaled, recompressed, cropped by up to 8% of each side, or recolored."""
    width, height = image.size
    if which == 0:
        scale = random.uniform(0.4, 1.6)
        return image.resize((max(1, int(width * scale)), max(1, int(height * scale))))
    if which == 1:
        held = io.BytesIO()
        image.save(held, "JPEG", quality=int(random.integers(30, 91)))
        return held.getvalue()
    if which == 2:
        left, top, right, bottom = random.uniform(0, 0.08, 4)
        box = (int(width * left), int(height * top), int(width * (1 - right)), int(height * (1 - bottom)))
        return image.crop(box)
    color, light = random.uniform(0.6, 1.4), random.uniform(0.8, 1.2)
    return ImageEnhance.Brightness(ImageEnhance.Color(image).enhance(color)).enhance(light)


def duplicates(folder: Path) -> None:
    """Precision and recall for 200 copies among 3,000 different photos."""
    names, files, _ = flickr(folder)
    random = np.random.default_rng(0)
    some = [names[i] for i in random.permutation(len(names))[:3000]]
    copies = [
        changed(Image.open(io.BytesIO(files[n])).convert("RGB"), i % 4, random)
        for i, n in enumerate(some[:200])
    ]
    vectors, *_ = seen([*(files[name] for name in some), *copies], [LabelSet.load("voc")])
    for least in sorted({0.93, 0.95, 0.96, 0.97, 0.98, 0.985, ALIKE}):
        found = list(pairs(vectors.astype(np.float16), least))
        right = [j - 3000 for i, j, _ in found if j >= 3000 and j - 3000 == i]
        wrong = [(i, j) for i, j, _ in found if not (j >= 3000 and j - 3000 == i)]
        kinds = [sum(one % 4 == kind for one in right) for kind in range(4)]
        precision = len(right) / max(1, len(found))
        names_of = zip(("scaled", "jpeg", "cropped", "recolored"), kinds, strict=True)
        parts = ", ".join(f"{kind} {n}/50" for kind, n in names_of)
        said = f"recall {len(right) / 200:.3f}, precision {precision:.3f}, {len(wrong)} false pairs; {parts}"
        print(f"{least:g}{' (default)' if least == ALIKE else ''}: {said}")
        if least == ALIKE:
            print("   false pairs: ", [(some[i % 3000], some[j % 3000]) for i, j in wrong[:8]])


def speed() -> None:
    """Milliseconds per query among synthetic vectors."""
    random = np.random.default_rng(0)
    query = random.standard_normal((1, 384)).astype(np.float32)
    with tempfile.TemporaryDirectory() as place:
        for count in (10_000, 1_000_000):
            file = Path(place) / "vectors"
            held = np.memmap(file, "<f2", "w+", shape=(count, 384))
            for start in range(0, count, 100_000):
                rows = random.standard_normal((min(100_000, count), 384)).astype(np.float32)
                held[start : start + len(rows)] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            held.flush()
            times = []
            for _ in range(5):
                begin = time.perf_counter()
                best(similarities(np.memmap(file, "<f2", "r", shape=(count, 384)), query)[:, 0], 20)
                times.append(1000 * (time.perf_counter() - begin))
            print(
                f"{count:,} photos: {np.median(times):.0f} ms per query (384 dimensions, synthetic vectors)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["teach", "search", "duplicates", "speed"])
    parser.add_argument("--voc", type=Path)
    parser.add_argument("--coco", type=Path)
    parser.add_argument("--flickr", type=Path)
    parser.add_argument("--first", type=int, help="use only this many photos of VOC")
    args = parser.parse_args()
    if args.what == "teach":
        for name, folder, first in (("coco2017", args.coco, None), ("voc2012", args.voc, args.first)):
            if folder is not None:
                teach(name, folder, first)
    elif args.what == "speed":
        speed()
    else:
        {"search": search, "duplicates": duplicates}[args.what](args.flickr)


if __name__ == "__main__":
    main()
