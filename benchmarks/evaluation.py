"""Cost of an evaluation beyond encoding, with a cold and a warm feature cache.

    python benchmarks/evaluation.py --voc DIR [--first 500]

Runs clip, tpt and ml-tta on the CPU with `mini`, 64 views, no AugMix: first with an empty cache, then with the features
cached by the first run. "Encoding" is decoding the images, rendering the views and encoding them, as measured in
the first run.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from mltta import load_backbone
from mltta.cli.progress import bar_on_terminal
from mltta.data import load_dataset
from mltta.evaluation.evaluate import Evaluation, evaluate

METHODS = ("clip", "tpt", "ml-tta")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", type=Path, required=True, help="folder that contains VOCdevkit")
    parser.add_argument("--first", type=int, default=500, help="use only the first N images")
    args = parser.parse_args()
    backbone = load_backbone("mini", device="cpu")
    dataset = load_dataset("voc2012", args.voc).select(slice(args.first))

    def run(cache: Path, out: Path) -> Evaluation:
        with bar_on_terminal() as bar:
            task = bar.add_task(out.name, total=len(dataset))
            return evaluate(
                dataset,
                backbone,
                METHODS,
                out=out,
                cache=cache,
                progress=lambda ready, total: bar.update(task, completed=ready, total=total),
            )

    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        cold, warm = run(top / "cache", top / "cold"), run(top / "cache", top / "warm")
    encoding = cold.counts.encode_seconds
    print(
        f"{len(dataset)} images, {len(dataset.labels)} labels, mini, CPU with {torch.get_num_threads()} threads"
    )
    print(f"encoding: {encoding:.1f} s, {1000 * encoding / cold.counts.encoded:.0f} ms per image")
    for name, done in (("cold", cold), ("warm", warm)):
        methods = ", ".join(f"{method} {seconds:.1f} s" for method, seconds in done.adapt_seconds.items())
        print(
            f"{name} cache: {done.counts.encoded} encoded, {done.counts.cached} read; without encoding: {methods}; "
            f"{done.seconds:.1f} s in total = {done.seconds / encoding:.3f} times encoding"
        )


if __name__ == "__main__":
    main()
