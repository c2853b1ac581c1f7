"""The views made on a device are those that Pillow makes, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mltta.accelerate.boxes import Boxes
from mltta.accelerate.cuda import CudaAcceleration, kernels_work
from mltta.accelerate.views import DeviceViews
from mltta.errors import ConfigError, ImageError
from mltta.images import views as pillow_views
from mltta.images.geometry import Axis
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess, render_views
from tests.accelerate import plain_resample

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
SMALL = Preprocess(size=32)
SIZES = [(61, 40), (40, 61), (64, 64), (7, 5), (1, 9), (9, 1), (1, 1), (200, 37), (30, 90), (33, 300)]


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def photo(width: int, height: int, name: str = "cat") -> Image.Image:
    return Image.open(PHOTOS / f"{name}.jpg").convert("RGB").resize((width, height))


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image))


class PlainViews(DeviceViews):
    """Views as on a GPU, their kernels replaced by what they do, written plainly."""

    def _launch(self, source, boxes, out, table, **how) -> None:
        for part in boxes.chunks(self.max_bytes):
            plain_resample.launch(source, part, out, table, **how)


def render(
    images: list[Image.Image], spec: ViewSpec, preprocess: Preprocess = SMALL, **options
) -> torch.Tensor:
    device_views = PlainViews(preprocess, "cpu", options.pop("dtype", torch.float32), **options)
    return device_views.render(list(map(tensor, images)), spec, 5, [str(image.size) for image in images])


def with_pillow(image: Image.Image, spec: ViewSpec, preprocess: Preprocess = SMALL) -> torch.Tensor:
    return torch.from_numpy(render_views(image, spec, preprocess, seed=5, image_id=str(image.size)))


def levels_apart(views: torch.Tensor, others: torch.Tensor, preprocess: Preprocess = SMALL) -> torch.Tensor:
    """How many of the 255 levels each pixel differs by."""
    return (views.float() - others.float()).abs() * torch.tensor(preprocess.std).view(3, 1, 1) * 255


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("picture", [photo, noise])
def test_views_are_those_of_pillow(picture, size: tuple[int, int]) -> None:
    image, spec = picture(*size), ViewSpec(count=24)
    assert torch.equal(render([image], spec)[0], with_pillow(image, spec))


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [*SIZES, (31, 32), (500, 333), (35, 71)])
def test_view_0_follows_every_way_of_resizing(mode: str, interpolation: str, size: tuple[int, int]) -> None:
    preprocess = Preprocess(size=33, resize_mode=mode, interpolation=interpolation)
    image, spec = noise(*size), ViewSpec(count=1)
    assert torch.equal(render([image], spec, preprocess)[0], with_pillow(image, spec, preprocess))


@pytest.mark.parametrize("size", [(90, 61), (61, 90), (200, 41), (40, 200)])
def test_crops_of_large_images_are_cut_from_the_same_working_copy(size: tuple[int, int]) -> None:
    spec = ViewSpec(count=24, working_size=24)
    assert torch.equal(render([photo(*size)], spec)[0], with_pillow(photo(*size), spec))
    full = with_pillow(photo(*size), ViewSpec(count=24, working_size=None))
    assert levels_apart(with_pillow(photo(*size), spec), full).mean() > 0.3  # else this test says nothing


@pytest.mark.parametrize("scale", [(0.001, 0.01), (0.9, 1.0)])
def test_small_crops_are_enlarged_and_large_ones_reduced_alike(scale: tuple[float, float]) -> None:
    spec = ViewSpec(count=24, scale=scale)
    assert torch.equal(render([photo(90, 80)], spec)[0], with_pillow(photo(90, 80), spec))


def test_a_flip_is_the_mirror_image() -> None:
    never, always = (render([photo(70, 50)], ViewSpec(count=12, flip=flip))[0] for flip in (0, 1))
    assert torch.equal(always[1:], never[1:].flip(3))
    assert torch.equal(always[0], never[0])


def test_a_row_of_4000_pixels_is_resampled_as_finely_as_a_short_one() -> None:
    image, spec = noise(4000, 40), ViewSpec(count=6, ratio=(20, 30), scale=(0.2, 0.3))
    assert torch.equal(render([image], spec)[0], with_pillow(image, spec))


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
    levels = resized(image, new)
    assert np.array_equal(levels, np.asarray(image.resize(new, Image.Resampling.BILINEAR)))


def resized(image: Image.Image, new: tuple[int, int]) -> np.ndarray:
    width, height = image.size
    zero = np.zeros(1, np.int64)
    axes = np.array([[Axis(0, width, new[0]), Axis(0, height, new[1])]])
    boxes = Boxes(zero, zero + width, axes, np.array([new]), zero, zero + 3 * new[0])
    out = torch.empty(new[1], new[0], 3, dtype=torch.uint8)
    levels = torch.arange(256, dtype=torch.uint8).repeat(3, 1)
    plain_resample.launch(tensor(image).reshape(-1), boxes, out, levels, cubic=False)
    return out.numpy()


def test_the_company_of_an_image_does_not_change_its_views() -> None:
    spec = ViewSpec(count=12, working_size=50)
    images = [photo(60, 40), noise(61, 70), photo(40, 60, "officer"), noise(7, 5), photo(60, 40, "astronaut")]
    together = render(images, spec)
    for image, views in zip(images, together, strict=True):
        assert torch.equal(render([image], spec)[0], views)


def test_less_memory_gives_the_same_views() -> None:
    spec, images = ViewSpec(count=12), [photo(60, 40), photo(60, 40, "officer"), noise(60, 40)]
    plenty = render(images, spec)
    for max_bytes in (2_000_000, 400_000):  # an image at a time, then a few views at a time
        assert torch.equal(render(images, spec, max_bytes=max_bytes), plenty)


@pytest.mark.parametrize("augmix", [False, True])
def test_16_views_are_the_first_16_of_64(augmix: bool) -> None:
    many = render([photo(60, 40)], ViewSpec(count=64, augmix=augmix))
    few = render([photo(60, 40)], ViewSpec(count=16, augmix=augmix))
    assert torch.equal(many[:, :16], few)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_what_float32_rounds_to(dtype: torch.dtype) -> None:
    image, spec = photo(60, 40), ViewSpec(count=12)
    views = render([image], spec, dtype=dtype)[0]
    assert views.dtype == dtype
    assert torch.equal(views, with_pillow(image, spec).to(dtype))


def test_channels_last_changes_the_layout_and_no_value() -> None:
    images, spec = [photo(60, 40), noise(40, 60)], ViewSpec(count=4)
    last = render(images, spec, channels_last=True)
    assert torch.equal(last, render(images, spec))
    assert last.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_no_images_have_no_views() -> None:
    assert render([], ViewSpec(count=4, augmix=True)).shape == (0, 4, 3, 32, 32)


def test_what_cannot_be_rendered_is_refused_with_a_reason() -> None:
    device_views, image = PlainViews(SMALL, "cpu", torch.float32), torch.zeros(4, 5, 3, dtype=torch.uint8)
    with pytest.raises(ConfigError, match="generated"):
        device_views.render([image], ViewSpec(generated="folder"), 0, ["a"])
    with pytest.raises(ConfigError, match="2 ids for 1 images"):
        device_views.render([image], ViewSpec(), 0, ["a", "b"])
    for wrong in (image.float(), image.permute(2, 0, 1), image[:0]):
        with pytest.raises(ImageError, match="expected RGB pixels"):
            device_views.render([wrong], ViewSpec(), 0, ["a"])


KERNELS = """
import numpy as np, torch
from PIL import Image
from mltta.accelerate.cuda import kernels_work
from mltta.accelerate.views import DeviceViews
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess, render_views

