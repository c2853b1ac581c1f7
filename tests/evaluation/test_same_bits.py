"""On the CPU the scores of episodic methods belong to the image alone, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from mltta.evaluation.recipes import Recipe
from tests.evaluation.scene import EPISODIC, bits, make_dataset, run


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def plain(photos, tmp_path_factory):
    """Every method's scores by image, from one run with nothing kept before."""
    done = run(photos, EPISODIC, tmp_path_factory.mktemp("plain"))
    found = [bits(result) for result in done.results]
    assert [len(one) for one in found] == [9] * 4
    assert len({row for one in found for row in one.values()}) == 9 * 4  # no two of them are alike
    return found


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (3, 2), (8, 0), (8, 2)])
def test_neither_batch_size_nor_workers_change_a_bit(photos, plain, tmp_path, batch_size, workers):
    done = run(photos, EPISODIC, tmp_path, batch_size=batch_size, workers=workers)
    assert [bits(result) for result in done.results] == plain


def test_images_adapted_side_by_side_by_many_threads_keep_their_bits(photos, plain, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)  # so many adapt; encoding goes on as before
    done = run(photos, EPISODIC, tmp_path)
    torch.set_num_threads(1)  # the evaluator gave back the five that it was told of
    assert [bits(result) for result in done.results] == plain


def test_the_order_of_the_images_changes_no_bit(photos, plain, tmp_path):
    mixed = photos.select([4, 0, 8, 2, 7, 1, 6, 3, 5])
    assert [bits(result) for result in run(mixed, EPISODIC, tmp_path).results] == plain


def test_an_image_among_others_and_alone_has_the_same_bits(photos, plain, tmp_path):
    done = run(photos.select([6]), EPISODIC, tmp_path)
    assert [bits(result) for result in done.results] == [{"photo6.png": one["photo6.png"]} for one in plain]


def test_a_cold_a_warm_and_no_cache_give_the_same_bits(photos, plain, tmp_path):
    kept = tmp_path / "features"
    cold = run(photos, EPISODIC, tmp_path / "cold", cache=kept)
    warm = run(photos, EPISODIC, tmp_path / "warm", cache=kept)
    off = run(photos, EPISODIC, tmp_path / "off", cache=False)
    assert [(done.counts.encoded, done.counts.cached) for done in (cold, warm, off)] == [
        (9, 0),
        (0, 9),
        (9, 0),
    ]
    for done in (cold, warm, off):
        assert [bits(result) for result in done.results] == plain


def test_without_a_cache_nothing_is_kept_and_nothing_is_found(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path / "user"))
    run(photos, ["clip"], tmp_path / "off", cache=False)
    assert not (tmp_path / "user").exists()
    run(photos, ["clip"], tmp_path / "on", cache=True)
    assert run(photos, ["clip"], tmp_path / "off again", cache=False).counts.encoded == 9


def test_methods_measured_together_and_each_alone_give_the_same_bits(photos, plain, tmp_path):
    """Alone, clip has its one view encoded in a pass of its own; together it is one of sixteen."""
    for recipe, together in zip(EPISODIC, plain, strict=True):
        alone = run(photos, [recipe], tmp_path / recipe.method, cache=False)
        assert bits(alone.results[0]) == together


@pytest.mark.parametrize("views", [1, 2, 4, 9, 10, 16])
def test_few_views_encoded_alone_are_the_first_of_many_to_the_bit(photos, tmp_path, views):
    few = Recipe("tpt", {"views": views, "select_ratio": 1.0})
    alone = run(photos, [few], tmp_path / "alone", cache=False)
    among = run(photos, [few, Recipe("tpt", {"views": 24})], tmp_path / "among", cache=False)
    assert bits(alone.results[0]) == bits(among.results[0])


class Stop(Exception):
    pass


def stop_after(images: int):
    def progress(done: int, total: int) -> None:
        if done >= images:
            raise Stop

    return progress


def test_a_stopped_run_goes_on_where_it_was_with_the_same_bits(photos, plain, tmp_path):
    with pytest.raises(Stop):
        run(photos, EPISODIC, tmp_path, batch_size=2, progress=stop_after(4))
    done = run(photos, EPISODIC, tmp_path, batch_size=3)
    assert set(done.resumed.values()) == {4}
    assert (done.counts.encoded, done.counts.cached) == (5, 0)
    assert [bits(result) for result in done.results] == plain


def test_a_finished_run_does_nothing_again_unless_it_is_told_to(photos, plain, tmp_path):
    run(photos, EPISODIC, tmp_path)
    again = run(photos, EPISODIC, tmp_path)
    assert set(again.resumed.values()) == {9}
    assert (again.counts.encoded, again.counts.cached, again.adapt_seconds) == (0, 0, {})
    fresh = run(photos, EPISODIC, tmp_path, fresh=True)
    assert set(fresh.resumed.values()) == {0}
    assert fresh.counts.cached == 9
    assert [bits(result) for result in fresh.results] == plain


def test_a_method_added_later_encodes_nothing(photos, plain, tmp_path):
    run(photos, EPISODIC[1:2], tmp_path)
    done = run(photos, EPISODIC, tmp_path)
    assert done.counts.encoded == 0
    assert done.resumed == {recipe.key: 9 if recipe.method == "tpt" else 0 for recipe in EPISODIC}
    assert [bits(result) for result in done.results] == plain


def test_another_seed_gives_other_scores_to_methods_with_random_views_only(photos, plain, tmp_path):
    other = [bits(result) for result in run(photos, EPISODIC, tmp_path, seed=1).results]
    assert other[0] == plain[0]
    for one, before in zip(other[1:], plain[1:], strict=True):
        assert all(one[id] != before[id] for id in before)


def test_pictures_in_memory_score_like_their_files(photos, plain, tmp_path):
    held = replace(photos, images=[np.asarray(Image.open(path)) for path in photos.images])
    assert [bits(result) for result in run(held, EPISODIC, tmp_path).results] == plain
    held = replace(photos, images=[path.read_bytes() for path in photos.images])
    done = run(held, EPISODIC, tmp_path / "bytes")
    assert [bits(result) for result in done.results] == plain
