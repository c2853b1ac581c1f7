"""Photos through the pipeline: features from a cache and fresh ones, and what cannot be encoded."""

from __future__ import annotations

import copy

import pytest
import torch

from mltta import encode_images
from mltta.errors import ConfigError, ImageError
from mltta.images.specs import ViewSpec
from mltta.images.views import render_views
from mltta.session.execution import Execution
from mltta.session.features import Features, FeatureStream
from mltta.session.prepare import Photo
from tests import golden_data as golden
from tests.test_tagger import photo

PAIR = ViewSpec(count=2)


def test_kept_features_and_those_left_on_the_device_come_together():
    backbone = copy.copy(golden.backbone("vit"))
    backbone.device = torch.device("meta")  # any but the CPU
    pipeline = FeatureStream(backbone, [PAIR], execution=Execution(batch_size=1, workers=0))
    kept, fresh = (torch.ones(2, 4, dtype=torch.float16, device=device) for device in ("cpu", "meta"))
    items = [Features(Photo(i, "", None), {PAIR: one}) for i, one in enumerate((kept, fresh))]
    for photos in (items, items[::-1]):
        found = pipeline.encoded(photos).features(PAIR)
        assert (found.shape, found.dtype, found.device.type) == ((2, 2, 4), torch.float32, "meta")


def test_images_are_encoded_in_their_order_and_rounded_to_half_precision():
    backbone, images = golden.backbone("vit"), [photo(i) for i in range(5)]
    found = encode_images(backbone, images, [PAIR, ViewSpec(count=1)], seed=3)
    for own, image in zip(found.features(PAIR), images, strict=True):
        want = backbone.encode_images(render_views(image, PAIR, backbone.preprocess, seed=3))
        assert torch.equal(own, own.half().float())
        torch.testing.assert_close(own, want, atol=3e-4, rtol=0)
    assert torch.equal(found.features(ViewSpec(count=1)), found.features(PAIR)[:, :1])


def test_an_image_that_cannot_be_read_and_no_images_are_refused(tmp_path):
    with pytest.raises(ImageError, match=r"gone\.jpg.*no such file"):
        encode_images(golden.backbone("vit"), [photo(0), tmp_path / "gone.jpg"], [PAIR])
    with pytest.raises(ConfigError, match="no images to encode"):
        encode_images(golden.backbone("vit"), [], [PAIR])
