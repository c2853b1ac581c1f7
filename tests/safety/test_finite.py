"""Numbers that are none, or beyond reason, are refused with the file named; never a score."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from mltta import Tagger
from mltta.captions.store import CaptionBase
from mltta.errors import CaptionError, ConfigError, ImageError, WeightsError
from mltta.methods import method_class
from mltta.model.learned_prompts import load_prompts
from mltta.model.load import load_backbone
from mltta.model.weights import load
from mltta.storage import checksums
from tests.safety.world import LABELS, VIT, backbone, captions, photo, state


def weights(folder, **changes):
    path = folder / "weights.safetensors"
    save_file(state() | changes, path)
    return path


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    proj = state()["visual.proj"]
    proj[1, 2] = value
    with pytest.raises(WeightsError, match=r"weights\.safetensors are damaged: visual\.proj"):
        load(None, weights(tmp_path, **{"visual.proj": proj}), quick_gelu=True)


@pytest.mark.parametrize("scale", [1000.0, math.log(1000), -50.0])
def test_a_logit_scale_beyond_reason_is_refused(tmp_path, scale):
    with pytest.raises(WeightsError, match=r"weights\.safetensors have an implausible logit scale"):
        load(None, weights(tmp_path, logit_scale=torch.tensor(scale)), quick_gelu=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38, 2000.0])
def test_prompts_beyond_reason_are_refused(tmp_path, value):
    path = tmp_path / "ctx.safetensors"
    save_file({"ctx": torch.full((4, 32), value)}, path)
    with pytest.raises(WeightsError, match=r"ctx\.safetensors"):
        load_prompts(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 100.0])
def test_embeddings_that_are_none_are_refused(tmp_path, value):
    base = captions()
    base.save(tmp_path)
    broken = base.embeddings.copy()
    broken[1] = value
    save_file({"embeddings": torch.from_numpy(broken)}, tmp_path / "embeddings.safetensors")
    said = json.loads((tmp_path / "config.json").read_text())
    said["embeddings_crc32"] = checksums.of_file(tmp_path / "embeddings.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(checksums.sealed(said)))
    with pytest.raises(CaptionError):
        CaptionBase.load(tmp_path)


def test_features_that_are_not_finite_are_an_error_of_that_image_alone(monkeypatch):
    tagger = Tagger(backbone(), LABELS, "clip", captions=captions())
    whole = tagger(photo(0))
    plain, calls = backbone().image_tower.one_pass, []

    def broken(views):
        calls.append(1)
        return plain(views) * (math.nan if len(calls) == 2 else 1)

    monkeypatch.setattr(backbone().image_tower, "one_pass", broken)
    first, second, third = [next(tagger.stream([photo(0)])) for _ in range(3)]
    assert first == whole == third
    assert second.error is not None
    assert "not finite" in second.error
    assert list(second) == []
    calls.pop()
    calls.pop()
    with pytest.raises(ImageError, match="not finite"):
        tagger(photo(0))


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("ml-tta", "views", 999_999_999_999),
        ("tpt", "steps", 10**9),
        ("dmn", "memory", 10**9),
        ("tpt", "lr", math.nan),
        ("tpt", "lr", math.inf),
        pytest.param("tpt", "views", 10**5000, id="digits"),
    ],
)
def test_settings_beyond_reason_are_refused_at_once(method, name, value):
    with pytest.raises(ConfigError, match=f"{name} = "):
        method_class(method).Config.make(**{name: value})


def test_the_tiny_model_itself_passes():
    assert load_backbone(None, VIT, quick_gelu=True).logit_scale > 1
