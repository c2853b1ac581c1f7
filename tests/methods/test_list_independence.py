"""A score of auto depends on the photo and the label, bit for bit, in any list. Larger: benchmarks.any_list."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mltta import create_method, load_backbone
from mltta.arrays import normalize, to_numpy
from mltta.methods.auto import AutoConfig
from mltta.model.encoded import Encoded
from mltta.model.vocabulary import words

TARGETS = ("dog", "sofa", "tv monitor", "zorblewock", "two red cars")


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_scores_are_bit_identical_in_random_lists(engine):
    backbone = load_backbone("mini", device="cpu", engine=engine)
    rng, draw = random.Random(0), np.random.default_rng(0)
    texts = to_numpy(backbone.encode_texts([f"a photo of a {word}." for word in words()[:300:3]]))
    photos = []
    for _ in range(2):
        rows = {}
        for spec in AutoConfig().specs(backbone.preprocess.size):
            count = 5 + (spec.size // spec.stride - 2) ** 2
            like = (
                texts[draw.integers(len(texts), size=count)] + draw.normal(size=(count, texts.shape[1])) / 10
            )
            rows[spec] = backbone.asarray(normalize(like[None]).astype(np.float32))
        photos.append(Encoded(rows))

    def scores(labels: list[str]) -> np.ndarray:
        method = create_method("auto", backbone, labels)
        return np.concatenate([to_numpy(method.branches(photo)["view"]) for photo in photos])

    alone = {target: scores([target])[:, 0] for target in TARGETS}
    pool = [*words(), *(f"unknown {i}" for i in range(5))]
    for count in (1, 6, 7, 300):
        labels = list(dict.fromkeys([*rng.sample(pool, count), *TARGETS]))
        rng.shuffle(labels)
        found = scores(labels)
        for target in TARGETS:
            np.testing.assert_array_equal(found[:, labels.index(target)], alone[target], err_msg=target)
