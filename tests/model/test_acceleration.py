"""Everything works without the room `accelerate`, and gives the same numbers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import mltta
from mltta import Tagger, load_backbone
from mltta.accelerate import TRICKS
from mltta.accelerate.cpu import CpuAcceleration
from mltta.accelerate.cuda import CudaAcceleration
from mltta.accelerate.labels import PackedLabelEncoder
from mltta.accelerate.search import FaissSearch
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.tpt import TPT, TPTConfig
from mltta.model.acceleration import VARIABLE, Acceleration, choose
from mltta.model.encoded import Encoded
from mltta.model.label_encoder import LabelEncoder
from mltta.model.search import Search
from tests import golden_data as golden
from tests.methods.test_ml_tta import CASES as ML_TTA
from tests.methods.test_ml_tta import released
from tests.methods.test_tpt import CASES as TPT_CASES
from tests.test_tagger import LABELS, photo

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_the_core_never_imports_the_room():
    top = Path(mltta.__file__).parent
    files = [file for file in top.rglob("*.py") if file.relative_to(top).parts[0] != "accelerate"]
    assert len(files) > 100
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("mltta.accelerate") for name in names), file


def test_all_tricks_of_a_device_are_on_unless_somebody_says_otherwise(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    for said in (None, True, "all"):
        assert isinstance(choose(CPU, said), CpuAcceleration)
        assert isinstance(choose(CUDA, said), CudaAcceleration)
        assert set(choose(CPU, said).tricks) == set(TRICKS)
    for said in (False, "none"):
        assert type(choose(CUDA, said)) is Acceleration
        assert not choose(CUDA, said).tricks
    monkeypatch.setenv(VARIABLE, "none")
    assert type(choose(CPU)) is Acceleration
    assert isinstance(choose(CPU, True), CpuAcceleration), "an argument says more than the environment"
    monkeypatch.setenv(VARIABLE, "search, shared-prefix")
    assert choose(CPU).tricks == {"search", "shared-prefix"}


def test_a_trick_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(
        ConfigError, match=r"unknown optimization magic: use all, none, or some of shared-prefix, "
    ):
        choose(CPU, "search,magic")


@pytest.mark.parametrize(
    ("said", "encoder", "search"),
    [
        (None, PackedLabelEncoder, FaissSearch),
        (False, LabelEncoder, Search),
        ("search", LabelEncoder, FaissSearch),
        ("shared-prefix", PackedLabelEncoder, Search),
    ],
)
def test_each_trick_can_be_left_out(said, encoder, search):
    backbone = load_backbone(
        None, golden.GOLDEN / "checkpoints/vit.safetensors", quick_gelu=True, device="cpu", accelerate=said
    )
    tagger = Tagger(backbone, LABELS, "tpt", views=4)
    assert type(tagger.method.text) is encoder
    assert type(tagger.session.question.heard._search) is search


@pytest.mark.parametrize("arch", ["vit", "rn"])
def test_images_and_texts_are_encoded_alike(arch):
    fast, plain = golden.backbone(arch), golden.backbone(arch, accelerate=False)
    pixels = golden.inputs(f"views_{arch}")["views"]
    torch.testing.assert_close(plain.encode_images(pixels), fast.encode_images(pixels), atol=1e-5, rtol=0)
    texts = ["a dog", "two cats on a sofa near a window with a long view over the town", "x"]
    torch.testing.assert_close(plain.encode_texts(texts), fast.encode_texts(texts), atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", ML_TTA)
def test_ml_tta_without_acceleration_equals_the_released_code_and_the_accelerated(case):
    (plain, views), (fast, same) = released(case, False), released(case)
    assert type(plain.text) is LabelEncoder
    assert type(fast.text) is PackedLabelEncoder
    torch.testing.assert_close(views, same, atol=1e-5, rtol=0)
    torch.testing.assert_close(plain.text.features, fast.text.features, atol=1e-5, rtol=0)
    want = golden.tensors(case)
    ours, theirs = (method.branches(Encoded({ViewSpec(count=64): views})) for method in (plain, fast))
    for branch in ("view", "caption"):
        recorded = want[f"bind1/marginal/final_logits_{branch}"]
        torch.testing.assert_close(ours[branch], recorded, atol=2e-4, rtol=0)
        torch.testing.assert_close(ours[branch], theirs[branch], atol=2e-4, rtol=0)


@pytest.mark.parametrize("case", TPT_CASES)
@pytest.mark.parametrize(("steps", "tolerance"), [(1, 2e-4), (2, 1e-3)])
def test_tpt_without_acceleration_equals_the_released_code_and_the_accelerated(case, steps, tolerance):
    arch, _, temperature = case.removeprefix("tpt/").split("_")
    found = []
    for accelerate in (False, None):
        backbone = golden.backbone(arch, temperature, accelerate)
        problem = Problem(backbone.encode_labels(golden.class_names(case)), backbone.logit_scale)
        views = backbone.encode_images(golden.inputs(f"views_{arch}")["views"])[None]
        found.append(TPT(problem, TPTConfig(steps=steps))(Encoded({ViewSpec(count=64): views})))
    torch.testing.assert_close(
        found[0], golden.tensors(case)[f"steps{steps}/final_logits"], atol=tolerance, rtol=0
    )
    torch.testing.assert_close(found[0], found[1], atol=tolerance, rtol=0)


@pytest.mark.parametrize("method", ["clip", "tpt", "ml-tta", "tda"])
def test_a_tagger_without_acceleration_gives_the_same_tags(method):
    options = {} if method in ("clip", "tda") else {"views": 8}
    fast, plain = (
        Tagger(golden.backbone("vit", accelerate=said), LABELS, method, **options) for said in (None, False)
    )
    photos = [photo(i) for i in range(10)]
    for one, other in zip(fast(photos), plain(photos), strict=True):
        assert one.present == other.present
        scores = [{item["label"]: item["score"] for item in tags} for tags in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)
