"""Hugging Face datasets, saved to disk in the forms they have."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace

import pytest
from PIL import Image

from mltta.data import DatasetError, load_dataset
from mltta.errors import ConfigError, ImageError
from mltta.images.decode import load_image
from mltta.labels import LabelSet, with_known_words
from tests.data.pictures import save_pictures

datasets = pytest.importorskip("datasets")

CLASSES = datasets.ClassLabel(names=["cat", "dog", "sofa"])
ROWS = [[1, 2], [0], []]
EXPECTED = [[0, 1, 1], [1, 0, 0], [0, 0, 0]]


def save(folder, columns, features=None, rows=3):
    """Save rows of grey pictures, each as bright as its number, with further columns."""
    features = datasets.Features({"image": datasets.Image(), **features}) if features else None
    pictures = [Image.new("L", (3, 2), i) for i in range(rows)]
    data = datasets.Dataset.from_dict({"image": pictures, **columns}, features=features)
    data.save_to_disk(str(folder))
    return data


@pytest.mark.parametrize(
    ("column", "feature", "values"),
    [
        ("what", datasets.Sequence(CLASSES), ROWS),
        ("objects", datasets.Sequence({"category": CLASSES, "score": datasets.Value("float32")}), None),
        ("objects", [{"category": CLASSES, "score": datasets.Value("float32")}], None),
        ("labels", datasets.Sequence(datasets.Value("string")), [["dog", "sofa"], ["cat"], []]),
    ],
)
def test_label_columns_are_found_by_their_type(tmp_path, column, feature, values):
    if values is None:
        objects = [[{"category": c, "score": 0.5} for c in row] for row in ROWS]
        fields = [{"category": row, "score": [0.5] * len(row)} for row in ROWS]
        values = objects if isinstance(feature, list) else fields
    captions = datasets.Sequence(datasets.Value("string"))
    save(
        tmp_path, {column: values, "captions": [["a"], ["b"], ["c"]]}, {column: feature, "captions": captions}
    )
    data = load_dataset("hf", tmp_path)
    assert data.targets.tolist() == EXPECTED
    assert data.labels.names == ("cat", "dog", "sofa")
    assert data.ids == ("0", "1", "2")
    assert data.name == f"hf-{tmp_path.name}-all"


def test_one_class_an_image_is_a_label_list_of_one(tmp_path):
    save(tmp_path, {"label": [2, 0, 1]}, {"label": CLASSES})
    assert load_dataset("hf", tmp_path).targets.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_numbers_need_names_and_may_be_positions_or_flags(tmp_path):
    numbers = {"labels": datasets.Sequence(datasets.Value("int64"))}
    save(tmp_path / "positions", {"labels": ROWS}, numbers)
    assert load_dataset("hf", tmp_path / "positions", labels="cat, dog, sofa").targets.tolist() == EXPECTED
    with pytest.raises(ConfigError, match="numbers without names; give the label list"):
        load_dataset("hf", tmp_path / "positions")
    with pytest.raises(DatasetError, match="row 0: 2 is not a position in 2 labels"):
        load_dataset("hf", tmp_path / "positions", labels="cat, dog")
    save(tmp_path / "flags", {"labels": EXPECTED}, numbers)
    flags = load_dataset("hf", tmp_path / "flags", labels="cat, dog, sofa")
    assert flags.targets.tolist() == EXPECTED
    assert "its labels are read as one 0 or 1 per label" in flags.notes


def test_given_labels_put_classes_in_their_order_and_refuse_others(tmp_path):
    save(tmp_path, {"labels": ROWS}, {"labels": datasets.Sequence(CLASSES)})
    assert load_dataset("hf", tmp_path, labels="sofa, dog, cat").targets[0].tolist() == [1, 1, 0]
    with pytest.raises(DatasetError, match=r"row 0: No label 'sofa'"):
        load_dataset("hf", tmp_path, labels="dog, cat")


def test_classes_of_a_built_in_set_are_read_as_its_labels_whoever_asks(tmp_path):
    """The loader gives them as they are; known words are added once, for every caller, as to a list typed by hand."""
    voc = LabelSet.load("voc")
    feature = datasets.Sequence(datasets.ClassLabel(names=list(voc.names)))
    save(tmp_path, {"labels": ROWS}, {"labels": feature})
    labels = load_dataset("hf", tmp_path).labels
    assert (labels.names, labels.official) == (voc.names, False)
    known = with_known_words(labels)
    assert known.texts == voc.texts
    assert known == replace(with_known_words(LabelSet.of(list(voc.names))), source=known.source)


def test_images_are_decoded_only_when_opened(tmp_path):
    save(tmp_path, {"labels": ROWS}, {"labels": datasets.Sequence(CLASSES)})
    part = load_dataset("hf", tmp_path).select([2, 1])
    assert isinstance(part.images[0], bytes)
    assert [load_image(image).getpixel((0, 0)) for image in part.images] == [(2, 2, 2), (1, 1, 1)]
    again = pickle.loads(pickle.dumps(part.images))  # as a worker process gets them
    assert again[0] == part.images[0]


def test_images_kept_as_paths_and_missing_ones_are_left_to_the_one_who_opens_them(tmp_path):
    save_pictures(tmp_path, "a.jpg")
    table = {
        "file": [str(tmp_path / "a.jpg"), str(tmp_path / "b.jpg"), None],
        "labels": [["dog"], ["cat"], []],
    }
    datasets.Dataset.from_dict(table).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(
        ConfigError, match="no column contains images, choose one with image_column; its columns are file"
    ):
        load_dataset("hf", tmp_path / "set")
    data = load_dataset("hf", tmp_path / "set", image_column="file")
    assert load_image(data.images[0]).size == (4, 3)
    with pytest.raises(ImageError, match=r"b\.jpg: no such file"):
        load_image(data.images[1])
    with pytest.raises(ImageError, match="empty"):
        load_image(data.images[2])


def test_several_splits_must_be_named(tmp_path):
    data = save(tmp_path / "one", {"labels": ROWS}, {"labels": datasets.Sequence(CLASSES)})
    datasets.DatasetDict({"train": data, "test": data.select([0])}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(ConfigError, match="several splits; choose from train, test"):
        load_dataset("hf", tmp_path / "two")
    with pytest.raises(ConfigError, match="no split 'val'; choose from train, test"):
        load_dataset("hf", tmp_path / "two", split="val")
    assert load_dataset("hf", tmp_path / "two", split="test").name == "hf-two-test"


def test_columns_that_cannot_be_told_apart_or_do_not_exist_are_asked_for(tmp_path):
    lists = datasets.Sequence(CLASSES)
    save(tmp_path, {"x": ROWS, "y": [[0], [0], [0]]}, {"x": lists, "y": lists})
    with pytest.raises(ConfigError, match="give it as label_column; its columns are image, x, y"):
        load_dataset("hf", tmp_path)
    assert load_dataset("hf", tmp_path, label_column="y").targets[:, 0].tolist() == [1, 1, 1]
    with pytest.raises(ConfigError, match="has no column 'z'"):
        load_dataset("hf", tmp_path, label_column="z")
    with pytest.raises(ConfigError, match="no image column 'z'"):
        load_dataset("hf", tmp_path, image_column="z")
    with pytest.raises(ConfigError, match="'image' does not contain label"):
        load_dataset("hf", tmp_path, label_column="image")


def test_a_hub_that_cannot_be_reached_is_said_in_one_sentence(monkeypatch):
    def fail(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub\nlong trace")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(
        DatasetError, match=r"'owner/name' cannot be loaded: Couldn't reach the Hub\. Check its name"
    ):
        load_dataset("hf", "owner/name", split="test")


def test_without_the_package_the_way_to_install_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install mltta\[datasets\]"):
        load_dataset("hf", tmp_path)
