"""Features on disk: read where they fit, never where they do not, and never wrong."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mltta.evaluation.recipes import Recipe
from mltta.images.specs import ViewSpec
from mltta.model.backbone import Backbone
from mltta.session import cache as cache_
from mltta.session import prepare as prepare_
from mltta.session.cache import NAME_BYTES, FeatureCache, clear, list_stores
from tests import golden_data as golden
from tests.evaluation.scene import EPISODIC, bits, make_dataset, run

BACKBONE = golden.backbone("vit")
WIDTH, PAIR = 32, ViewSpec(count=2)
#: two names share their first half, by which names are searched
NAMES = [bytes([n] * NAME_BYTES) for n in (7, 3, 9)] + [bytes([3] * 8 + [4] * 8)]
FEATURES = torch.randn(4, 2, WIDTH, generator=torch.Generator().manual_seed(0)).half().numpy()
ROW = 2 * 2 * WIDTH


def open_cache(folder: Path, spec: ViewSpec = PAIR, backbone: Backbone = BACKBONE, seed: int = 0):
    return FeatureCache(backbone, spec, seed, folder)


def keep(folder: Path, spec: ViewSpec = PAIR) -> Path:
    """A store of the four images; its folder."""
    cache = open_cache(folder, spec)
    features = FEATURES if spec == PAIR else torch.randn(4, spec.count, WIDTH).half().numpy()
    cache.write(NAMES[:3], list(features[:3]))
    cache.write(NAMES[3:], list(features[3:]))
    (store,) = [store for store in list_stores(folder) if store.spec == spec]
    return store.folder


@pytest.fixture
def kept(tmp_path) -> Path:
    return keep(tmp_path)


def right(cache: FeatureCache) -> int:
    """How many of the images are found; each must have its own features."""
    found = 0
    for name, features in zip(NAMES, FEATURES, strict=True):
        if cache.holds(name):
            np.testing.assert_array_equal(cache.read(name), features)
            found += 1
    return found


def test_what_was_kept_is_found_by_the_next_to_open_it(kept):
    cache = open_cache(kept.parent)
    assert len(cache) == 4
    assert right(cache) == 4
    for stranger in (bytes(NAME_BYTES), bytes([3] * 8 + [5] * 8), bytes([255] * NAME_BYTES)):
        assert not cache.holds(stranger)
        with pytest.raises(KeyError):
            cache.read(stranger)


def cut(kept: Path, names: int, features: int) -> int:
    """Images found when the files of a copy are cut at these bytes."""
    torn = kept.parent.parent / f"{kept.parent.name}-torn"
    shutil.rmtree(torn, ignore_errors=True)
    shutil.copytree(kept.parent, torn)
    (first,) = (torn / kept.name).glob("*.images")
    os.truncate(first, names)
    os.truncate(first.with_suffix(".features"), features)
    return right(open_cache(torn))


def test_files_cut_at_any_byte_give_right_features_or_none(kept):
    for end in range(4 * NAME_BYTES + 1):
        assert cut(kept, end, 4 * ROW) == end // NAME_BYTES
    for end in range(0, 4 * ROW + 1, 3):
        assert cut(kept, 4 * NAME_BYTES, end) == end // ROW


@settings(max_examples=40, deadline=None)
@given(names=st.integers(0, 4 * NAME_BYTES), features=st.integers(0, 4 * ROW))
def test_both_files_cut_anywhere_give_right_features_or_none(tmp_path_factory, names, features):
    kept = keep(tmp_path_factory.mktemp("store"))
    assert cut(kept, names, features) == min(names // NAME_BYTES, features // ROW)


def test_a_file_of_names_without_features_is_passed_over(kept):
    (kept / "lost.images").write_bytes(NAMES[0])
    assert right(open_cache(kept.parent)) == 4


def test_two_that_write_at_once_do_not_disturb_each_other(tmp_path):
    one, two = open_cache(tmp_path), open_cache(tmp_path)
    one.write(NAMES[:1], [FEATURES[0]])
    two.write(NAMES[1:3], list(FEATURES[1:3]))
    one.write(NAMES[3:], [FEATURES[3]])
    two.write(NAMES[:1], [FEATURES[0]])  # both encoded it
    assert right(open_cache(tmp_path)) == 4
    assert len(list_stores(tmp_path)) == 1


def other_weights() -> Backbone:
    changed = copy.deepcopy(BACKBONE)
    changed.__dict__.pop("image_fingerprint", None)
    next(iter(changed.model.visual.parameters())).data.view(-1)[0] += 1e-3
    return changed


def with_(**changes) -> Backbone:
    changed = copy.copy(BACKBONE)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


MISSES = {
    "another seed": {"seed": 1},
    "one weight": {"backbone": other_weights()},
    "preprocessing": {"backbone": with_(preprocess=replace(BACKBONE.preprocess, resize_mode="squash"))},
    "arithmetic": {"backbone": with_(image_dtype=torch.bfloat16)},
    "AugMix": {"spec": replace(PAIR, augmix=True)},
    "other crops": {"spec": replace(PAIR, scale=(0.5, 1.0))},
    "more views": {"spec": replace(PAIR, count=3)},
}


@pytest.mark.parametrize("difference", MISSES)
def test_features_of_anything_else_are_not_taken(kept, difference):
    cache = open_cache(kept.parent, **MISSES[difference])
    assert [cache.holds(name) for name in NAMES] == [False] * 4


def test_features_made_by_another_way_of_rendering_are_not_taken(kept, monkeypatch):
    monkeypatch.setattr(prepare_, "RENDERING", "another way")
    assert not open_cache(kept.parent).holds(NAMES[0])


def test_the_name_of_the_model_is_for_people_only(kept):
    assert right(open_cache(kept.parent, backbone=with_(name="called otherwise"))) == 4


def test_few_views_are_read_from_a_store_of_many_and_not_the_other_way(tmp_path):
    keep(tmp_path, ViewSpec(count=64))
    many, few = (open_cache(tmp_path, ViewSpec(count=count)) for count in (64, 16))
    for name in NAMES:
        assert many.holds(name)
        assert few.holds(name)
        np.testing.assert_array_equal(few.read(name), many.read(name)[:16])
    keep(tmp_path / "few", ViewSpec(count=16))
    assert not open_cache(tmp_path / "few", ViewSpec(count=64)).holds(NAMES[0])


@pytest.mark.parametrize(
    "spec", [ViewSpec(), ViewSpec(count=3, augmix=True), ViewSpec(count=5, scale=(0.5, 1.0), flip=0.0)]
)
def test_the_clean_view_alone_is_read_from_any_store_of_the_model(tmp_path, spec):
    keep(tmp_path, spec)
    whole, one = open_cache(tmp_path, spec), open_cache(tmp_path, ViewSpec(count=1))
    for name in NAMES:
        assert one.holds(name)
        np.testing.assert_array_equal(one.read(name), whole.read(name)[:1])
    assert not open_cache(tmp_path, ViewSpec(count=1), with_(image_dtype=torch.bfloat16)).holds(NAMES[0])


def test_the_same_picture_under_another_name_is_not_encoded_again(tmp_path):
    photos = make_dataset(tmp_path / "photos", 4)
    run(photos, ["clip"], tmp_path / "one", cache=tmp_path / "features")
    renamed = []
    for number, path in enumerate(photos.images):
        renamed.append(tmp_path / f"renamed {number}.png")
        shutil.copy(path, renamed[-1])
    others = replace(photos, images=renamed, ids=tuple(path.name for path in renamed))
    again = run(others, ["clip"], tmp_path / "two", cache=tmp_path / "features")
    assert (again.counts.encoded, again.counts.cached) == (0, 4)


def test_another_picture_under_the_same_name_is_encoded(tmp_path):
    photos = make_dataset(tmp_path / "photos", 2)
    run(photos, ["clip"], tmp_path / "one", cache=tmp_path / "features")
    photos.images[0].write_bytes(make_dataset(tmp_path / "others", 1, first=50).images[0].read_bytes())
    again = run(photos, ["clip"], tmp_path / "two", cache=tmp_path / "features")
    assert (again.counts.encoded, again.counts.cached) == (1, 1)


@pytest.mark.parametrize("what", ["later", "at once"])
def test_a_full_disk_costs_the_cache_and_not_the_run(tmp_path, monkeypatch, caplog, what):
    photos = make_dataset(tmp_path / "photos", 7)
    want = [bits(result) for result in run(photos, EPISODIC, tmp_path / "plain", cache=False).results]
    calls = []

    def full(*args, **kwargs):
        calls.append(args)
        if len(calls) > 1 or what == "at once":
            raise OSError(28, "No space left on device")

    write = cache_._Writer.write

    def full_later(self, *args):
        full()
        write(self, *args)

    if what == "later":
        monkeypatch.setattr(cache_._Writer, "write", full_later)
    else:
        monkeypatch.setattr(cache_._Writer, "__init__", full)
    done = run(photos, EPISODIC, tmp_path, batch_size=2)
    assert [bits(result) for result in done.results] == want
    told = [record.getMessage() for record in caplog.records if "not cached" in record.getMessage()]
    assert told == [
        "cannot write features; the rest of this run is not cached: [Errno 28] No space left on device"
    ]

    monkeypatch.undo()
    again = run(photos, EPISODIC, tmp_path / "again", cache=tmp_path / "features")
    assert [bits(result) for result in again.results] == want
    assert again.counts.cached == (2 if what == "later" else 0)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"key": {}, "dim": 3}', '{"key": {"format": "other"}, "dim": 1}']
)
def test_a_store_that_cannot_be_read_is_passed_over_and_can_be_used_again(kept, text):
    (kept / "key.json").write_text(text)
    assert list_stores(kept.parent) == []
    cache = open_cache(kept.parent)
    assert not cache.holds(NAMES[0])
    cache.write(NAMES[:1], [FEATURES[0]])
    assert right(open_cache(kept.parent)) == 4, "once its key is whole, what it held is found again"


def test_a_store_is_cleared_whole_and_alone(tmp_path):
    keep(tmp_path)
    keep(tmp_path, ViewSpec(count=4))
    store = next(store for store in list_stores(tmp_path) if store.spec == PAIR)
    assert (store.images, store.dim) == (4, WIDTH)
    assert store.size == sum(file.stat().st_size for file in store.folder.iterdir())
    clear(store)
    assert [left.spec.count for left in list_stores(tmp_path)] == [4]
    assert not store.folder.exists()


def test_a_worker_that_is_started_afresh_maps_the_files_and_gets_no_copy(kept):
    cache = open_cache(kept.parent)
    sent = pickle.dumps(cache)
    assert FEATURES[0].tobytes() not in sent
    assert right(pickle.loads(sent)) == 4
    assert isinstance(pickle.loads(sent)._shards[0].features, np.memmap)


def test_methods_that_want_other_views_share_what_they_can(tmp_path):
    photos = make_dataset(tmp_path / "photos", 3)
    recipes = [Recipe("clip"), Recipe("tpt", {"views": 8}), Recipe("tpt", {"views": 4, "augmix": True})]
    run(photos, recipes, tmp_path)
    assert sorted((s.spec.count, s.spec.augmix) for s in list_stores(tmp_path / "features")) == [
        (4, True),
        (8, False),
    ]
