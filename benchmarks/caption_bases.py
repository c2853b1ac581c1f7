"""Effect of the caption base on ML-TTA: generated from templates, by a language model, or both, by number of captions.

    python benchmarks/caption_bases.py --voc DIR --llm llm_captions.jsonl.gz [--figure captions.svg] [--device auto]

VOC's dev images, mini, the paper's settings. Only captions that name one of the 20 labels are used, in a fixed random
order. "composed" captions come from templates (`mltta captions generate --engine composer`), as many as from the
language model; "both" uses half of each. CLIP, which uses no captions, is included for comparison.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mltta import load_backbone
from mltta.captions.generate.build import generate_captions
from mltta.captions.generate.sampling import ComposerEngine
from mltta.captions.nouns import label_matches
from mltta.captions.read import read_texts
from mltta.captions.store import CaptionBase
from mltta.cli.progress import bar_on_terminal
from mltta.data import Dataset, load_dataset
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.summary import Summary
from mltta.labels import LabelSet
from mltta.model.backbone import Backbone
from mltta.tables.plots import lines

SIZES = (1000, 10_000)


def composed(labels: LabelSet, count: int) -> list[str]:
    """Distinct captions from templates, up to ``count``."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "composed.jsonl"
        return generate_captions(labels, ComposerEngine(labels), out, count, attempts=2 * count).captions


def naming(texts: Sequence[str], labels: LabelSet) -> list[str]:
    """The captions that name a label, shuffled."""
    kept = [text for text, found in zip(texts, label_matches(texts, labels), strict=True) if found]
    random.Random(0).shuffle(kept)
    return kept


def measure(
    dataset: Dataset, backbone: Backbone, texts: Sequence[str] | None, method: str, out: Path
) -> Summary:
    base = None if texts is None else CaptionBase.build(texts, backbone)
    with bar_on_terminal() as bar:
        task = bar.add_task(f"{method}, {len(texts or ()):,} captions", total=len(dataset))
        done = evaluate(
            dataset,
            backbone,
            [method],
            out=out,
            captions=base,
            progress=lambda ready, total: bar.update(task, completed=ready, total=total),
        )
    return Summary(done.results[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", type=Path, required=True, help="folder that contains VOCdevkit")
    parser.add_argument("--llm", type=Path, required=True, help="captions from a language model")
    parser.add_argument("--first", type=int, help="use only the first N images")
    parser.add_argument("--figure", type=Path, help="write the curves to this SVG file")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    dataset = load_dataset("voc2012", args.voc).select(slice(args.first))
    backbone = load_backbone("mini", device=args.device)
    written = naming(read_texts(args.llm), dataset.labels)
    ruled = naming(composed(dataset.labels, len(written)), dataset.labels)
    sizes = [*SIZES, len(written)]
    curves: dict[str, list[float | None]] = {"composed": [], "language model": [], "both": []}
    print("| captions | composed | language model | both |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            half = size // 2
            both = [*written[: size - half], *ruled[:half]] if size < len(written) else [*written, *ruled]
            for name, texts in zip(curves, (ruled[:size], written[:size], both), strict=True):
                curves[name].append(measure(dataset, backbone, texts, "ml-tta", Path(folder)).map)
            row = [f"{values[-1]:.2f}" for values in curves.values()]
            print(f"| {size:,} | " + " | ".join(row) + " |", flush=True)
        clip = measure(dataset, backbone, None, "clip", Path(folder)).map
        ours = measure(dataset, backbone, None, "ml-tta", Path(folder)).map
    print(f"\nall of both: {len(written) + len(ruled):,}; built-in captions: {ours:.2f}; clip: {clip:.2f}")
    print(f"{len(dataset)} images, mAP by raw logits, {backbone.arithmetic} on {backbone.device.type}")
    if args.figure is not None:
        series = {**curves, "the shipped base": [ours] * len(sizes), "CLIP": [clip] * len(sizes)}
        args.figure.write_text(
            lines("ML-TTA by number of captions, VOC2012 dev, mini", sizes, series, "captions", "mAP"),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
