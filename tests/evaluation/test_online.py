"""Online methods: the order of the images is part of what is measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mltta import create_method
from mltta.evaluation import evaluate as evaluator
from mltta.evaluation.comparison import comparison, lines
from mltta.evaluation.recipes import Recipe
from mltta.methods.base import OnlineMethod
from tests import golden_data as golden
from tests.evaluation.scene import LABELS, bits, encoded, make_dataset, run, shuffled

OPTIONS = {"tda": {"positive_capacity": 1}, "dmn": {"views": 4, "memory": 2}}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("photos"), 10)


def fold(method: OnlineMethod, dataset) -> dict[str, bytes]:
    """What a plain loop over the images gives, in the order they are listed."""
    state, found = method.start(), {}
    for id, one in zip(dataset.ids, encoded(dataset, method.needs[0]), strict=True):
        branches, state = method.step(state, one)
        found[id] = torch.cat(list(branches.values())).numpy().tobytes()
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_without_an_order_the_images_come_as_the_dataset_lists_them(photos, tmp_path, name):
    method = create_method(name, golden.backbone("vit"), LABELS, **OPTIONS[name])
    assert isinstance(method, OnlineMethod)
    (result,) = run(photos, [Recipe(name, OPTIONS[name])], tmp_path, batch_size=3).results
    assert bits(result) == fold(method, photos)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_order_is_the_same_as_a_dataset_that_lists_them_so(photos, tmp_path, name):
    plain, mixed = run(
        photos, [Recipe(name, OPTIONS[name]), Recipe(name, OPTIONS[name], order=5)], tmp_path / "order"
    ).results
    listed = photos.select(shuffled(10, 5))
    (want,) = run(listed, [Recipe(name, OPTIONS[name])], tmp_path / "listed").results
    assert bits(mixed) == bits(want)
    assert bits(mixed) != bits(plain), "the order matters, or this test says nothing"
    assert mixed.scored.tolist() == list(range(10)), "scores are told in the dataset's order"


def test_neither_batch_size_nor_a_stop_changes_a_bit(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluator, "IMAGES_PER_STATE", 3)
    recipes = [Recipe(name, OPTIONS[name], order=1) for name in OPTIONS]
    whole = [bits(result) for result in run(photos, recipes, tmp_path / "whole").results]

    def stop(done: int, total: int) -> None:
        if done >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(photos, recipes, tmp_path / "stopped", batch_size=1, progress=stop)
    again = run(photos, recipes, tmp_path / "stopped", batch_size=4)
    assert set(again.resumed.values()) == {3}, "from the memory that was kept after the third image"
    assert [bits(result) for result in again.results] == whole


def test_one_that_is_behind_and_one_that_is_done_share_a_pass(photos, tmp_path):
    recipes = [Recipe("tda", OPTIONS["tda"]), Recipe("clip")]
    alone = bits(run(photos, recipes[:1], tmp_path / "alone").results[0])
    run(photos, recipes[1:], tmp_path)
    done = run(photos, recipes, tmp_path)
    assert done.resumed == {recipes[0].key: 0, "clip": 10}
    assert bits(done.results[0]) == alone


def test_an_episodic_method_has_no_order(photos, tmp_path):
    results = run(photos, [Recipe("clip"), Recipe("clip", order=4)], tmp_path).results
    assert results[0].folder == results[1].folder


def test_several_orders_are_one_line_with_their_mean_and_spread(photos, tmp_path):
    recipes = [Recipe("clip"), *(Recipe("tda", OPTIONS["tda"], order=order) for order in range(3))]
    results = run(photos, recipes, tmp_path).results
    assert len({result.folder for result in results}) == 4
    found = lines(results, draws=20)
    assert [line.title for line in found] == ["clip", "tda (positive_capacity=1)"]
    maps = [summary.map for summary in found[1].summaries]
    assert len(set(maps)) > 1, "or this test says nothing"
    clip, tda = comparison(found).rows
    assert tda.cells[0].ours == pytest.approx(np.mean(maps))
    assert tda.cells[0].note == f"± {np.std(maps, ddof=1):.2f} over 3 orders"
    assert tda.cells[1].ours == pytest.approx(np.mean(maps) - found[0].summaries[0].map)
    assert (tda.cells[0].low, tda.cells[1].low) == (None, None), "an interval over images is of one order"
    assert clip.cells[0].low is not None
    tda, clip = comparison(found[::-1]).rows
    assert clip.cells[1].ours == pytest.approx(found[0].summaries[0].map - np.mean(maps))
