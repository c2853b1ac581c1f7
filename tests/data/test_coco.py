"""COCO in its real layout, on a small tree."""

from __future__ import annotations

import json

import pytest

from mltta.data import DatasetError, load_dataset
from mltta.data.coco import load_coco
from mltta.images.decode import load_image
from mltta.labels import LabelSet
from tests.data.pictures import save_pictures

NAMES = LabelSet.load("coco").names


def instances(**changes):
    """Image 9 shows a person, a bicycle and a crowd of cars; images 4 and 10 show nothing."""
    return {
        "categories": [{"id": 2 * i + 1, "name": name} for i, name in reversed(list(enumerate(NAMES)))],
        "images": [{"id": i, "file_name": f"{i:012d}.jpg"} for i in (9, 10, 4)],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 1, "iscrowd": 0, "area": 0.5},
            {"id": 2, "image_id": 9, "category_id": 5, "iscrowd": 1},
            {"id": 3, "image_id": 9, "category_id": 3},
        ],
        **changes,
    }


def write(root, table, file="annotations/instances_val2017.json"):
    (root / file).parent.mkdir(exist_ok=True, parents=True)
    (root / file).write_text(json.dumps(table))
    return root / file


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "coco"
    write(root, instances())
    save_pictures(root / "val2017", *(f"{i:012d}.jpg" for i in (4, 9, 10)))
    return root


@pytest.mark.parametrize("place", ["", "annotations", "val2017", ".."])
def test_objects_that_are_no_crowd_count_and_ids_are_sorted_by_number(tree, place, capsys):
    data = load_dataset("coco2017", tree / place)
    assert data.name == "coco-val2017"
    assert data.ids == ("4", "9", "10")
    assert data.images[1].resolve() == tree / "val2017" / "000000000009.jpg"
    assert (data.targets[[0, 2]] == 0).all()
    assert [NAMES[c] for c in (data.targets[1] == 1).nonzero()[0]] == ["person", "bicycle"]
    assert data.labels == LabelSet.load("coco")  # with its synonyms
    assert capsys.readouterr().out == ""


def test_unlabelled_images_stay_unless_dropped_and_notes_count(tree):
    kept = load_dataset("coco2017", tree)
    assert kept.summary() == (
        "coco-val2017: 3 images (published: 5,000), 80 labels, 0.7 per image; 1 label–image pairs with only "
        "crowds count as absent; 2 images with none of the labels count as negatives"
    )
    dropped = load_dataset("coco2017", tree, unlabelled="drop")
    assert dropped.ids == ("9",)
    assert "2 images with none of the labels are dropped" in dropped.notes


def test_images_may_lie_in_a_folder_called_images(tree):
    (tree / "images").mkdir()
    (tree / "val2017").rename(tree / "images" / "val2017")
    assert load_dataset("coco2017", tree).images[0] == tree / "images" / "val2017" / "000000000004.jpg"
    assert load_dataset("coco2017", tree / "images" / "val2017").images[0].is_file()


def test_another_split_or_an_annotation_file_elsewhere_can_be_named(tree, tmp_path_factory):
    (tree / "annotations/instances_val2017.json").rename(tree / "annotations/instances_train2017.json")
    (tree / "val2017").rename(tree / "train2017")
    assert load_dataset("coco2017", tree, split="train2017").published == 118_287
    assert load_coco(tree).name == "coco-train2017"
    with pytest.raises(DatasetError, match=r"Available splits: train2017\."):
        load_dataset("coco2017", tree)
    elsewhere = write(tmp_path_factory.mktemp("labels"), instances(), "instances_train2017.json")
    data = load_dataset("coco2017", tree, annotations=elsewhere)
    assert (data.name, data.images[0].parent) == ("coco-train2017", tree / "train2017")
    with pytest.raises(DatasetError, match=r"no such annotation file: .*missing\.json"):
        load_dataset("coco2017", tree, annotations="missing.json")


def test_several_splits_without_a_name_are_listed(tree):
    write(tree, instances(), "annotations/instances_train2017.json")
    with pytest.raises(DatasetError, match="several splits, choose one: train2017, val2017"):
        load_coco(tree)


def test_a_missing_annotation_file_is_named(tree):
    with pytest.raises(DatasetError, match=r"annotations/instances_val2014\.json"):
        load_dataset("coco2014", tree)


def test_greyscale_images_are_read_as_rgb(tree):
    save_pictures(tree / "val2017", "000000000004.jpg", mode="L")
    image = load_image(load_dataset("coco2017", tree).images[0])
    assert image.mode == "RGB"
    assert len(set(image.getpixel((0, 0)))) == 1


CAPTIONS = {
    "images": [{"id": 1, "file_name": "1.jpg"}],
    "annotations": [{"id": 1, "image_id": 1, "caption": "a dog"}],
}
KEYPOINTS = instances(categories=[{"id": i, "name": "person", "keypoints": ["nose"]} for i in (1, 3, 5)])
PANOPTIC = instances(annotations=[{"id": 1, "image_id": 9, "segments_info": []}])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (CAPTIONS, "not an instances file, but contains captions: use instances_"),
        (KEYPOINTS, "not an instances file, but contains keypoints"),
        (PANOPTIC, "not an instances file: entry 1 of its annotations lacks image_id or category_id"),
        (instances(annotations={"1": 2}), "it has a different structure"),
        (instances(images=["9.jpg"]), "it has a different structure"),
        (
            {k: v for k, v in instances().items() if k != "annotations"},
            "labels of test splits are not public",
        ),
        (instances(images=[]), "it lists no images"),
        (instances(categories=[]), "it lists no categories"),
        (instances(images=[{"id": 9}]), "entry 1 of its images lacks id or file_name"),
        ([1, 2], "not an instances file"),
        (instances(annotations=[{"id": 1, "image_id": 9, "category_id": 2}]), "an unknown category id: 2"),
    ],
)
def test_another_kind_of_file_is_told_apart(tree, table, words):
    write(tree, table)
    with pytest.raises(DatasetError, match=words):
        load_dataset("coco2017", tree)


def test_a_file_cut_off_in_download_is_called_damaged(tree):
    file = tree / "annotations/instances_val2017.json"
    file.write_text(file.read_text()[:-100])
    with pytest.raises(DatasetError, match=r"instances_val2017\.json is damaged or incomplete"):
        load_dataset("coco2017", tree)


def test_annotations_of_images_that_are_not_listed_are_counted(tree):
    write(
        tree,
        instances(
            images=instances()["images"][:1],
            annotations=[
                {"id": 1, "image_id": 9, "category_id": 1},
                {"id": 2, "image_id": 77, "category_id": 1},
            ],
        ),
    )
    assert load_dataset("coco2017", tree).notes == ("1 annotations of unlisted images are ignored",)


def test_images_that_are_not_extracted_are_an_error(tree):
    for picture in (tree / "val2017").iterdir():
        picture.unlink()
    (tree / "val2017.zip").touch()
    with pytest.raises(
        DatasetError, match=r"3 of 3 listed images[\s\S]*val2017\.zip exists but is not extracted"
    ):
        load_dataset("coco2017", tree)
