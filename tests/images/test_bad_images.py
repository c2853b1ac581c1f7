"""What is no picture, is damaged or far too large is refused by name, whatever its bytes do."""

from __future__ import annotations

import io
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta.errors import ImageError
from mltta.images import budget
from mltta.images.decode import load_image
from tests.images.test_load import encode, noise, png_of_zeros


def damaged_files() -> dict[str, tuple[bytes, str]]:
    jpeg = encode(Image.fromarray(noise()), "JPEG")
    png = encode(Image.fromarray(noise()), "PNG")
    webp = encode(Image.fromarray(noise()), "WEBP")
    return {
        "cut.jpg": (jpeg[: len(jpeg) // 2], "damaged or incomplete"),
        "cut.png": (png[: len(png) // 2], "damaged or incomplete"),
        "cut.webp": (webp[: len(webp) // 2], "image"),
        "head.png": (png[:20], "image"),
        "text.jpg": (b"these are words, not pixels\n" * 50, "not a readable"),
        "page.jpg": (b"<!DOCTYPE html><title>404</title>", "not a readable"),
        "empty.jpg": (b"", "empty"),
        "art.eps": (encode(Image.fromarray(noise()), "EPS"), "not a readable"),
        "not_finite.tif": (
            encode(Image.fromarray(np.array([[0, np.inf]], np.float32)), "TIFF"),
            "NaN or infinite",
        ),
        "nan.tif": (
            encode(Image.fromarray(np.array([[0, np.nan, 1]], np.float32)), "TIFF"),
            "NaN or infinite",
        ),
    }


@pytest.mark.parametrize("name", damaged_files())
def test_bad_files_are_named_and_explained_without_internals(tmp_path: Path, name: str) -> None:
    data, says = damaged_files()[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ImageError, match=says) as caught:
        load_image(tmp_path / name)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / name))
    assert not any(word in message for word in ("Error", "Exception", "object at", "PIL"))
    with pytest.raises(ImageError, match=says):
        load_image(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_random_damage_never_raises_anything_else(kind: str) -> None:
    rng = np.random.default_rng(5)
    data = encode(Image.fromarray(noise()), kind)
    refused = 0
    for _ in range(60):
        broken = bytearray(data[: rng.integers(4, len(data))])
        for position in rng.integers(0, len(broken), 8):
            broken[position] = rng.integers(0, 256)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert load_image(broken).mode == "RGB"
        except ImageError:
            refused += 1
    assert refused > 30


def test_missing_files_folders_and_impossible_paths(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"nowhere\.jpg: no such file"):
        load_image(tmp_path / "nowhere.jpg")
    with pytest.raises(ImageError, match="folder"):
        load_image(tmp_path)
    with pytest.raises(ImageError, match="not a valid path"):
        load_image("a\0b.jpg")


def test_a_bomb_is_refused_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of_zeros(20_000, 20_000))
    assert path.stat().st_size < 1_000_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match=r"bomb\.png: too large.*120 megapixels"):
            load_image(path)


def test_above_our_limit_but_below_pillows_is_refused_with_its_size() -> None:
    with pytest.raises(ImageError, match="12500x10000 is over the limit of 120 megapixels"):
        load_image(png_of_zeros(12_500, 10_000))


def test_the_limit_holds_for_images_and_arrays_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_PIXELS", 100)
    assert load_image(noise(10, 10)).size == (10, 10)
    for source in (
        noise(11, 10),
        Image.fromarray(noise(11, 10)),
        encode(Image.fromarray(noise(11, 10)), "PNG"),
    ):
        with pytest.raises(ImageError, match="10x11 is over the limit"):
            load_image(source)


def test_pillows_bomb_warning_does_not_escape_and_its_limit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    data = encode(Image.fromarray(noise()), "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_image(data).size == (60, 40)
        with pytest.raises(Image.DecompressionBombWarning):
            Image.open(io.BytesIO(data))
    assert Image.MAX_IMAGE_PIXELS == 2000


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    data = encode(Image.fromarray(noise()), "PNG")
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [load_image(data) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before
