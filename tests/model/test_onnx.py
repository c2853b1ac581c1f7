"""ONNX Runtime gives the features and scores that PyTorch gives; the tokenizer and templates are open_clip's own."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from open_clip.tokenizer import SimpleTokenizer, default_bpe
from safetensors.torch import save_file
from threadpoolctl import threadpool_info

import mltta
from mltta.errors import ConfigError, WeightsError
from mltta.images.decode import load_image
from mltta.images.specs import LocalSpec
from mltta.images.views import render_local
from mltta.model import vocabulary
from mltta.model.backbone import Backbone
from mltta.model.model_folder import SUMS, find_weights
from mltta.model.onnx_backbone import ABOUT, IMAGE, INT8, TEXT, OnnxBackbone
from mltta.model.onnx_export import export_model
from mltta.model.prompts import TEMPLATE_SETS, list_templates
from mltta.model.tokenizer import BytePairTokenizer
from mltta.storage.folders import MINI

PHOTOS = sorted((Path(__file__).parents[2] / "examples" / "photos").glob("*.jpg"))


@lru_cache(maxsize=1)
def both() -> tuple[Backbone, Backbone]:
    return tuple(mltta.load_backbone("mini", device="cpu", engine=engine) for engine in ("torch", "onnx"))


def test_what_scores_and_caches_depend_on_is_the_same_but_for_the_arithmetic():
    one, other = both()
    for name in ("name", "logit_scale", "text_fingerprint", "image_fingerprint", "context_length"):
        assert getattr(one, name) == getattr(other, name), name
    assert asdict(one.preprocess) == asdict(other.preprocess)
    assert (one.arithmetic, other.arithmetic) == ("float32", "float32, ONNX Runtime")


@pytest.mark.parametrize(
    ("method", "labels"), [("auto", "everyday"), ("auto", "voc"), ("clip", "coco"), ("dualprompt", "voc")]
)
def test_the_scores_of_the_sample_photos_are_the_same_to_1e_4(method, labels):
    taggers = [mltta.Tagger(backbone, labels, method) for backbone in both()]
    for wanted, found in zip(*(tagger(PHOTOS[:6]) for tagger in taggers), strict=True):
        scores = {item["label"]: item["score"] for item in found}
        assert max(abs(scores[item["label"]] - item["score"]) for item in wanted) < 1e-4
        assert found.present == wanted.present


def test_texts_of_any_length_and_inputs_of_any_size_have_the_same_features():
    one, other = both()
    texts = ["a dog", "x", " ".join(["a very long caption of many words"] * 9), "two people on a bench"]
    np.testing.assert_allclose(other.encode_texts(texts), one.encode_texts(texts), atol=1e-5)
    for side in (224, 160, 512):
        pixels = np.random.default_rng(side).standard_normal((3, 3, side, side)).astype(np.float32)
        with torch.no_grad():
            np.testing.assert_allclose(other.local(pixels), one.local(torch.from_numpy(pixels)), atol=1e-4)
        np.testing.assert_allclose(other.encode_images(pixels), one.encode_images(pixels), atol=1e-5)


def test_the_shipped_graphs_are_what_the_export_writes(tmp_path):
    export_model(mltta.load_backbone("mini", device="cpu", accelerate=False), tmp_path, MINI)
    one, other = OnnxBackbone(tmp_path, "again"), both()[1]
    pixels = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    np.testing.assert_array_equal(one.encode_images(pixels), other.encode_images(pixels))
    np.testing.assert_array_equal(one.encode_texts(["a dog"]), other.encode_texts(["a dog"]))
    assert json.loads((tmp_path / ABOUT).read_bytes()) == json.loads((MINI / ABOUT).read_bytes())


def test_weights_are_on_disk_once(tmp_path):
    graphs = sum((MINI / name).stat().st_size for name in (IMAGE, TEXT, INT8))
    assert graphs < 0.05 * find_weights(MINI).stat().st_size
    assert sum(file.stat().st_size for file in MINI.rglob("*") if file.is_file()) < 100e6


def features(backbone: Backbone, side: int) -> np.ndarray:
    pixels = render_local(load_image(PHOTOS[0]), LocalSpec(side, 64, 64), backbone.preprocess)
    return np.asarray(backbone.encode_images(pixels))[0]


def test_int8_is_calibrated_on_export_and_close_to_float32(tmp_path):
    whole = both()[1]
    export_model(mltta.load_backbone("mini", device="cpu", accelerate=False), tmp_path, MINI, PHOTOS[:2])
    for folder in (str(tmp_path), "mini"):
        small = mltta.load_backbone(folder, image_dtype="int8")
        assert small.arithmetic == "int8, ONNX Runtime"
        for side in (224, 320):
            near = features(small, side) @ features(whole, side)
            assert 0.98 < near < 0.99999
    export_model(mltta.load_backbone("mini", device="cpu", accelerate=False), tmp_path, MINI)
    with pytest.raises(WeightsError, match="has no int8 graph: run `mltta models export` with --calibrate"):
        mltta.load_backbone(str(tmp_path), image_dtype="int8")


def test_int8_finds_the_labels_of_the_sample_photos():
    sets = []
    for backbone in (mltta.load_backbone("mini", image_dtype="int8"), both()[1]):
        found = mltta.Tagger(backbone, "coco")(PHOTOS)
        sets.append({(i, label) for i, tags in enumerate(found) for label in tags.present})
    assert len(sets[0] & sets[1]) > 0.85 * len(sets[0] | sets[1])


def test_int8_without_onnx_runtime_is_refused():
    with pytest.raises(ConfigError, match="int8 needs ONNX Runtime, but the model RN50"):
        mltta.load_backbone("RN50:openai", image_dtype="int8")


def test_a_vit_is_exported_with_its_own_size_and_read_through_tiles(tmp_path):
    config = {
        "embed_dim": 32,
        "vision_cfg": {"layers": 2, "width": 64, "patch_size": 16, "image_size": 112},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
        "quick_gelu": True,
    }
    torch.manual_seed(0)
    folder, out = tmp_path / "tiny", tmp_path / "exported"
    folder.mkdir()
    save_file(open_clip.CLIP(**config).state_dict(), folder / "open_clip_model.safetensors")
    shutil.copyfile(default_bpe(), folder / "bpe.txt.gz")
    said = {"model_cfg": config, "preprocess_cfg": {"size": 112, "mean": [0.5] * 3, "std": [0.5] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(said))
    one = mltta.load_backbone(str(folder), device="cpu", accelerate=False)
    export_model(one, out, folder)
    other = mltta.load_backbone(str(out), engine="onnx")
    assert (other.fixed, other.local) == (112, None)
    pixels = np.random.default_rng(0).standard_normal((3, 3, 112, 112)).astype(np.float32)
    np.testing.assert_allclose(other.encode_images(pixels), one.encode_images(pixels), atol=1e-5)
    np.testing.assert_allclose(other.encode_texts(["a dog"]), one.encode_texts(["a dog"]), atol=1e-5)
    assert len(mltta.Tagger(other, ["dog", "cat"])(PHOTOS[0])) == 2
    again = mltta.load_backbone(str(out), device="cpu", engine="torch")  # the folder serves both engines
    assert again.text_fingerprint == other.text_fingerprint


def test_a_damaged_graph_is_refused(tmp_path):
    for file in MINI.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / TEXT).write_bytes(b"\x08\x08" + (MINI / TEXT).read_bytes()[2:-1])
    with pytest.raises(WeightsError, match=r"text\.onnx is damaged"):
        mltta.load_backbone(str(tmp_path), engine="onnx")
    (tmp_path / SUMS).unlink()
    with pytest.raises(WeightsError, match=r"text\.onnx cannot be opened"):
        mltta.load_backbone(str(tmp_path), engine="onnx").encode_texts(["a dog"])


@pytest.mark.parametrize("engine", ["auto", "onnx"])
def test_a_tagger_takes_onnx_runtime_where_the_method_needs_no_gradient(engine):
    assert isinstance(mltta.Tagger(labels=["dog"], engine=engine).backbone, OnnxBackbone)


def test_whatever_needs_pytorch_gets_it_or_is_refused():
    assert not isinstance(mltta.load_backbone("mini", device="cpu"), OnnxBackbone)
    assert not isinstance(mltta.Tagger(labels=["dog"], method="ml-tta").backbone, OnnxBackbone)
    with pytest.raises(ConfigError, match="ml-tta does not run on ONNX Runtime: --engine torch"):
        mltta.Tagger(labels=["dog"], method="ml-tta", engine="onnx")
    for how in (
        {"model": "RN50:openai"},
        {"model": "mini", "device": "cuda"},
        {"model": "mini", "prompts": "a.pt"},
    ):
        with pytest.raises(ConfigError, match="does not run on ONNX Runtime: --engine torch"):
            mltta.load_backbone(engine="onnx", **how)
    with pytest.raises(ConfigError, match="choose from auto, onnx, torch"):
        mltta.load_backbone("mini", engine="tf")


def test_a_tagger_can_be_sent_to_another_process():
    tagger = mltta.Tagger(both()[1], ["dog", "bee", "cup"])
    assert pickle.loads(pickle.dumps(tagger))(PHOTOS[3]) == tagger(PHOTOS[3])


def test_a_score_depends_on_neither_batch_nor_threads(monkeypatch):
    tagger = mltta.Tagger(both()[1], "voc")
    alone = [tagger(photo) for photo in PHOTOS[:3]]
    assert tagger(PHOTOS[:3]) == alone
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert pickle.loads(pickle.dumps(tagger))(PHOTOS[:3]) == alone


@lru_cache(maxsize=1)
def tokenizers() -> tuple[BytePairTokenizer, SimpleTokenizer]:
    table = MINI / "bpe.txt.gz"
    return BytePairTokenizer(table, 40), SimpleTokenizer(
        bpe_path=str(table), context_length=40, clean="lower"
    )


def test_every_known_word_and_caption_has_open_clips_tokens():
    texts = [*vocabulary.words(), *(MINI / "captions" / "texts.txt").read_text(encoding="utf-8").splitlines()]
    own, wanted = tokenizers()
    assert len(texts) > 15_000
    np.testing.assert_array_equal(own(texts), wanted(texts).numpy())


@given(st.text(max_size=80) | st.text("aeit's&;#<>_|0129 .\t\nÄéßﬁ“”’中🌉", max_size=60))
def test_any_text_has_open_clips_tokens(text):
    own, wanted = tokenizers()
    assert own.encode(text) == wanted.encode(text)
    np.testing.assert_array_equal(own([text], 12), wanted([text], 12).numpy())


@pytest.mark.parametrize("name", TEMPLATE_SETS)
def test_sets_of_templates_are_open_clips(name):
    wanted = getattr(open_clip, f"{name.upper()}_IMAGENET_TEMPLATES")
    assert list_templates(name) == tuple(fill("{}") for fill in wanted)


def test_matrix_products_of_numpy_use_the_thread_of_their_photo():
    engine = both()[1].engine
    blas = [one for one in threadpool_info() if one["user_api"] == "blas"]
    assert blas, "NumPy was built without a known BLAS"
    with engine.scoring():
        during = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    assert set(during) == {1}
    assert [one for one in threadpool_info() if one["user_api"] == "blas"] == blas
