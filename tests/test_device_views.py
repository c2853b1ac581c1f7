"""The views made by matrix products are those that Pillow makes, up to rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mltta import views as pillow_views
from mltta.device_resample import Axis, resample
from mltta.device_views import DeviceViews
from mltta.errors import ConfigError, ImageError
from mltta.views import Preprocess, ViewSpec, render_views

PHOTOS = Path(__file__).parents[1] / "examples" / "photos"
SMALL = Preprocess(size=32)
SIZES = [(61, 40), (40, 61), (64, 64), (7, 5), (1, 9), (9, 1), (1, 1), (200, 37), (30, 90), (33, 300)]


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def photo(width: int, height: int, name: str = "cat") -> Image.Image:
    return Image.open(PHOTOS / f"{name}.jpg").convert("RGB").resize((width, height))


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image))


def render(
    images: list[Image.Image], spec: ViewSpec, preprocess: Preprocess = SMALL, **options
) -> torch.Tensor:
    device_views = DeviceViews(preprocess, "cpu", options.pop("dtype", torch.float32), **options)
    return device_views.render(list(map(tensor, images)), spec, 5, [str(image.size) for image in images])


def with_pillow(image: Image.Image, spec: ViewSpec, preprocess: Preprocess = SMALL) -> torch.Tensor:
    return render_views(image, spec, preprocess, seed=5, image_id=str(image.size))


def levels_apart(views: torch.Tensor, others: torch.Tensor, preprocess: Preprocess = SMALL) -> torch.Tensor:
    """How many of the 255 levels each pixel differs by."""
    return (views.float() - others.float()).abs() * torch.tensor(preprocess.std).view(3, 1, 1) * 255


def assert_nearly_equal(views: torch.Tensor, others: torch.Tensor, preprocess: Preprocess = SMALL) -> None:
    apart = levels_apart(views, others, preprocess)
    assert apart.max() < 2.01
    assert (apart > 1.01).float().mean() < 1e-4
    assert apart.mean() < 0.05  # ties, at which Pillow's own rounding of its weights decides


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("picture", [photo, noise])
def test_views_are_those_of_pillow(picture, size: tuple[int, int]) -> None:
    image, spec = picture(*size), ViewSpec(count=24)
    assert_nearly_equal(render([image], spec)[0], with_pillow(image, spec))


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [*SIZES, (31, 32), (500, 333), (35, 71)])
def test_view_0_follows_every_way_of_resizing(mode: str, interpolation: str, size: tuple[int, int]) -> None:
    preprocess = Preprocess(size=33, resize_mode=mode, interpolation=interpolation)
    image, spec = noise(*size), ViewSpec(count=1)
    assert_nearly_equal(
        render([image], spec, preprocess)[0], with_pillow(image, spec, preprocess), preprocess
    )


@pytest.mark.parametrize("size", [(90, 61), (61, 90), (200, 41), (40, 200)])
def test_crops_of_large_images_are_cut_from_the_same_working_copy(size: tuple[int, int]) -> None:
    spec = ViewSpec(count=24, working_size=24)
    assert_nearly_equal(render([photo(*size)], spec)[0], with_pillow(photo(*size), spec))
    full = with_pillow(photo(*size), ViewSpec(count=24, working_size=None))
    assert levels_apart(with_pillow(photo(*size), spec), full).mean() > 0.3  # else this test says nothing


@pytest.mark.parametrize("scale", [(0.001, 0.01), (0.9, 1.0)])
def test_small_crops_are_enlarged_and_large_ones_reduced_alike(scale: tuple[float, float]) -> None:
    spec = ViewSpec(count=24, scale=scale)
    assert_nearly_equal(render([photo(90, 80)], spec)[0], with_pillow(photo(90, 80), spec))


def test_a_flip_is_the_mirror_image() -> None:
    never, always = (render([photo(70, 50)], ViewSpec(count=12, flip=flip))[0] for flip in (0, 1))
    torch.testing.assert_close(always[1:], never[1:].flip(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(always[0], never[0], atol=1e-6, rtol=0)


def test_a_row_of_4000_pixels_is_resampled_as_finely_as_a_short_one() -> None:
    image, spec = noise(4000, 40), ViewSpec(count=6, ratio=(20, 30), scale=(0.2, 0.3))
    assert_nearly_equal(render([image], spec)[0], with_pillow(image, spec))


def test_a_very_long_image_is_rendered_without_the_large_detour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow_views, "_MOST_RESIZED", 0)
    for size in ((4, 900), (900, 4)):
        image = photo(6, 6).resize(size, Image.Resampling.BICUBIC)
        apart = levels_apart(render([image], ViewSpec(count=1))[0], with_pillow(image, ViewSpec(count=1)))
        assert apart.max() < 2.01
        assert apart.mean() < 0.5


@pytest.mark.parametrize(
    ("size", "new"),
    [
        ((40, 67), (14, 14)),
        ((40, 68), (14, 14)),
        ((30, 17), (40, 16)),
        ((30, 16), (40, 16)),
        ((3, 301), (9, 9)),
    ],
)
def test_passes_come_in_the_order_that_pillow_chooses(size: tuple[int, int], new: tuple[int, int]) -> None:
    image = noise(*size)
    box = np.array([[Axis(0, size[0], new[0]), Axis(0, size[1], new[1])]])
    pixels = tensor(image).permute(2, 0, 1)[None].float()
    levels, _ = resample([pixels], box, np.zeros(1, int), *new, "bilinear")
    expected = np.asarray(image.resize(new, Image.Resampling.BILINEAR))
    assert (levels[0].numpy() != expected).mean() < 0.02  # the other order differs at a fifth of the pixels


def test_the_company_of_an_image_does_not_change_its_views() -> None:
    spec = ViewSpec(count=12, working_size=50)
    images = [photo(60, 40), noise(61, 70), photo(40, 60, "officer"), noise(7, 5), photo(60, 40, "astronaut")]
    together = render(images, spec)
    for image, views in zip(images, together, strict=True):
        torch.testing.assert_close(render([image], spec)[0], views, atol=1e-6, rtol=0)


def test_less_memory_gives_the_same_views() -> None:
    spec, images = ViewSpec(count=12), [photo(60, 40), photo(60, 40, "officer"), noise(60, 40)]
    plenty = render(images, spec)
    for max_bytes in (2_000_000, 400_000):  # an image at a time, then a few views at a time
        torch.testing.assert_close(render(images, spec, max_bytes=max_bytes), plenty, atol=1e-6, rtol=0)


def test_an_image_too_long_for_the_memory_is_left_to_pillow() -> None:
    image, spec = noise(3000, 2), ViewSpec(count=4)
    assert torch.equal(render([image], spec, max_bytes=100_000)[0], with_pillow(image, spec))


@pytest.mark.parametrize("augmix", [False, True])
def test_16_views_are_the_first_16_of_64(augmix: bool) -> None:
    many = render([photo(60, 40)], ViewSpec(count=64, augmix=augmix))
    few = render([photo(60, 40)], ViewSpec(count=16, augmix=augmix))
    torch.testing.assert_close(many[:, :16], few, atol=1e-6, rtol=0)


def test_augmix_mixes_every_crop_as_on_the_cpu_and_leaves_view_0_clean() -> None:
    spec, images = (
        ViewSpec(count=24, augmix=True),
        [photo(60, 40), photo(75, 90, "officer"), photo(60, 40, "astronaut")],
    )
    for image, views in zip(images, render(images, spec), strict=True):
        apart = levels_apart(views, with_pillow(image, spec))
        assert apart[0].max() < 1.01
        assert apart.mean() < 0.05
        assert (apart > 1.01).float().mean() < 0.005


def test_half_precision_stays_within_two_levels() -> None:
    image, spec = photo(60, 40), ViewSpec(count=12)
    for dtype in (torch.float16, torch.bfloat16):
        views = render([image], spec, dtype=dtype)
        assert views.dtype == dtype
        expected = with_pillow(image, spec).to(dtype)
        assert levels_apart(views[0], expected).max() < 2.1
        assert levels_apart(views[0], expected).mean() < 0.2


def test_channels_last_changes_the_layout_and_no_value() -> None:
    images, spec = [photo(60, 40), noise(40, 60)], ViewSpec(count=4)
    last = render(images, spec, channels_last=True)
    assert torch.equal(last, render(images, spec))
    assert last.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_autocast_around_does_not_blur_the_levels() -> None:
    image, spec = photo(60, 40), ViewSpec(count=4)
    with torch.autocast("cpu", torch.bfloat16):
        views = render([image], spec)
    assert torch.equal(views, render([image], spec))


def test_no_images_have_no_views() -> None:
    assert render([], ViewSpec(count=4, augmix=True)).shape == (0, 4, 3, 32, 32)


def test_what_cannot_be_rendered_is_refused_with_a_reason() -> None:
    device_views, image = DeviceViews(SMALL, "cpu", torch.float32), torch.zeros(4, 5, 3, dtype=torch.uint8)
    with pytest.raises(ConfigError, match="generated"):
        device_views.render([image], ViewSpec(generated="folder"), 0, ["a"])
    with pytest.raises(ConfigError, match="2 ids for 1 images"):
        device_views.render([image], ViewSpec(), 0, ["a", "b"])
    for wrong in (image.float(), image.permute(2, 0, 1), image[:0]):
        with pytest.raises(ImageError, match="give RGB pixels"):
            device_views.render([wrong], ViewSpec(), 0, ["a"])
