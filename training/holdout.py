"""Metrics on held-out training images, for selecting a recipe or a checkpoint.

    python -m training.holdout --model RUN --pieces WORK/pieces

Flickr8k images have captions and the nouns in them. ImageNet photos have the everyday words of their class, and are
also used in mosaics of four, in which everything is small. Nouns are scored with one vector and with local
views.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP
from torch import Tensor
from torch.nn import functional as F

from mltta.metrics import mean_average_precision
from training import model as clip
from training import pack
from training.compose import mosaic
from training.imagenet_words import PARTIAL, WITHOUT_PEOPLE
from training.images import even_parts, squashed
from training.lists import Lists
from training.material import Material, Rows
from training.rule import AUTO, Scale, answers, views
from training.supervision import class_labels, group

WATCHED = ("person", "dog")  # frequent false positives of earlier models
FEWEST = 5  # minimum positives of a noun
Labels = NDArray[np.int8]


@torch.inference_mode()
def measure(model: CLIP, material: Material, scales: Sequence[Scale] = AUTO) -> dict[str, float]:
    """Caption retrieval, and noun mAP in percent with one vector and with local views.

    Args:
        scales: the first is one vector, the second is "fast", the last is "auto".
    """
    split, nouns = material.split, material.nouns
    flickr, samples = material.pool(split.kept_flickr), material.pool(split.kept_samples)
    named = material.labels[split.kept_flickr]
    classes = np.array([material.classes[i] for i in split.kept_samples - len(material.labels)], int)
    shown = sample_labels(nouns, classes)
    figures: dict[str, float] = {}
    if len(flickr):
        figures |= _by_one_vector(model, material, flickr, named)
        # people and dogs also among photos that show none
        few = np.isin(classes, list(WITHOUT_PEOPLE))
        everything = torch.cat([flickr, samples[torch.from_numpy(few).to(samples.device)]])
        labels, used = np.concatenate([named, shown[few]]), chosen(material, named)
        scores = ask(model, material, everything, used, scales)
        for way, found in scores.items():
            figures[f"nouns mAP {way}"] = _percent(found[: len(named)], named[:, used])
        for noun in WATCHED:
            if noun in nouns and nouns.index(noun) in used:
                column = list(used).index(nouns.index(noun))
                truth = labels[:, used[[column]]].copy()
                truth[len(named) :] = np.maximum(truth[len(named) :], 0)
                figures[f"{noun} AP auto"] = _percent(scores["auto"][:, [column]], truth)
    if len(samples):
        groups = np.random.default_rng(0).integers(len(samples), size=(len(samples), 4))
        mixed = np.where((shown[groups] == 1).any(1), 1, shown[groups].min(1)).astype(np.int8)
        for name, images, labels in (("samples", samples, shown), ("mosaics", _four(samples, groups), mixed)):
            used = chosen(material, labels)
            for way, found in ask(model, material, images, used, scales).items():
                figures[f"{name} mAP {way}"] = _percent(found, labels[:, used])
    return figures


def sample_labels(nouns: Sequence[str], classes: NDArray[np.int64]) -> Labels:
    """Labels of ImageNet photos; for words that classes cover only in part, absence is unknown."""
    labels, partial = class_labels(nouns, classes.tolist()), group(nouns, PARTIAL)
    labels[:, partial] = np.where(labels[:, partial] == 1, 1, -1)
    return labels


def chosen(material: Material, labels: Labels) -> Rows:
    """The nouns to score: frequent enough, most frequent first, none that implies another.

    "person" and "dog" come first, so that "human" and "animal" do not replace them.
    """
    count = (labels == 1).sum(0)
    first = np.isin(material.nouns, WATCHED)
    order = np.lexsort((-count, ~first, count < FEWEST))[: int((count >= FEWEST).sum())]
    return Lists(material.nouns, count.astype(float), material.sentences.similarity).first(order, len(order))


def ask(
    model: CLIP, material: Material, images: Tensor, nouns: Rows, scales: Sequence[Scale]
) -> dict[str, Tensor]:
    """Scores (n, nouns) of whole images, given as bytes, for each way; texts are means of the simple templates."""
    if not len(nouns):
        return {"auto": torch.zeros(len(images), 0)}
    rows = material.sentences.simple[nouns]
    text = F.normalize(_encoded(model, material, rows.ravel()).reshape(*rows.shape, -1).mean(1), dim=-1)
    found = []
    for part in even_parts(len(images), 32, images.device):
        pictures = {s.size: squashed(images[part], s.size) for s in scales}
        found.append(answers(views(model, pictures, scales), text, model.logit_scale.exp()))
    one, fast, *_, large = torch.cat(found, 1)[:, : len(images)]
    return {"one": one, "fast": fast, "auto": large}


def _by_one_vector(model: CLIP, material: Material, images: Tensor, labels: Labels) -> dict[str, float]:
    """Recall of an image's captions, and of all nouns, as in runs before local views."""
    parts = even_parts(len(images), 64, images.device)
    z = torch.cat([clip.encode_image(model, squashed(images[part], clip.SIDE)) for part in parts])[
        : len(images)
    ]
    rows = material.sentences.captions[material.split.kept_flickr]
    order = (z @ _encoded(model, material, rows.ravel()).T).argsort(1, descending=True).cpu().numpy()
    own = order // rows.shape[1] == np.arange(len(rows))[:, None]
    figures = {f"recall@{k}": 100 * float(own[:, :k].any(1).mean()) for k in (1, 5)}
    used = np.flatnonzero((labels == 1).sum(0) >= FEWEST)
    cosine = z @ _encoded(model, material, material.sentences.plain[used]).T if len(used) else z[:, :0]
    figures["noun mAP raw"] = _percent(cosine, labels[:, used])
    figures["noun mAP softmax"] = _percent((cosine * model.logit_scale.exp()).softmax(1), labels[:, used])
    return figures


def _encoded(model: CLIP, material: Material, rows: Rows) -> Tensor:
    """Unit features of some sentences."""
    texts = material.sentences.texts
    parts = np.array_split(rows, len(rows) // 512 + 1)
    return torch.cat([clip.encode_text(model, *texts.batch(part)) for part in parts])


def _four(samples: Tensor, groups: Rows) -> Tensor:
    """Mosaics of four images each, as bytes."""
    parts = samples[torch.from_numpy(groups.ravel()).to(samples.device)].float()
    return mosaic(parts, 2, 2, 2 * samples.shape[-1]).round().to(torch.uint8)


def _percent(scores: Tensor, labels: Labels) -> float:
    """mAP in percent over labels with positives; 0 without any."""
    if not labels.size:
        return 0.0
    return mean_average_precision(scores.float().cpu().numpy(), labels, absent="skip")


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate an existing model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with open_clip_config.json and weights"
    )
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or unpacked pack) from prepare")
    parser.add_argument(
        "--keep", type=int, nargs=2, default=(400, 100), help="held-out Flickr8k and ImageNet images"
    )
    parser.add_argument("--trial", type=int, help="use only N images of each set, for a trial")
    parser.add_argument("--store", type=int, default=256, help="size of the images in memory")
    parser.add_argument(
        "--views", type=Scale.parse, nargs="+", default=AUTO, help="such as 196 224x3x1 336x3x1"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    material = Material(pack.unpacked(args.pieces), device, None, args.store, tuple(args.keep), args.trial)
    figures = measure(clip.read(args.model)[0].to(device), material, args.views)
    for name, value in figures.items():
        print(f"{name:20} {value:6.2f}")
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
