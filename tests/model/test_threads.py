"""Work side by side: pieces that would divide themselves again must not wait for their own pool."""

from __future__ import annotations

import torch

from mltta import Tagger, load_backbone
from mltta.model.passes import beside_others, side_by_side

PHOTO = "examples/photos/cat.jpg"


def test_a_tower_called_from_the_pool_does_not_wait_for_it() -> None:
    backbone = load_backbone("mini", device="cpu")
    views = torch.randn(16, 3, backbone.preprocess.size, backbone.preprocess.size)
    alone = backbone.encode_images(views)
    workers = torch.get_num_threads() + 1  # more than the pool has, so that one would wait for ever
    asked = [side_by_side().submit(backbone.encode_images, views) for _ in range(workers)]
    for found in asked:
        torch.testing.assert_close(found.result(timeout=120), alone, atol=1e-5, rtol=0)
    assert not beside_others()
    assert side_by_side().submit(beside_others).result()


def test_a_tagger_can_be_called_where_gradients_are_off() -> None:
    tagger = Tagger(load_backbone("mini", device="cpu"), ["cat", "dog", "sofa"], "ml-tta", views=8)
    with torch.no_grad():
        first = tagger(PHOTO)
    with torch.inference_mode():
        second = tagger(PHOTO)
    assert first == second == tagger(PHOTO)
