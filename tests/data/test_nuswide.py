"""NUS-WIDE in its real layout: lists with backslashes and Windows line ends."""

from __future__ import annotations

import pytest

from mltta.data import DatasetError, load_dataset
from mltta.labels import LabelSet
from tests.data.pictures import save_pictures

LIST = ["actor\\0001_2124494179.jpg", "zebra\\0002_174174086.jpg", "actor\\0003_1.jpg"]
PRESENT = {"sky": "110", "zebra": "010"}


def build(root, labels="Groundtruth/TrainTestLabels", images="Flickr", lists="ImageList", part="Test"):
    for folder in (lists, labels):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / lists / f"{part}Imagelist.txt").write_bytes("".join(f"{name}\r\n" for name in LIST).encode())
    for name in LabelSet.load("nuswide").names:
        lines = "".join(f"{value}\r\n" for value in PRESENT.get(name, "000"))
        (root / labels / f"Labels_{name}_{part}.txt").write_bytes(lines.encode())
    save_pictures(root / images, *(name.replace("\\", "/") for name in LIST))


@pytest.mark.parametrize(
    ("layout", "place"),
    [
        ({}, ""),
        ({"labels": "TrainTestLabels", "images": "images"}, ""),
        ({"labels": ".", "lists": "."}, ""),
        ({}, "Flickr"),
        ({}, "Groundtruth/TrainTestLabels"),
        ({}, ".."),
    ],
)
def test_labels_follow_the_list_in_every_layout(tmp_path, layout, place):
    root = tmp_path / "nus"
    build(root, **layout)
    data = load_dataset("nuswide", root / place)
    assert data.name == "nuswide-test"
    assert list(data.ids) == ["actor/0001_2124494179.jpg", "zebra/0002_174174086.jpg"]
    assert data.images[1].resolve() == root / layout.get("images", "Flickr") / "zebra/0002_174174086.jpg"
    assert data.images[1].is_file()
    assert data.labels == LabelSet.load("nuswide")
    assert data.targets.sum() == 3
    assert data.targets[:, data.labels.index("sky")].tolist() == [1, 1]
    assert data.targets[:, data.labels.index("zebra")].tolist() == [0, 1]


def test_images_without_a_concept_are_dropped_as_published_unless_kept(tmp_path):
    build(tmp_path)
    dropped = load_dataset("nuswide", tmp_path)
    assert (len(dropped), dropped.published) == (2, 83_898)
    assert dropped.notes == ("1 images with none of the labels are dropped",)
    kept = load_dataset("nuswide", tmp_path, unlabelled="keep")
    assert (len(kept), kept.published) == (3, 107_859)
    assert kept.ids[2] == "actor/0003_1.jpg"


def test_the_train_split_has_its_own_files(tmp_path):
    build(tmp_path, part="Train")
    assert load_dataset("nuswide", tmp_path, split="train").name == "nuswide-train"
    with pytest.raises(DatasetError, match=r"ImageList/TestImagelist\.txt"):
        load_dataset("nuswide", tmp_path)


def test_faulty_label_files_are_named(tmp_path):
    build(tmp_path)
    labels = tmp_path / "Groundtruth" / "TrainTestLabels"
    (labels / "Labels_fox_Test.txt").write_bytes(b"0\r\n1\r\n")
    with pytest.raises(
        DatasetError, match=r"Labels_fox_Test\.txt has 2 lines, but .*TestImagelist\.txt lists 3"
    ):
        load_dataset("nuswide", tmp_path)
    (labels / "Labels_fox_Test.txt").write_bytes(b"0\r\nyes\r\n1\r\n")
    with pytest.raises(DatasetError, match=r"Labels_fox_Test\.txt, line 2: expected 0 or 1, found 'yes'"):
        load_dataset("nuswide", tmp_path)
    (labels / "Labels_fox_Test.txt").unlink()
    with pytest.raises(DatasetError, match=r"Labels_fox_Test\.txt is missing"):
        load_dataset("nuswide", tmp_path)


def test_labels_that_are_not_extracted_are_named(tmp_path):
    build(tmp_path)
    (tmp_path / "Groundtruth").rename(tmp_path / "somewhere")
    (tmp_path / "Groundtruth.zip").touch()
    with pytest.raises(
        DatasetError, match=r"Labels_<concept>_Test[\s\S]*Groundtruth\.zip exists but is not extracted"
    ):
        load_dataset("nuswide", tmp_path)


def test_empty_and_repeating_image_lists_are_refused(tmp_path):
    build(tmp_path)
    file = tmp_path / "ImageList" / "TestImagelist.txt"
    file.write_text("actor\\1.jpg\r\n\r\nactor/1.jpg\r\n")
    with pytest.raises(DatasetError, match=r"lines 1 and 3 list the same image, actor/1\.jpg"):
        load_dataset("nuswide", tmp_path)
    file.write_text("\r\n")
    with pytest.raises(DatasetError, match=r"TestImagelist\.txt is empty"):
        load_dataset("nuswide", tmp_path)
