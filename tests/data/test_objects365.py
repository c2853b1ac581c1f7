"""Objects365's layout: any categories, file names with folders."""

from __future__ import annotations

import json

import pytest

from mltta.data import DatasetError, load_dataset
from tests.data.pictures import save_pictures

TABLE = {
    "categories": [
        {"id": 1, "name": "Sneakers"},
        {"id": 2, "name": "Wine Glass"},
        {"id": 3, "name": "wine_glass"},
        {"id": 4, "name": "Pot/Pan, Lid"},
    ],
    "images": [
        {"id": 7, "file_name": "images/v1/patch8/objects365_v1_7.jpg"},
        {"id": 5, "file_name": "images/v2/patch9/objects365_v2_5.jpg"},
    ],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 3},
        {"id": 2, "image_id": 5, "category_id": 4, "iscrowd": 0},
    ],
}


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "zhiyuan_objv2_val.json").write_text(json.dumps(TABLE))
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "cut"), [("val", 0), ("", 0), ("images", 1), ("val", 2), ("images/val", 3), ("val", 3)]
)
def test_images_are_found_in_the_layouts_people_make(tree, folder, cut):
    places = ["/".join(image["file_name"].split("/")[cut:]) for image in TABLE["images"]]
    save_pictures(tree / folder, *places)
    data = load_dataset("objects365", tree)
    assert data.name == "objects365-val"
    assert data.ids == ("5", "7")
    assert list(data.images) == [tree / folder / place for place in reversed(places)]


def test_categories_of_the_same_name_are_one_label(tree):
    save_pictures(tree, *(image["file_name"] for image in TABLE["images"]))
    data = load_dataset("objects365", tree)
    assert data.labels.names == ("Sneakers", "Wine Glass", "Pot/Pan, Lid")
    assert data.labels.official
    assert data.targets.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert data.notes == ("1 categories are merged with others of the same name",)


def test_several_annotation_files_are_told_apart_by_the_split_or_by_name(tree):
    save_pictures(tree, *(image["file_name"] for image in TABLE["images"]))
    (tree / "annotations" / "zhiyuan_objv2_train.json").write_text("{}")
    assert load_dataset("objects365", tree).name == "objects365-val"
    (tree / "annotations" / "my_val.json").write_text(json.dumps(TABLE))
    with pytest.raises(
        DatasetError, match=r"choose one with annotations: my_val\.json, zhiyuan_objv2_val\.json"
    ):
        load_dataset("objects365", tree)
    assert len(load_dataset("objects365", tree, annotations="annotations/my_val.json")) == 2


def test_a_missing_annotation_file_is_answered_with_the_expected_tree(tmp_path):
    with pytest.raises(DatasetError, match=r"annotations/zhiyuan_objv2_train\.json"):
        load_dataset("objects365", tmp_path, split="train")
