"""Read the labeled photos that `gather` wrote, and measure a model on those held out.

    python -m training.labeled --model FOLDER --labeled LABELED [--out figures.json]

For each source: mAP of its labels over its held-out photos, with one vector (softmax) and by windows. If a source
annotates nothing, its other labels count as absent here, which they never do in training.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from mltta.metrics import mean_average_precision
from training.evaluate import Answers
from training.meanings import name_of
from training.rule import FAST, ONE, answers, views
from training.wording import SIMPLE

FEWEST = 3  # held-out photos that a label needs to be measured
BATCH = 32
Labels = NDArray[np.int8]


@dataclass(frozen=True)
class Labeled:
    """Photos with their facts, and what is known of their sources."""

    facts: list[dict[str, Any]]
    images: list[bytes]
    annotates: dict[str, frozenset[str]]
    complete: frozenset[str]  # sources that give all labels of each photo

    def labels(self, names: Sequence[str]) -> Labels:
        """For each photo and name: 1 if it holds, 0 if it is absent, -1 if neither is known."""
        position = {name: i for i, name in enumerate(names)}
        found = np.full((len(self.facts), len(names)), -1, np.int8)
        for row, own in enumerate(self.facts):
            sources = (own["source"], *own["also"])
            absent = frozenset().union(*(self.annotates[s] for s in sources)) - set(own["unknown"])
            for value, given in ((0, absent), (1, own["labels"])):
                found[row, [position[name] for name in given if name in position]] = value
        return found


def read(folder: Path, held_out: bool, without: Collection[str] = ()) -> Labeled:
    """The photos held out, or all others, from shards that match their checksums.

    Args:
        without: labels whose photos are left out.
    """
    parts: dict[str, str] = json.loads((folder / "manifest.json").read_text())["parts"]
    about = json.loads((folder / "sources.json").read_text())
    facts, images = [], []
    for name in sorted(own for own in parts if own.endswith(".tar")):
        tape, lines = _checked(folder / name, parts), _checked(folder / f"{name[:-4]}.jsonl", parts)
        for own, data in zip(map(json.loads, lines.decode().splitlines()), _members(tape), strict=True):
            if own["held_out"] == held_out and not set(without) & set(own["labels"]):
                facts.append(own)
                images.append(data)
    annotates = {own["source"]: frozenset(own["annotates"]) for own in about}
    return Labeled(facts, images, annotates, frozenset(a["source"] for a in about if a["absent"] == "all"))


def _checked(path: Path, parts: dict[str, str]) -> bytes:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: copy it too")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != parts[path.name]:
        raise ValueError(f"{path} does not match its checksum: copy it again")
    return data


def _members(tape: bytes) -> Iterator[bytes]:
    with tarfile.open(fileobj=io.BytesIO(tape)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None  # gather writes files only
            yield file.read()


def asked(own: Sequence[dict[str, Any]], every: bool) -> list[str]:
    """The labels to ask for: what photos are mainly of, or all of their terms, if enough photos show them."""
    names = [{name_of(t) for t in (f["terms"] if every else f["terms"][:1])} for f in own]
    return sorted(n for n in set().union(*names) if sum(n in given for given in names) >= FEWEST)


@torch.inference_mode()
def scores(ask: Answers, images: Sequence[bytes], names: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """Scores (images, labels) with one vector and by windows."""
    text = ask.encode([t.format(n) for n in names for t in SIMPLE]).reshape(len(names), len(SIMPLE), -1)
    text, found = F.normalize(text.mean(1), dim=-1), []
    for start in range(0, len(images), BATCH):
        pixels = {s.size: _pixels(images[start : start + BATCH], s.size, ask.device) for s in (ONE, FAST)}
        found.append(answers(views(ask.model, pixels, (ONE, FAST)), text, ask.model.logit_scale.exp()))
    both = torch.cat(found, 1).float().cpu().numpy()
    return {"one": both[0], "fast": both[1]}


def _pixels(images: Sequence[bytes], size: int, device: torch.device) -> Tensor:
    pictures = (Image.open(io.BytesIO(data)).convert("RGB") for data in images)
    rows = [np.asarray(own.resize((size, size), Image.Resampling.BICUBIC)) for own in pictures]
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).to(device).float() / 127.5 - 1


def measure(ask: Answers, held: Labeled) -> dict[str, dict[str, float]]:
    """Photos, labels and mAP in percent of each source."""
    figures = {}
    for source in sorted({own["source"] for own in held.facts}):
        rows = [i for i, own in enumerate(held.facts) if own["source"] == source]
        facts, images = [held.facts[i] for i in rows], [held.images[i] for i in rows]
        names = asked(facts, source in held.complete)
        if len(names) < 2:
            continue
        truth = replace(held, facts=facts).labels(names)
        if not held.annotates[source]:
            truth = (truth == 1).astype(np.int8)
        found = scores(ask, images, names)
        maps = {way: mean_average_precision(own, truth) for way, own in found.items()}
        figures[source] = {"photos": len(rows), "labels": len(names), **maps}
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of an open_clip model")
    parser.add_argument("--labeled", type=Path, required=True, help="folder that gather wrote")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args(argv)
    figures = measure(Answers(args.model, torch.device(args.device)), read(args.labeled, held_out=True))
    print("| source | held out | labels | mAP one | mAP fast |\n|---|---|---|---|---|")
    for source, own in figures.items():
        print(f"| {source} | {own['photos']} | {own['labels']} | {own['one']:.1f} | {own['fast']:.1f} |")
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
