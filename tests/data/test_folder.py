"""The user's own images with a table of labels, in the forms such tables have."""

from __future__ import annotations

import pytest

from mltta.data import DatasetError, load_dataset
from mltta.labels import LabelSet
from tests.data.pictures import save_pictures


@pytest.fixture
def tree(tmp_path):
    save_pictures(tmp_path, "a.jpg", "b.jpg", "sub/c.jpg")
    return tmp_path


def write(root, text, name="labels.csv"):
    (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def found(data):
    return {
        image: [name for name, target in zip(data.labels.names, row, strict=True) if target == 1]
        for image, row in zip(data.ids, data.targets, strict=True)
    }


EXPECTED = {"b.jpg": ["dog", "traffic light"], "a.jpg": ["cat"], "sub/c.jpg": []}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "image,labels\nb.jpg,dog|traffic light\na.jpg,cat\nsub/c.jpg,\n"),
        ("labels.csv", "\ufeffimage,labels\r\nb.jpg,traffic light | dog\r\na.jpg,cat\r\n\r\nsub\\c.jpg,\r\n"),
        ("labels.csv", "image,labels\nb.jpg,dog;traffic light\na.jpg,cat\nsub/c.jpg,\n"),
        ("labels.csv", 'image,labels\nb.jpg,"dog, traffic light"\na.jpg,cat\nsub/c.jpg,\n'),
        ("labels.csv", "image;labels\nb.jpg;dog,traffic light\na.jpg;cat\nsub/c.jpg;\n"),
        ("tags.tsv", "tags\tfile_name\twidth\ndog|traffic light\tb.jpg\t4\ncat\ta.jpg\t4\n\tsub/c.jpg\t4\n"),
        ("labels.csv", "image,cat,dog,traffic light\nb.jpg,0,1,1\na.jpg,1.0,0.0,0\nsub/c.jpg,false,0,0\n"),
        (
            "x.jsonl",
            '{"image": "b.jpg", "labels": ["dog", "traffic light"]}\r\n{"image": "a.jpg", "labels": ["cat"]}\r\n\r\n'
            '{"image": "sub/c.jpg", "labels": []}',
        ),
    ],
)
def test_every_usual_form_says_the_same(tree, name, text):
    write(tree, text, name)
    data = load_dataset("folder", tree)
    assert found(data) == EXPECTED
    assert data.labels.names == ("cat", "dog", "traffic light")
    assert [path.relative_to(tree).as_posix() for path in data.images] == list(EXPECTED)
    assert data.name == f"folder-{tree.name}"
    assert data.notes == ("1 images with none of the labels count as negatives",)
    assert list(load_dataset("folder", tree / name, unlabelled="drop").ids) == ["b.jpg", "a.jpg"]


def test_a_minus_one_leaves_a_label_out_of_the_metrics(tree):
    write(tree, "image,cat,dog\na.jpg,1,-1\nb.jpg,0,1\n")
    data = load_dataset("folder", tree)
    assert data.targets.tolist() == [[1, -1], [0, 1]]
    assert data.notes == ("1 label–image pairs marked -1 are ignored in metrics",)


def test_given_labels_fix_columns_and_order(tree):
    write(tree, "image,labels\na.jpg,Dog|dining table\nb.jpg,cat\n")
    data = load_dataset("folder", tree, labels="voc")
    assert data.labels == LabelSet.load("voc")
    assert found(data) == {"a.jpg": ["diningtable", "dog"], "b.jpg": ["cat"]}
    write(tree, "image,cat,dog\na.jpg,1,0\n")
    assert load_dataset("folder", tree, labels="dog, cat").targets.tolist() == [[0, 1]]


def test_a_label_that_is_not_in_the_list_is_named_with_its_line_and_the_nearest(tree):
    write(tree, "image,labels\na.jpg,dog\nb.jpg,dog|tarffic light\n")
    with pytest.raises(
        DatasetError, match=r"labels\.csv, line 3: No label 'tarffic light'.*mean 'traffic light'"
    ):
        load_dataset("folder", tree, labels="dog, traffic light")
    write(tree, "image,dogg\na.jpg,1\n")
    with pytest.raises(DatasetError, match=r"column 'dogg': No label 'dogg'.*mean 'dog'"):
        load_dataset("folder", tree, labels="dog, traffic light")
    write(tree, "image,dog\na.jpg,1\n")
    with pytest.raises(DatasetError, match="has no columns for the label 'traffic light'"):
        load_dataset("folder", tree, labels="dog, traffic light")


