"""Precision and recall of keywords: the labels that `mltta tag --keywords` writes, by --keywords-from.

    python -m benchmarks.keywords --voc VOCdevkit --coco coco [--first 500]

Photos of VOC2012 val (its dev half) and COCO (its dev sample, split train2017), with the labels of each set.
"""

from __future__ import annotations

import argparse

import numpy as np

from mltta import Tagger, load_dataset
from mltta.decision import KEYWORDS_FROM, SHOWN_FROM, Decision
from mltta.session.prepare import Photo

LEAST = (SHOWN_FROM, 0.5, 0.6, KEYWORDS_FROM, 0.8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", required=True)
    parser.add_argument("--coco", required=True)
    parser.add_argument("--first", type=int, help="use only this many images of each set")
    given = parser.parse_args()
    sets = {"voc2012": (given.voc, "val", "voc"), "coco2017": (given.coco, "train2017", "coco")}
    print("set      from  precision  recall  keywords per photo")
    for name, (root, split, labels) in sets.items():
        data = load_dataset(name, root, split=split)
        tagger = Tagger(labels=labels)
        places = range(min(len(data), given.first or len(data)))
        photos = (Photo(i, data.ids[i], data.images[i], data.ids[i]) for i in places)
        row = {label: place for place, label in enumerate(tagger.labels.names)}
        scores = np.zeros((len(places), len(row)), np.float32)
        for place, tags in enumerate(tagger.stream(photos)):
            for item in tags:
                scores[place, row[item["label"]]] = item["score"]
        truth = data.targets[: len(places)]
        for least in LEAST:
            written = Decision(keywords_from=least).keywords(scores) & (truth >= 0)
            right = int((written & (truth == 1)).sum())
            precision, recall = right / max(1, written.sum()), right / (truth == 1).sum()
            each = written.sum() / len(places)
            print(f"{name:8} {least:.2f}  {precision:9.3f}  {recall:6.3f}  {each:18.2f}")


if __name__ == "__main__":
    main()
