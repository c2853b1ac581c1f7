"""The noun filter against captions that were labelled by hand; README.md beside this file says how."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mltta.captions.nouns import label_matches
from mltta.labels import LabelSet

COCO = LabelSet.load("coco")
LINES = (Path(__file__).parent / "coco_labelled.jsonl").read_text(encoding="utf-8").splitlines()
ROWS = [json.loads(line) for line in LINES]


def test_the_sets_are_whole_and_name_labels_of_coco() -> None:
    sizes = Counter(row["set"] for row in ROWS)
    assert sizes == {"first": 200, "second": 100, "third": 100, "fourth": 100, "fifth": 100}
    assert {label for row in ROWS for label in row["labels"]} <= set(COCO.names)
    assert sum(len(row["labels"]) for row in ROWS) > 1100


@pytest.mark.parametrize(
    ("sets", "least"),
    [
        ({"first"}, 0.97),
        ({"second", "third", "fourth"}, 0.97),
        ({"fifth"}, 0.96),  # the filter was never changed for these
    ],
)
def test_precision_and_recall(sets: set[str], least: float) -> None:
    rows = [row for row in ROWS if row["set"] in sets]
    found = [{COCO.names[i] for i in m} for m in label_matches([row["caption"] for row in rows], COCO)]
    right = sum(len(names & set(row["labels"])) for names, row in zip(found, rows, strict=True))
    assert right / sum(map(len, found)) >= least
    assert right / sum(len(row["labels"]) for row in rows) >= least
