"""Large photos are worked on at a reduced scale, by their size alone; all others keep every pixel, name and view."""

from __future__ import annotations

import hashlib
import io
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from mltta import Execution, Tagger
from mltta.images.decode import image_id, load_image
from mltta.images.geometry import LEAST_SIDE, scale_of
from mltta.images.specs import LocalSpec, ViewSpec
from mltta.images.views import Preprocess, render_local, render_views
from tests import golden_data as golden

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
LABELS = ["dog", "cat", "sofa"]


def pattern(wide: int, tall: int) -> Image.Image:
    """Numbers that any machine makes alike."""
    y, x = np.mgrid[:tall, :wide]
    return Image.fromarray(
        np.stack([(x * 7 + y * 3) % 256, (x * y // 97) % 256, (x + 2 * y) % 256], -1).astype(np.uint8)
    )


def scene(wide: int, tall: int, seed: int = 0) -> Image.Image:
    """A smooth picture, as photographs mostly are."""
    coarse = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((wide, tall), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **options)
    return held.getvalue()


def digest(views: NDArray[np.float32]) -> str:
    return hashlib.blake2b(views.tobytes(), digest_size=8).hexdigest()


@pytest.mark.parametrize("short", [1, 749, 750, 1499, 1500, 2998, 2999, 3000, 5996, 5997, 10_900])
def test_a_short_side_stays_above_the_least_and_is_never_reduced_twice(short):
    scale = scale_of((short, 11_000))
    left = -(-short // scale)
    assert scale == scale_of((11_000, short))
    assert (scale > 1) == (short >= 2 * LEAST_SIDE)
    assert left >= min(short, LEAST_SIDE)
    assert scale_of((left, 11_000)) == 1


# Made by the version before large images were reduced: name, crops, local input.
BEFORE = {
    (640, 480): ("ea1a41c1f083ad1ff6bf3164240143fd", "18081dbcb8077a01", "d757811d9c1427d3"),
    (1499, 2900): ("a9886bf62e6acbb92c0bfecf6ab6ddc5", "3eac78cc0b46c96b", "5a2b5a4b1ceddfdc"),
}


@pytest.mark.parametrize("size", BEFORE)
def test_images_below_the_limit_keep_their_name_and_views_to_the_bit(size):
    image = load_image(encode(pattern(*size), "PNG", compress_level=1), working=True)
    views = render_views(image, ViewSpec(count=3), Preprocess(size=64))
    local = render_local(image, LocalSpec(size=96, window=32), Preprocess(size=64))
    assert (image_id(image), digest(views), digest(local)) == BEFORE[size]


@pytest.mark.parametrize(
    ("name", "before"),
    [("cat", "8f4840162f796730b4921ae19b90b276"), ("kitchen", "69f207dd9073c7f3009de22bb7ea8936")],
)
def test_small_photos_keep_their_name(name, before):
    assert image_id(load_image(PHOTOS / f"{name}.jpg", working=True)) == before


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
def test_a_large_jpeg_is_decoded_at_half_scale_and_shows_the_same(options):
    data = encode(scene(2800, 2100), "JPEG", quality=92, **options)
    whole, half = load_image(data), load_image(data, working=True)
    assert (whole.size, half.size) == ((2800, 2100), (1400, 1050))
    apart = np.abs(np.asarray(whole.reduce(2), np.int16) - np.asarray(half, np.int16))
    assert apart.max() <= 6
    assert apart.mean() < 0.6


def test_a_large_jpeg_takes_less_time_at_its_working_size():
    data = encode(scene(4400, 4300), "JPEG", quality=90)

    def best(working: bool) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            load_image(data, working=working)
            times.append(time.process_time() - start)
        return min(times)

    assert best(True) < 0.8 * best(False)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "BMP"])
def test_other_formats_arrays_and_images_are_averaged_to_the_same_picture(kind):
    picture = scene(2300, 2051)
    options = {"PNG": {"compress_level": 1}, "WEBP": {"lossless": True, "quality": 0, "method": 0}}
    found = load_image(encode(picture, kind, **options.get(kind, {})), working=True)
    assert found.size == (1150, 1026)
    assert image_id(found) == image_id(picture.reduce(2))
    for source in (picture, np.asarray(picture), torch.from_numpy(np.array(picture))):
        assert image_id(load_image(source, working=True)) == image_id(found)


def test_transparent_pixels_are_laid_over_white_before_they_are_averaged():
    picture = Image.new("RGBA", (2048, 2048), (0, 0, 0, 0))
    picture.paste((0, 0, 0, 255), (0, 0, 1024, 2048))
    found = load_image(encode(picture, "PNG", compress_level=1), working=True)
    assert [found.getpixel((x, 5)) for x in (0, 511, 512, 1023)] == [(0,) * 3] * 2 + [(255,) * 3] * 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_reduced_photo_is_turned_upright(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(scene(2201, 2100), "JPEG", quality=95, exif=exif)
    found = load_image(data, working=True)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).reduce(2)
    assert found.size == upright.size
    # a side of an odd length has half a pixel over, at the end that was the right one
    apart = np.abs(np.asarray(found, np.int16) - np.asarray(upright, np.int16))
    assert np.percentile(apart, 99) <= 8
    assert image_id(load_image(found, working=True)) == image_id(found), "and not a second time"


def test_a_photo_with_a_second_picture_behind_it_is_reduced_too():
    first, second = scene(2400, 2100), scene(300, 200, 1)
    data = encode(first, "MPO", save_all=True, append_images=[second])
    assert Image.open(io.BytesIO(data)).n_frames == 2
    found = load_image(data, working=True)
    assert found.size == (1200, 1050)
    apart = np.abs(np.asarray(first.reduce(2), np.int16) - np.asarray(found, np.int16))
    assert apart.mean() < 2


def test_a_large_cmyk_jpeg_keeps_its_colours():
    data = encode(Image.new("CMYK", (2100, 2100), (0, 255, 255, 0)), "JPEG", quality=95)
    found = load_image(data, working=True)
    assert found.size == (1050, 1050)
    assert np.abs(np.subtract(found.getpixel((500, 500)), (255, 0, 0))).max() <= 3


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """Two photos that are reduced, two that are not, and a copy under another name."""
    folder = tmp_path_factory.mktemp("album")
    for i, size in enumerate([(2700, 2100), (90, 60), (2100, 2800), (60, 90)]):
        scene(*size, i).save(folder / f"{i}.jpg", quality=90)
    (folder / "sub").mkdir()
    (folder / "sub" / "copy.jpeg").write_bytes((folder / "0.jpg").read_bytes())
    return folder


@pytest.mark.parametrize("method", ["auto", "ml-tta"])
def test_a_reduced_photo_has_the_same_scores_in_any_batch_by_any_thread_or_process(album, method):
    options = {"views": 8} if method == "ml-tta" else {}

    def scores(**execution: int) -> list[list[dict]]:
        told = Execution(**execution)
        tagger = Tagger(golden.backbone("vit"), LABELS, method, execution=told, **options)
        return [list(tags) for tags in tagger(album)]

    first = scores(batch_size=1, workers=0, threads=1)
    assert first[0] == first[-1], "the copy"
    assert first[0] != first[1]
    assert scores(batch_size=3, workers=0, threads=2) == first
    assert scores(batch_size=5, workers=0, threads=7) == first
    assert scores(batch_size=2, workers=1) == first
    assert scores(batch_size=2, workers=2) == first
