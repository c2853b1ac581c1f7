"""Effect of adaptation on the logits of an image's labels: the paper's Figure 1a, over a whole dataset.

    mltta eval voc2012 --data VOC --method clip --method tpt --method ml-tta --out RESULTS
    python benchmarks/label_logits.py RESULTS/voc2012-val/mini-clip-* RESULTS/voc2012-val/mini-tpt-* …

The first result is the reference. Only images with at least two labels are used. Logits are averaged over a method's
prompts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from mltta.evaluation.results import Result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT")
    first, *others = [Result(folder) for folder in parser.parse_args().results]
    truth = first.targets() == 1
    several = truth.sum(axis=1) >= 2
    before = first.branches().mean(axis=1)[several]
    positive = truth[several]
    top = before == np.where(positive, before, -np.inf).max(axis=1, keepdims=True)
    print(f"{several.sum()} images with at least two labels\n")
    print(
        "| method | all true labels rise | best true label | other true labels | absent labels |\n|---|---|---|---|---|"
    )
    for result in others:
        change = result.branches().mean(axis=1)[several] - before
        every = np.where(positive, change, np.inf).min(axis=1) > 0
        means = [change[mask].mean() for mask in (positive & top, positive & ~top, ~positive)]
        print(
            f"| {result.title} | {every.mean():.1%} | " + " | ".join(f"{mean:+.2f}" for mean in means) + " |"
        )


if __name__ == "__main__":
    main()
