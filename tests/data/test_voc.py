"""VOC in its real layout, on a small tree."""

from __future__ import annotations

import pytest

from mltta.data.voc import load_voc
from mltta.errors import MlttaError
from mltta.labels import LabelSet


@pytest.fixture
def tree(tmp_path):
    main = tmp_path / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    main.mkdir(parents=True)
    for name in LabelSet.load("voc").names:
        value = {"dog": (1, -1), "sofa": (0, 1)}.get(name, (-1, -1))
        (main / f"{name}_val.txt").write_text(f"2008_000002 {value[1]:>2}\n2008_000001 {value[0]:>2}\n")
    return tmp_path


@pytest.mark.parametrize("place", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_labels_and_paths_are_read_from_wherever_the_devkit_lies(tree, place):
    data = load_voc(tree / place)
    assert data.ids == ("2008_000001", "2008_000002")
    assert data.paths[0].name == "2008_000001.jpg"
    assert data.paths[0].parent.name == "JPEGImages"
    names = data.labels.names
    assert data.targets[:, names.index("dog")].tolist() == [1, -1]
    assert data.targets[:, names.index("sofa")].tolist() == [0, 1]
    assert (data.targets[:, names.index("cat")] == -1).all()
    assert data.labels.texts[names.index("tvmonitor")] == "tv monitor"


def test_a_missing_devkit_or_label_file_is_named(tree, tmp_path_factory):
    with pytest.raises(MlttaError, match="VOCdevkit/VOC2012/ImageSets/Main"):
        load_voc(tmp_path_factory.mktemp("empty"))
    (tree / "VOCdevkit/VOC2012/ImageSets/Main/cow_val.txt").unlink()
    with pytest.raises(MlttaError, match=r"cow_val\.txt is missing"):
        load_voc(tree)
