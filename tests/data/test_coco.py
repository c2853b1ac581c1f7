"""COCO in its real layout, on a small tree."""

from __future__ import annotations

import json

import pytest

from mltta.data.coco import load_coco
from mltta.errors import MlttaError
from mltta.labels import LabelSet


def test_crowds_do_not_count_and_ids_are_sorted(tmp_path):
    names = LabelSet.load("coco").names
    table = {
        "categories": [{"id": 2 * i + 1, "name": name} for i, name in enumerate(names)],
        "images": [{"id": 9, "file_name": "9.jpg"}, {"id": 4, "file_name": "4.jpg"}],
        "annotations": [
            {"image_id": 9, "category_id": 1, "iscrowd": 0},
            {"image_id": 9, "category_id": 5, "iscrowd": 1},
            {"image_id": 9, "category_id": 3},
        ],
    }
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "instances_val2017.json").write_text(json.dumps(table))
    data = load_coco(tmp_path)
    assert data.ids == ("4", "9")
    assert data.paths[1] == tmp_path / "val2017" / "9.jpg"
    assert (data.targets[0] == -1).all()
    assert [names[c] for c in (data.targets[1] == 1).nonzero()[0]] == ["person", "bicycle"]
    assert data.labels.synonyms[0]  # the built-in set, with its synonyms


def test_a_missing_annotation_file_is_named(tmp_path):
    with pytest.raises(MlttaError, match=r"annotations/instances_val2014\.json"):
        load_coco(tmp_path, "val2014")
