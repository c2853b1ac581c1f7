"""Variations of images: named, seeded, resumable; made by whatever stands in for the diffusion model."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.images.views import CLIP_MEAN, CLIP_STD, Preprocess, render_views
from mltta.methods.variations import generate_variations


def photo(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8))


class FakePipeline:
    """Answers as the diffusion pipeline does, with noise of each generator's own."""

    def __init__(self) -> None:
        self.calls: list[tuple[torch.Tensor, int]] = []

    def __call__(self, image, *, guidance_scale, num_images_per_prompt, generator):
        assert guidance_scale == 3.0
        assert len(generator) == num_images_per_prompt
        self.calls.append((image, num_images_per_prompt))
        levels = [torch.randint(0, 256, (48, 48, 3), generator=g).to(torch.uint8).numpy() for g in generator]
        return SimpleNamespace(images=[Image.fromarray(one) for one in levels])


def files(folder) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_variations_are_kept_by_name_and_found_as_views(tmp_path):
    photo(7).save(tmp_path / "cat.png")
    pipeline, done = FakePipeline(), []
    made = generate_variations(
        [tmp_path / "cat.png", ("sub/2.jpg", photo(8))],
        tmp_path / "made",
        pipeline,
        count=3,
        progress=done.append,
    )
    assert (made, done) == (6, ["cat", "sub/2.jpg"])
    made = [f"{n}/00{j}.jpg" for n in ("cat", "sub/2.jpg") for j in range(3)]
    assert [*files(tmp_path / "made")] == [*made, "variations.json"]
    spec = ViewSpec(count=3, generated=str(tmp_path / "made"))
    views = render_views(photo(8), spec, Preprocess(size=32), name="sub/2.jpg")
    assert len({view.tobytes() for view in views}) == 3


def test_the_source_is_squashed_to_224_pixels_and_normalised(tmp_path):
    pipeline = FakePipeline()
    grey = Image.new("RGB", (300, 100), (255, 0, 128))
    grey.paste((0, 255, 0), (150, 0, 300, 100))
    generate_variations([("grey", grey)], tmp_path, pipeline, count=1)
    ((pixels, _),) = pipeline.calls
    assert pixels.shape == (1, 3, 224, 224)
    levels = pixels[0] * torch.tensor(CLIP_STD).view(3, 1, 1) + torch.tensor(CLIP_MEAN).view(3, 1, 1)
    left, right = torch.tensor([1.0, 0.0, 128 / 255]), torch.tensor([0.0, 1.0, 0.0])
    torch.testing.assert_close(levels[:, 50, :110], left[:, None].expand(-1, 110))  # both halves are there
    torch.testing.assert_close(levels[:, 200, 114:], right[:, None].expand(-1, 110))


def test_a_stopped_call_goes_on_and_ends_with_the_same_files(tmp_path):
    images = [("a", photo(1)), ("b", photo(2))]
    generate_variations(images, tmp_path / "whole", FakePipeline(), count=5)
    generate_variations(images[:1], tmp_path / "parts", FakePipeline(), count=2, batch_size=1)
    pipeline = FakePipeline()
    assert generate_variations(images, tmp_path / "parts", pipeline, count=5, batch_size=2) == 8
    assert [n for _, n in pipeline.calls] == [2, 1, 2, 2, 1]
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    assert generate_variations(images, tmp_path / "parts", None, count=5) == 0  # nothing to load a model for
    generate_variations(images, tmp_path / "other", FakePipeline(), count=5, seed=1)
    assert not set(files(tmp_path / "other").values()) & set(files(tmp_path / "whole").values())
    with pytest.raises(ConfigError, match=r'made with {"seed": 0, "guidance": 3.0}, not {"seed": 1'):
        generate_variations(images, tmp_path / "whole", FakePipeline(), count=5, seed=1)


def test_an_unreadable_image_is_passed_over_and_two_of_a_name_are_refused(tmp_path, caplog):
    (tmp_path / "bad.png").write_text("no image")
    images = [tmp_path / "bad.png", ("good", photo(1))]
    assert generate_variations(images, tmp_path / "made", FakePipeline(), count=1) == 1
    assert "bad.png" in caplog.text
    for pair in ([("a", photo(1)), ("a", photo(2))], [("a", photo(1)), ("../a", photo(2))], [("", photo(1))]):
        with pytest.raises(ConfigError, match="empty or taken"):
            generate_variations(pair, tmp_path / "again", FakePipeline(), count=1)


def test_without_diffusers_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ConfigError, match=r"pip install mltta\[diffusion\]"):
        generate_variations([("a", photo(1))], tmp_path)
