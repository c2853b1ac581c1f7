"""What needs no gradient imports no torch, and says the same of NumPy arrays as of tensors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mltta
from mltta import arrays
from mltta.arrays import to_numpy
from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import default_captions
from mltta.labels import LabelSet
from mltta.methods.auto import Auto, AutoConfig
from mltta.methods.base import Problem, branch_probabilities, merge_branches, z_scores
from mltta.methods.clip import Clip
from mltta.methods.config import Config
from mltta.methods.words import Words, label_words
from mltta.model.encoded import Encoded
from mltta.model.search import Search

TORCH_FREE = [
    *("arrays", "images.views", "images.specs", "captions.store", "captions.labelled"),
    *("model.encoded", "model.search", "model.vocabulary", "model.prompts", "model.names"),
    *("methods", "methods.base", "methods.config", "methods.create", "methods.registry"),
    *("methods.auto", "methods.clip"),
]


def test_what_needs_no_gradient_does_not_import_torch():
    code = f"""
import sys
from importlib import import_module
for name in {TORCH_FREE}:
    import_module(f"mltta.{{name}}")
    assert "torch" not in sys.modules, name
import mltta
assert "ml-tta" in mltta.list_methods() and "mini" in mltta.list_models()
assert mltta.methods.method_class("auto").summary
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def units(*shape: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def same(tensor: torch.Tensor, array: Any) -> None:
    """Equal to float32 rounding, and ranked alike."""
    assert isinstance(array, np.ndarray)
    assert array.dtype == tensor.numpy().dtype
    np.testing.assert_allclose(array, tensor.numpy(), atol=1e-6, rtol=1e-5)


def ranked_alike(tensor: torch.Tensor, array: Any) -> None:
    np.testing.assert_array_equal(np.argsort(-array, axis=-1), (-tensor).argsort(dim=-1).numpy())


@pytest.mark.parametrize(
    "work",
    [
        arrays.softmax,
        arrays.sigmoid,
        arrays.normalize,
        lambda x: arrays.clamp(x, -0.5, 0.5),
        lambda x: arrays.topk(x, 3)[0],
        lambda x: arrays.topk(x, 7)[1],
        z_scores,
        merge_branches,
        lambda x: merge_branches(x, "minmax"),
        branch_probabilities,
        lambda x: branch_probabilities(x, "odds"),
        lambda x: branch_probabilities(arrays.softmax(x), "probabilities"),
        lambda x: arrays.sum_by(x, arrays.like(np.array([0, 0, 1, 3, 3, 3, 4]), x), 6),
    ],
)
def test_numpy_and_torch_agree(work):
    x = 3 * torch.randn(4, 2, 7, generator=torch.Generator().manual_seed(0))
    same(work(x), work(x.numpy()))


def test_log_odds_of_any_size_have_a_probability():
    odds = np.array([-1000, -50, 0, 50, 1000], np.float32)
    with np.errstate(all="raise", under="ignore"):
        same(torch.from_numpy(odds).sigmoid(), arrays.sigmoid(odds))


def test_search_finds_the_same_captions():
    base, views = units(300, 16), units(2, 5, 16, seed=1)
    for n in (1, 16, 500):
        values, indices = Search(base)(views, n)
        other, found = Search(base.numpy())(views.numpy(), n)
        same(values, other)
        np.testing.assert_array_equal(found, indices.numpy())


@lru_cache(maxsize=1)
def captions() -> tuple[LabelledCaptions, LabelledCaptions]:
    backbone = mltta.load_backbone("mini", device="cpu")
    made = label_captions(LabelSet.load("coco"), backbone, default_captions(backbone), apart=True)
    return made, LabelledCaptions(made.embeddings.numpy(), made.mentions, made.n_labels, texts=made.texts)


def test_captions_say_the_same():
    tensors, plain = captions()
    views = F.normalize(tensors.embeddings[::2000] + 0.05 * units(8, 384), dim=-1)
    for name, arguments in (("votes", (16, 40.0)), ("shares", (40.0,))):
        one, other = (getattr(kind, name) for kind in (tensors, plain))
        wanted, found = one(views, *arguments), other(views.numpy(), *arguments)
        same(wanted, found)
        ranked_alike(wanted.topk(3).values, np.sort(found)[:, ::-1][:, :3])
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1).numpy())
    same(tensors.means, plain.means)
    same(tensors.spoken_of, plain.spoken_of)
    same(tensors.nearest_counts(views), plain.nearest_counts(views.numpy()))
    said = tensors.speakers(views[0], 0), plain.speakers(views[0].numpy(), 0)
    assert [text for text, _ in said[0]] == [text for text, _ in said[1]]


class Texts:
    """What a label encoder is to a method that tunes no context."""

    tunable = False

    def __init__(self, features: Any):
        self.features = features

    def __len__(self) -> int:
        return len(self.features)


def problem(kind: Any) -> Problem:
    """The labels of COCO as tensors, or as NumPy arrays."""
    backbone = mltta.load_backbone("mini", device="cpu")
    labels = LabelSet.load("coco")
    words = label_words(backbone, labels, "simple", default_captions(backbone))
    heard = words.captions
    heard = LabelledCaptions(kind(heard.embeddings), heard.mentions, heard.n_labels, texts=heard.texts)
    text = Texts(kind(backbone.encode_labels(labels).features))
    plain = ("called", "rivals", "captions")
    own = {name: kind(getattr(words, name)) for name in Words.__dataclass_fields__ if name not in plain}
    return Problem(text, backbone.logit_scale, words=replace(words, **own, captions=heard))


@pytest.mark.parametrize(("cls", "config"), [(Auto, AutoConfig()), (Clip, Config())])
def test_auto_and_clip_give_the_same_scores(cls, config):
    methods = [cls(problem(kind), config) for kind in (lambda x: x, to_numpy)]
    texts = 20 * captions()[0].embeddings[:522:2].reshape(1, 261, -1)  # 5 parts, 16 x 16 windows
    rows = {spec: F.normalize(units(2, 261, 384) + texts, dim=-1) for spec in methods[0].needs}
    images = Encoded(rows), Encoded({spec: own.numpy() for spec, own in rows.items()})
    wanted, found = (method.branches(own)["view"] for method, own in zip(methods, images, strict=True))
    # rounding to the grid enlarges a difference in the last digit
    np.testing.assert_allclose(found, wanted.numpy(), atol=2e-4, rtol=1e-6)
    ranked_alike(wanted, found)
    maps = [method.where(own) for method, own in zip(methods, images, strict=True)]
    if maps[0] is not None:
        np.testing.assert_allclose(maps[1], maps[0].numpy(), atol=1e-5)
