"""How sure the judge is, and how right: what its logits have to be multiplied by.

    python -m training.certainty --pieces WORK/pieces --images 160 --sizes 288 --sharper 1 1.5
    python -m training.certainty --pieces WORK/pieces --images 160 --sizes 448 608 --sharper 1 1.5 3 --window 4

Of pictures as a whole: the entropy of its probabilities, the share of ImageNet photographs that it names right, and
the mean negative log-probability of their class. Of windows: how many are right, by how sure they are; windows that
show something else than the photograph's class count as wrong, so it is a lower bound.
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
    """Entropy of all pictures and, of the last ones, whose class is known, how many are right."""
    p = in_windows(logits, 0)[:, 0]
    entropy = -(p * p.clamp(min=1e-9).log()).sum(1)
    known = p[-len(classes) :]
    right = (known.argmax(1) == classes).float().mean()
    own = known[torch.arange(len(classes)), classes].clamp(min=1e-9).log()
    flickr, samples = entropy[: -len(classes)].mean(), entropy[-len(classes) :].mean()
    return f"entropy {flickr:.2f} Flickr8k, {samples:.2f} ImageNet; right {right:.2f}, NLL {-own.mean():.2f}"


def by_windows(logits: Tensor, classes: Tensor, window: int, stride: int = 2) -> str:
    """Share of windows that name the photograph's class, by their confidence."""
    sure, named = in_windows(logits[-len(classes) :], window, stride).max(-1)
    right, said = named == classes[:, None], []
    for low, high in BINS:
        inside = (sure >= low) & (sure < high)
        said.append(f"from {low}: {right[inside].float().mean():.2f} of {inside.float().mean():.2f}")
    return "windows right " + ", ".join(said)


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each factor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or the unpacked pack) of prepare")
    parser.add_argument("--images", type=int, default=160, help="of each set")
    parser.add_argument("--sizes", type=int, nargs="+", default=(288,), help="sides at which it looks")
    parser.add_argument("--sharper", type=float, nargs="+", default=(1.0, 1.5), help="factors to try")
    parser.add_argument("--window", type=int, help="locations of a window's side")
    parser.add_argument("--store", type=int, default=288, help="side of the images in memory")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    material = Material(
        pack.unpacked(args.pieces), torch.device(args.device), args.store, (0, 0), args.images
    )
    judge = Judge(material.folder, material.images, args.sizes)
    classes = torch.tensor(material.classes, device=material.device)
    for factor in args.sharper:
        logits = factor * judge.logits.float()
        said = [on_the_whole(logits, classes)]
        said += [by_windows(logits, classes, args.window)] if args.window else []
        print(f"times {factor:g}: " + "; ".join(said))


if __name__ == "__main__":
    main()