assert kernels_work(torch.device("cpu"))
rng = np.random.default_rng(0)
for last, mode, interpolation in ((True, "shortest", "bicubic"), (False, "longest", "bilinear")):
    preprocess = Preprocess(size=24, resize_mode=mode, interpolation=interpolation)
    spec = ViewSpec(count=3, working_size=30)
    images = [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in ((61, 40), (9, 90), (5, 7))]
    made = DeviceViews(preprocess, "cpu", channels_last=last).render(
        [torch.from_numpy(np.array(image)) for image in images], spec, 5, ["a", "b", "c"]
    )
    for image, views, name in zip(images, made, "abc"):
        wanted = torch.from_numpy(render_views(image, spec, preprocess, seed=5, image_id=name))
        assert torch.equal(views, wanted), (image.size, mode)
print("equal")
"""


def test_where_the_kernels_do_not_work_views_are_made_on_the_cpu(caplog, monkeypatch) -> None:
    """Without a compiler, torch's own operations would make them on the GPU more slowly than a CPU does."""

    def fails(*args, **options) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(DeviceViews, "_launch", fails)
    kernels_work.cache_clear()
    acceleration = CudaAcceleration({"views"})
    assert acceleration.renderer(SMALL, torch.device("cpu"), torch.float32) is None
    kernels_work.cache_clear()
    assert "rendering views on the CPU, because Triton does not work here: RuntimeError" in caplog.text


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch on Linux only")
def test_the_kernels_of_a_gpu_give_the_same_bits() -> None:
    """Run by Triton's interpreter, which needs no GPU and is chosen before Triton is imported."""
    done = subprocess.run(
        [sys.executable, "-c", KERNELS],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch on Linux only")
@pytest.mark.parametrize("cubic", [False, True])
def test_the_kernels_compile_for_a_gpu_that_is_not_here(cubic: bool) -> None:
    """The interpreter forgives what the compiler does not."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from mltta.accelerate import kernels

    numbers = {"lines": "*i64", "lows": "*i32", "weights": "*i32", "side": "i32", "taps": "i32"}
    pixels = {"source": "*u8", "between": "*u8", "table": "*bf16", "out": "*bf16"}
    for kernel, more in (
        (kernels._weigh, {"TAPS": 7}),
        (kernels._first_pass, {}),
        (kernels._second_pass, {"LAST": True}),
        (kernels._second_pass, {"LAST": False}),
    ):
        names, fixed = kernel.arg_names, {"CUBIC": cubic, **more}
        kinds = {name: "constexpr" if name in fixed else {**numbers, **pixels}[name] for name in names}
        source = ASTSource(kernel, kinds, {(names.index(name),): value for name, value in fixed.items()})
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        assert made.asm["cubin"]
