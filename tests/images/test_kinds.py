"""Photos as phones make them: HEIC and AVIF by real encoders, upright, within budgets, and tagged as their twins."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from mltta import Tagger
from mltta.errors import ImageError
from mltta.images import find
from mltta.images.decode import load_image

pytest.importorskip("pillow_heif").register_heif_opener()
PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
KINDS = pytest.mark.parametrize("kind", ["HEIF", "AVIF"])


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **({"quality": 95, "speed": 9} if kind == "AVIF" else {"quality": 95}), **options)
    return held.getvalue()


def photo(name: str) -> Image.Image:
    return load_image(PHOTOS / f"{name}.jpg")


@KINDS
def test_a_photo_looks_like_its_twin(kind):
    found = load_image(encode(photo("cat"), kind))
    assert (found.mode, found.size) == ("RGB", photo("cat").size)
    apart = np.abs(np.asarray(found, np.int16) - np.asarray(photo("cat"), np.int16))
    assert apart.mean() < 2.5


@KINDS
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_upright_once(kind, orientation):
    """Both encoders write the turn into the file's own structure; the note in EXIF stays beside it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = photo("cat").resize((96, 64))
    turned = picture.copy()
    turned.info["exif"] = exif.tobytes()
    upright = ImageOps.exif_transpose(turned)
    data = encode(picture, kind, exif=exif.tobytes())
    assert (b"irot" in data or b"imir" in data) == (orientation != 1)
    found = load_image(data)
    for again in (found, load_image(found)):
        assert again.size == upright.size
        apart = np.abs(np.asarray(again, np.int16) - np.asarray(upright, np.int16))
        assert apart.mean() < 3


@KINDS
def test_transparency_lies_over_white(kind):
    picture = Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    picture.paste((255, 0, 0, 255), (0, 0, 16, 32))
    found = load_image(encode(picture, kind))
    assert np.abs(np.subtract(found.getpixel((4, 16)), (255, 0, 0))).max() <= 6
    assert min(found.getpixel((28, 16))) >= 249


@KINDS
def test_large_ones_are_worked_on_at_a_reduced_scale(kind):
    data = encode(Image.new("RGB", (2060, 2052), (90, 120, 40)), kind)
    found = load_image(data, working=True)
    assert found.size == (1030, 1026)
    assert np.abs(np.subtract(found.getpixel((500, 500)), (90, 120, 40))).max() <= 3


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger("mini", "coco", "auto")


@KINDS
def test_it_is_tagged_as_its_jpeg_twin(tagger, kind):
    for name in ("cat", "kitchen"):
        held = io.BytesIO()
        photo(name).save(held, "JPEG", quality=95)
        twin, found = tagger(held.getvalue()), tagger(encode(photo(name), kind))
        scores = [{item["label"]: item["score"] for item in tags} for tags in (twin, found)]
        assert max(abs(scores[0][label] - scores[1][label]) for label in scores[0]) < 0.06
        assert found.present[:1] == twin.present[:1]


@KINDS
@pytest.mark.parametrize("cut", [12, 60, 200, 0.5, 0.98])
def test_a_cut_file_is_one_error(kind, cut):
    data = encode(photo("cat").resize((96, 64)), kind)
    with pytest.raises(ImageError, match=r"damaged|not a readable"):
        load_image(data[: int(cut * len(data)) if cut < 1 else cut])


def claiming(data: bytes, wide: int, tall: int) -> bytes:
    """The same file, whose header announces another size."""
    at = data.index(b"ispe") + 8
    return data[:at] + wide.to_bytes(4, "big") + tall.to_bytes(4, "big") + data[at + 8 :]


@KINDS
@pytest.mark.parametrize("size", [(30_000, 30_000), (9_000, 9_000), (200_000, 100)])
def test_a_bomb_is_refused_at_once(kind, size):
    bomb = claiming(encode(Image.new("RGB", (64, 64)), kind), *size)
    start = time.monotonic()
    with pytest.raises(ImageError, match=r"over the limit|damaged|not a readable"):
        load_image(bomb)
    assert time.monotonic() - start < 2


@KINDS
def test_the_largest_that_passes_its_header_is_within_the_budget(kind):
    data = claiming(encode(Image.new("RGB", (64, 64)), kind), 8_200, 8_100)
    with pytest.raises(ImageError, match=r"8200x8100 is over the limit of 66 megapixels|damaged"):
        load_image(data)


@KINDS
def test_a_file_in_hundreds_of_thousands_of_boxes_is_refused(kind):
    data = encode(Image.new("RGB", (64, 64)), kind)
    with pytest.raises(ImageError, match="more than 100,000 pieces"):
        load_image(data + b"\0\0\0\x08free" * 200_000)


def test_a_huge_file_is_refused_by_its_size(tmp_path):
    sparse = tmp_path / "sparse.heic"
    with sparse.open("wb") as file:
        file.write(encode(Image.new("RGB", (64, 64)), "HEIF"))
        file.truncate(300 << 20)
    with pytest.raises(ImageError, match="bytes for its kind"):
        load_image(sparse)


def test_without_a_decoder_the_error_says_what_to_install(monkeypatch):
    data = {kind: encode(Image.new("RGB", (64, 64)), kind) for kind in ("HEIF", "AVIF")}
    monkeypatch.setattr(find, "reads_heif", lambda: False)
    with pytest.raises(ImageError, match=r"pip install 'mltta\[heif\]'"):
        load_image(data["HEIF"])
    assert load_image(data["AVIF"]).size == (64, 64)
    monkeypatch.setattr(find, "reads_avif", lambda: False)
    with pytest.raises(ImageError, match="does not support AVIF"):
        load_image(data["AVIF"])
