"""What a dataset promises, whichever loader made it."""

from __future__ import annotations

import numpy as np
import pytest

from mltta.data import Dataset, DatasetError, list_datasets, load_dataset
from mltta.data.dataset import Lazy, settle_unlabelled
from mltta.errors import ConfigError
from mltta.labels import LabelSet


def make(images=("a.jpg", "b.jpg", "c.jpg"), **changes):
    parts = {
        "name": "toy-test",
        "labels": LabelSet.of("dog, cat"),
        "ids": ("a", "b", "c"),
        "images": images,
        "targets": np.array([[1, 1], [0, -1], [1, 0]], np.int8),
        **changes,
    }
    return Dataset(**parts)


def test_the_summary_says_what_is_measured_on():
    assert make().summary() == "toy-test: 3 images, 2 labels, 1.0 per image"
    full = make(published=5823, notes=("2 things count as absent",)).summary()
    assert full == "toy-test: 3 images (published: 5,823), 2 labels, 1.0 per image; 2 things count as absent"
    assert "3 images (as published)" in make(published=3).summary()


@pytest.mark.parametrize("chosen", [slice(1, 3), [1, 2], np.array([1, 2]), np.array([False, True, True])])
def test_a_selection_keeps_ids_images_and_targets_together(chosen):
    part = make().select(chosen)
    assert list(part.ids) == ["b", "c"]
    assert list(part.images) == ["b.jpg", "c.jpg"]
    assert part.targets.tolist() == [[0, -1], [1, 0]]
    assert "2 of these 3 images were selected" in part.summary()


def test_a_selection_in_another_order_and_one_of_nothing():
    assert list(make().select([2, 0]).ids) == ["c", "a"]
    assert len(make().select([])) == 0
    assert make().select(slice(99)).notes == ()


def test_a_selection_fetches_no_image():
    fetched = []

    def fetch(i):
        fetched.append(i)
        return f"picture {i}"

    part = make(Lazy(fetch, range(3))).select([2, 1]).select(slice(1))
    assert fetched == []
    assert list(part.images) == ["picture 2"]
    assert fetched == [2]


def test_parts_that_do_not_belong_together_are_refused():
    with pytest.raises(DatasetError, match="the image id 'a' occurs more than once"):
        make(ids=("a", "b", "a"))
    with pytest.raises(DatasetError, match=r"4 ids.*do not fit targets of shape \(3, 2\)"):
        make(ids=("a", "b", "c", "d"))
    with pytest.raises(DatasetError, match="targets must be"):
        make(targets=np.full((3, 2), 2, np.int8))


def test_images_without_labels_are_kept_or_dropped_and_counted():
    kept = settle_unlabelled(make(), "keep")
    assert len(kept) == 3
    assert kept.notes == ("1 images with none of the labels count as negatives",)
    dropped = settle_unlabelled(make(), "drop")
    assert list(dropped.ids) == ["a", "c"]
    assert dropped.notes == ("1 images with none of the labels are dropped",)
    with pytest.raises(DatasetError, match="none of its 3 images"):
        settle_unlabelled(make(targets=np.zeros((3, 2), np.int8)), "keep")
    with pytest.raises(ConfigError, match="neither 'keep' nor 'drop'"):
        settle_unlabelled(make(), "hide")


def test_unknown_names_list_what_there_is(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown dataset 'voc2021'.*nuswide.*Did you mean voc2012"):
        load_dataset("voc2021", tmp_path)
    assert {"voc2007", "voc2012", "coco2014", "coco2017", "nuswide", "folder", "hf"} < set(list_datasets())


def test_an_option_of_another_dataset_is_refused(tmp_path):
    with pytest.raises(
        ConfigError,
        match="coco2017 does not support the option difficult; it supports split, unlabelled, annotations",
    ):
        load_dataset("coco2017", tmp_path, difficult="ignore")
