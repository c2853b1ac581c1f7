"""VOC in its real layout, on a small tree."""

from __future__ import annotations

import pytest

from mltta.data import DatasetError, load_dataset
from mltta.data.voc import load_voc
from mltta.errors import ConfigError
from mltta.labels import LabelSet
from tests.data.pictures import save_pictures

MAIN = "VOCdevkit/VOC2012/ImageSets/Main"


@pytest.fixture
def tree(tmp_path):
    """Two images: a dog with a sofa that is only difficult, and a sofa."""
    build(tmp_path / "data")
    return tmp_path / "data"


def build(root, year=2012, split="val", end="\n"):
    base = root / "VOCdevkit" / f"VOC{year}"
    (base / "ImageSets" / "Main").mkdir(parents=True)
    for name in LabelSet.load("voc").names:
        value = {"dog": (1, -1), "sofa": (0, 1)}.get(name, (-1, -1))
        lines = f"2008_000002 {value[1]:>2}{end}2008_000001 {value[0]:>2}{end}"
        (base / "ImageSets" / "Main" / f"{name}_{split}.txt").write_bytes(lines.encode())
    save_pictures(base / "JPEGImages", "2008_000001.jpg", "2008_000002.jpg")


@pytest.mark.parametrize(
    "place", ["", "VOCdevkit", "VOCdevkit/VOC2012", "VOCdevkit/VOC2012/JPEGImages", MAIN, ".."]
)
def test_labels_and_images_are_read_from_wherever_the_devkit_lies(tree, place):
    data = load_voc(tree / place)
    assert data.name == "voc2012-val"
    assert data.ids == ("2008_000001", "2008_000002")
    assert data.images[0].resolve() == tree / "VOCdevkit/VOC2012/JPEGImages/2008_000001.jpg"
    names = data.labels.names
    assert data.targets[:, names.index("dog")].tolist() == [1, 0]
    assert data.targets[:, names.index("sofa")].tolist() == [0, 1]
    assert (data.targets[:, names.index("cat")] == 0).all()
    assert data.labels.texts[names.index("tvmonitor")] == "tv monitor"


def test_difficult_objects_count_as_absent_or_are_left_out(tree):
    absent = load_dataset("voc2012", tree)
    ignored = load_dataset("voc2012", tree, difficult="ignore")
    sofa = absent.labels.index("sofa")
    assert absent.targets[0, sofa] == 0
    assert ignored.targets[0, sofa] == -1
    assert (absent.targets != ignored.targets).sum() == 1
    assert absent.notes == ("1 label–image pairs with only difficult objects count as absent",)
    assert ignored.notes == ("1 label–image pairs with only difficult objects are ignored in metrics",)
    with pytest.raises(ConfigError, match="neither 'negative' nor 'ignore'"):
        load_voc(tree, difficult="drop")


def test_a_part_of_the_published_split_is_said_and_no_error(tree):
    assert (
        load_dataset("voc2012", tree)
        .summary()
        .startswith("voc2012-val: 2 images (published: 5,823), 20 labels")
    )


def test_the_2007_set_is_its_test_split_and_another_split_can_be_named(tmp_path):
    build(tmp_path, year=2007, split="test")
    data = load_dataset("voc2007", tmp_path)
    assert (data.name, data.published) == ("voc2007-test", 4952)
    with pytest.raises(DatasetError, match=r"no class files for the split 'val': available splits are test"):
        load_dataset("voc2007", tmp_path, split="val")


def test_the_folder_of_another_year_is_not_mistaken_for_this_one(tmp_path):
    build(tmp_path, year=2007)
    for place in ("", "VOCdevkit", "VOCdevkit/VOC2007"):
        with pytest.raises(DatasetError, match="VOC2012 was not found"):
            load_dataset("voc2012", tmp_path / place)


def test_windows_line_ends_change_nothing(tree, tmp_path_factory):
    windows = tmp_path_factory.mktemp("windows")
    build(windows, end="\r\n")
    assert load_voc(windows).ids == load_voc(tree).ids
    assert (load_voc(windows).targets == load_voc(tree).targets).all()


def test_a_missing_class_file_is_named(tree):
    (tree / MAIN / "cow_val.txt").unlink()
    with pytest.raises(DatasetError, match=r"cow_val\.txt is missing"):
        load_voc(tree)


@pytest.mark.parametrize("line", ["2008_000003", "2008_000003 2", "2008_000003 1 1", "2008_000003 yes"])
def test_a_malformed_line_is_named_with_its_file(tree, line):
    with (tree / MAIN / "cow_val.txt").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DatasetError, match=rf"cow_val\.txt, line 3: expected an image id.*{line}"):
        load_voc(tree)


def test_class_files_that_disagree_about_the_images_are_refused(tree):
    with (tree / MAIN / "cow_val.txt").open("a") as file:
        file.write("2008_000009 -1\n")
    with pytest.raises(
        DatasetError, match=r"cow_val\.txt lists the image 2008_000009, .*aeroplane_val\.txt does not"
    ):
        load_voc(tree)
    (tree / MAIN / "cow_val.txt").write_text("2008_000001 -1\n")
    with pytest.raises(
        DatasetError, match=r"aeroplane_val\.txt lists the image 2008_000002, .*cow_val\.txt does not"
    ):
        load_voc(tree)


def test_empty_and_repeating_class_files_are_refused(tree):
    (tree / MAIN / "cow_val.txt").write_text("2008_000001 -1\n2008_000001 1\n")
    with pytest.raises(DatasetError, match="line 2: the image 2008_000001 is listed twice"):
        load_voc(tree)
    (tree / MAIN / "cow_val.txt").write_text("\n")
    with pytest.raises(DatasetError, match=r"cow_val\.txt is empty"):
        load_voc(tree)


def test_one_missing_image_is_no_error_but_missing_all_of_them_is(tree):
    pictures = tree / "VOCdevkit/VOC2012/JPEGImages"
    (pictures / "2008_000001.jpg").unlink()
    assert len(load_voc(tree)) == 2
    (pictures / "2008_000002.jpg").unlink()
    with pytest.raises(DatasetError, match="2 of 2 listed images checked are missing"):
        load_voc(tree)
