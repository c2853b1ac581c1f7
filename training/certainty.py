"""Calibration of the judge: the factor for its logits that makes its confidence match its accuracy.

    python -m training.certainty --pieces WORK/pieces --images 160 --sharper 1 1.5 --window 3

For whole images: the entropy of its probabilities, its accuracy on ImageNet photos, and the mean negative
log-probability of their class. For windows: accuracy by confidence; windows that show something other than the photo's
class count as wrong, so this is a lower bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from training import pack
from training.judge import Judge, in_windows
from training.material import Material

BINS = ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01))


def on_the_whole(logits: Tensor, classes: Tensor) -> str:
    """Entropy of all images and, for those at the end with a known class, accuracy."""
    p = in_windows(logits, 0)[:, 0]
    entropy = -(p * p.clamp(min=1e-9).log()).sum(1)
    known = p[-len(classes) :]
    right = (known.argmax(1) == classes).float().mean()
    own = known[torch.arange(len(classes)), classes].clamp(min=1e-9).log()
    flickr, samples = entropy[: -len(classes)].mean(), entropy[-len(classes) :].mean()
    return f"entropy {flickr:.2f} Flickr8k, {samples:.2f} ImageNet; right {right:.2f}, NLL {-own.mean():.2f}"


def by_windows(logits: Tensor, classes: Tensor, window: int, stride: int = 2) -> str:
    """Fraction of windows that name the photo's class, by confidence."""
    sure, named = in_windows(logits[-len(classes) :], window, stride).max(-1)
    right, said = named == classes[:, None], []
    for low, high in BINS:
        inside = (sure >= low) & (sure < high)
        said.append(f"at least {low}: {right[inside].float().mean():.2f} of {inside.float().mean():.2f}")
    return "windows right " + ", ".join(said)


def main(argv: Sequence[str] | None = None) -> None:
    """Print one line per factor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or unpacked pack) from prepare")
    parser.add_argument("--images", type=int, default=160, help="number of images of each set")
    parser.add_argument("--size", type=int, default=288, help="input size (default: 288)")
    parser.add_argument("--sharper", type=float, nargs="+", default=(1.0, 1.5), help="factors to try")
    parser.add_argument("--window", type=int, help="window size in locations")
    parser.add_argument("--store", type=int, default=288, help="size of the images in memory")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    material = Material(
        pack.unpacked(args.pieces), torch.device(args.device), None, args.store, (0, 0), args.images
    )
    judge = Judge(material.folder, material.images, args.size)
    every = judge.logits(torch.arange(len(material.images), device=material.device))
    classes = torch.tensor(material.classes, device=material.device)
    for factor in args.sharper:
        logits = factor * every
        said = [on_the_whole(logits, classes)]
        said += [by_windows(logits, classes, args.window)] if args.window else []
        print(f"times {factor:g}: " + "; ".join(said))


if __name__ == "__main__":
    main()
