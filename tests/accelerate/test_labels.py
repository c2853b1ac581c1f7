"""Labels whose context runs through the tower once, against open_clip's own encode_text and the plain way."""

from __future__ import annotations

import pytest
import torch

from benchmarks.text_tower import compare
from mltta import LabelSet
from mltta.accelerate import labels as room
from mltta.accelerate.cuda_labels import CudaLabelEncoder
from mltta.accelerate.labels import PackedLabelEncoder
from mltta.model.label_encoder import LabelEncoder
from tests import golden_data as golden
from tests.model.test_text_tower import LABELS, check_against_full_length


def made(kind: type[LabelEncoder], labels: list[str]) -> LabelEncoder:
    """An encoder of the tiny tower, whatever this machine would choose."""
    backbone, chosen = golden.backbone("vit"), LabelSet.of(labels)
    return kind(backbone.tower, backbone._layout(chosen, "a photo of a {}."), None)


@pytest.mark.parametrize("labels", ["voc", pytest.param("coco", marks=pytest.mark.soak)])
def test_the_text_tower_of_a_vit_b_16_agrees_to_one_in_a_hundred_thousand(labels):
    result = compare("ViT-B/16", labels, repeat=1, device="cpu")
    assert result["feature error"] < 1e-5
    assert result["gradient error"] < 1e-5


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("budget", [None, 64], ids=["kept graph", "in pieces"])
@pytest.mark.parametrize("dense", [0, 10_000], ids=["attention in groups", "attention under a mask"])
@pytest.mark.parametrize("kind", [PackedLabelEncoder, CudaLabelEncoder])
def test_features_and_gradients_equal_full_length_encoding(labels, budget, dense, kind, monkeypatch):
    monkeypatch.setattr(room, "DENSE_TOKENS", dense)
    if budget is not None:  # a small memory budget cuts the labels into chunks
        monkeypatch.setattr(room, "GRAPH_BYTES", budget * 2 * 20 * 64 * 4)
    encoder = made(kind, LABELS[labels])
    assert all((chunk.sees is None) is (dense == 0) for chunk in encoder._chunks)
    if labels == "200 labels":
        assert (len(encoder._chunks) > 1) is (budget is not None or kind is CudaLabelEncoder)
    check_against_full_length(golden.backbone("vit"), encoder)


@pytest.mark.parametrize("labels", LABELS)
def test_the_packed_and_the_plain_encoder_agree(labels):
    packed, plain = (made(kind, LABELS[labels]) for kind in (PackedLabelEncoder, LabelEncoder))
    torch.testing.assert_close(packed.features, plain.features, atol=1e-6, rtol=0)
    weight = torch.randn(3, *plain.features.shape, generator=torch.Generator().manual_seed(1))
    theirs = plain.initial()[1](weight)
    assert (packed.initial()[1](weight) - theirs).norm() < 1e-5 * theirs.norm()


@pytest.mark.parametrize(
    "labels", [["dog"], ["dog", "traffic light", "a label of quite a few more words", "cat"]]
)
def test_gradients_through_the_kept_jacobian_equal_a_backward_pass(labels):
    encoder = made(CudaLabelEncoder, labels)
    features, pull_back = encoder.initial()
    weight = torch.randn(5, *features.shape[1:], generator=torch.Generator().manual_seed(1))
    plain = pull_back(weight)
    assert encoder._jacobian is None, "on a CPU it never pays"
    encoder.jacobian = True
    kept = encoder.initial()[1](weight)
    assert not torch.equal(kept, plain)  # it is another way
    assert (kept - plain).norm() < 1e-5 * plain.norm()
