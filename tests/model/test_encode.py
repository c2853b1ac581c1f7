"""On a device photos are encoded together, as many as fit; on a CPU each by itself. The features are the same."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from mltta.images.specs import LocalSpec, ViewSpec
from mltta.model.backbone import Backbone
from mltta.model.passes import ImageTower
from mltta.model.torch_engine import Halving, encode
from mltta.session.execution import Execution
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo, Prepare, Prepared
from tests import golden_data as golden
from tests.accelerate.test_views import PlainViews
from tests.test_tagger import photo

CROPS, MIXED = ViewSpec(count=10), ViewSpec(count=3, augmix=True)


class Tight(ImageTower):
    """A tower on a device that holds so many views."""

    def __init__(self, most: int):
        plain = golden.backbone("vit")
        super().__init__(plain.model.encode_image, plain.device, plain.image_dtype, plain.preprocess.size)
        self.most = most
        self.passed: list[int] = []

    def __call__(self, views: Tensor) -> Tensor:
        if len(views) > self.most:
            raise torch.OutOfMemoryError
        self.passed.append(len(views))
        return super().__call__(views)


def device(views: int, renders: bool) -> Backbone:
    """The tiny model as if it were on a GPU, which perhaps makes views too."""
    backbone = copy.copy(golden.backbone("vit"))
    backbone.device = SimpleNamespace(type="a GPU")
    backbone.image_tower = Tight(views)
    backbone.__dict__["renderer"] = PlainViews(backbone.preprocess, "cpu") if renders else None
    return backbone


def prepared(on_device: bool) -> list[Prepared]:
    """Seven photos; the third and the fourth lack the crops alone, as if the others were kept."""
    preprocess = golden.backbone("vit").preprocess
    sizes = [(90, 60), (60, 90), (33, 40), (64, 64), (90, 60), (120, 31), (50, 50)]
    found = []
    for i, size in enumerate(sizes):
        specs = (CROPS,) if i in (2, 3) else (CROPS, MIXED)
        prepare = Prepare(lambda key: key, specs, preprocess, on_device=on_device)
        found.append(prepare(Photo(i, str(i), photo(i, size))))
    return found


@pytest.mark.parametrize("views", [1000, 20, 10], ids=["all fit", "two images fit", "one image fits"])
@pytest.mark.parametrize("renders", [True, False], ids=["views made there", "views made before"])
def test_photos_encoded_together_have_the_features_of_each_alone(views, renders):
    backbone, at_once = device(views, renders), Halving(7)
    together = encode(backbone, prepared(on_device=renders), at_once=at_once)
    alone = encode(golden.backbone("vit"), prepared(on_device=False))
    for one, other in zip(together, alone, strict=True):
        assert set(one) == set(other)
        # passes of other sizes may round a half-precision feature to its neighbour
        torch.testing.assert_close(one[CROPS].float(), other[CROPS].float(), atol=3e-4, rtol=0)
        if MIXED in one:  # AugMix on a device may differ by a level here and there
            torch.testing.assert_close(one[MIXED].float(), other[MIXED].float(), atol=2e-2, rtol=0)
    assert at_once.size == {1000: 7, 20: 2, 10: 1}[views]
    assert sum(backbone.image_tower.passed) == 7 * CROPS.count + 5 * MIXED.count


@pytest.mark.parametrize("renders", [True, False], ids=["views made there", "views made before"])
@pytest.mark.parametrize("clean", [True, False])
def test_local_views_have_the_same_rows_together_and_alone(clean, renders):
    plain, spec = golden.backbone("vit"), LocalSpec(size=48, window=16, stride=8, clean=clean)
    gpu = device(1000, renders)
    gpu._local_towers = {spec: plain.tower_of(spec)}
    gpu._local_renderers = {48: PlainViews(plain.preprocess.at(48), "cpu") if renders else None}
    prepare = [
        Prepare(lambda key: key, (spec,), plain.preprocess, on_device=there) for there in (renders, False)
    ]
    photos = [Photo(i, str(i), photo(i, (90, 60))) for i in range(3)]
    together, alone = (
        encode(backbone, [make(one) for one in photos])
        for backbone, make in zip((gpu, plain), prepare, strict=True)
    )
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one[spec].float(), other[spec].float(), atol=3e-4, rtol=0)


@pytest.mark.parametrize("renders", [True, False], ids=["views made there", "views made before"])
def test_a_small_batch_is_filled_up_to_the_size_of_the_others_and_its_features_stay(renders):
    backbone = device(1000, renders)
    photos = prepared(on_device=renders)[:2]
    found = encode(backbone, photos, at_once=Halving(8), fill=8)
    assert backbone.image_tower.passed == [8 * CROPS.count, 8 * MIXED.count]
    for one, other in zip(found, encode(device(1000, renders), photos), strict=True):
        for spec in (CROPS, MIXED):
            assert one[spec].shape == other[spec].shape
            torch.testing.assert_close(one[spec].float(), other[spec].float(), atol=3e-4, rtol=0)


def test_it_is_filled_no_further_than_memory_allows():
    photos = prepared(on_device=True)[2:4]
    halved, tight = device(1000, True), device(20, True)
    encode(halved, photos, at_once=Halving(4), fill=8)
    assert halved.image_tower.passed == [4 * CROPS.count]
    encode(tight, photos, at_once=Halving(8), fill=8)
    assert tight.image_tower.passed == [2 * CROPS.count], "filled up they would not fit"


@pytest.mark.parametrize(("count", "passes"), [(3, [4]), (4, [4]), (9, [4, 4, 4]), (1, [1])])
def test_a_stream_passes_batches_of_one_size(count, passes):
    backbone = device(1000, True)
    pipeline = FeatureStream(backbone, [CROPS], execution=Execution(batch_size=4, threads=2))
    found = [item for batch in pipeline(Photo(i, str(i), photo(i)) for i in range(count)) for item in batch]
    assert [item.photo.index for item in found] == list(range(count))
    assert backbone.image_tower.passed == [n * CROPS.count for n in passes]


def test_no_photos_have_no_features():
    assert encode(golden.backbone("vit"), []) == []
    assert encode(device(10, True), []) == []