def test_spellings_of_one_label_are_one_label(tree):
    write(tree, "image,labels\na.jpg,Traffic_Light\nb.jpg,traffic light\n")
    assert load_dataset("folder", tree).labels.names == ("Traffic_Light",)
    write(tree, "image,Traffic_Light,traffic light\na.jpg,1,1\n")
    with pytest.raises(DatasetError, match="has 2 columns for the label 'Traffic_Light'"):
        load_dataset("folder", tree)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,labels\na.jpg,dog\n\na.jpg,cat\n", r"lines 2 and 4 list the same image, a\.jpg"),
        ("a.jpg,dog\nb.jpg,cat\n", r"first line must be a header.*found 'a\.jpg,dog'"),
        ("", "first line must be a header"),
        ("image,labels\n", "lists no images"),
        ("image,labels\na.jpg,\nb.jpg,\n", "lists 2 images, but no labels"),
        (
            "image,labels\na.jpg,dog,cat\n",
            r"line 2: 3 cells where the header has 2; separate labels by \|",
        ),
        ("image,labels\na.jpg,dog\n ,cat\n", "line 3: the image name is missing"),
        ("image,dog\na.jpg,1\nb.jpg,maybe\n", "line 3, column 'dog': expected 1, 0 or -1, found 'maybe'"),
        (b"image,labels\na.jpg,caf\xe9\n", "is not UTF-8 text"),
        ("image,labels\nx.jpg,dog\ny.jpg,dog\na.jpg,cat\n", "2 of 3 listed images checked are missing"),
    ],
)
def test_faults_in_a_table_are_named(tree, text, words):
    write(tree, text)
    with pytest.raises(DatasetError, match=words):
        load_dataset("folder", tree)


@pytest.mark.parametrize(
    "line",
    ['["a.jpg"]', '{"image": "b.jpg"}', '{"image": 3, "labels": []}', '{"image": "b.jpg", "labels": "dog"}'],
)
def test_a_json_line_of_another_form_is_named(tree, line):
    write(tree, f'{{"image": "a.jpg", "labels": ["dog"]}}\n{line}\n', "labels.jsonl")
    with pytest.raises(DatasetError, match=r'labels\.jsonl, line 2: expected {"image": "a\.jpg", "labels"'):
        load_dataset("folder", tree)


def test_broken_json_is_named(tree):
    write(tree, '{"image": "a.jpg", "labels": ["dog"]\n', "labels.jsonl")
    with pytest.raises(DatasetError, match="line 1: not valid JSON"):
        load_dataset("folder", tree)


def test_the_label_file_is_looked_for_and_asked_for(tree):
    with pytest.raises(DatasetError, match=r"a label file was not found[\s\S]*Found there:\n    a\.jpg"):
        load_dataset("folder", tree)
    write(tree, "image,labels\na.jpg,dog\n", "one.csv")
    write(tree, "image,labels\na.jpg,cat\n", "two.csv")
    with pytest.raises(
        DatasetError, match=r"several label files, choose one with annotations: one\.csv, two\.csv"
    ):
        load_dataset("folder", tree)
    assert load_dataset("folder", tree, annotations="two.csv").labels.names == ("cat",)
    write(tree, "{}", "coco.json")
    with pytest.raises(DatasetError, match="objects365 reads COCO's format"):
        load_dataset("folder", tree, annotations=tree / "coco.json")


def test_images_may_lie_in_a_folder_of_their_own(tmp_path):
    save_pictures(tmp_path / "images", "a.jpg")
    write(tmp_path, "image,labels\na.jpg,dog\n")
    assert load_dataset("folder", tmp_path).images[0] == tmp_path / "images" / "a.jpg"
