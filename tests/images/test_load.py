"""Any picture in, one upright RGB image out; anything else, an error that names the file and the trouble."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from mltta.errors import ImageError
from mltta.images import decode as images
from mltta.images.decode import image_id, load_image

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(height: int = 40, width: int = 60, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def red_left_half() -> Image.Image:
    image = Image.new("RGB", (64, 32), GREEN)
    image.paste(RED, (0, 0, 32, 32))
    return image


def near(pixel: object, expected: tuple[int, int, int], within: int = 3) -> bool:
    return bool(np.abs(np.subtract(pixel, expected)).max() <= within)


def png_of_zeros(width: int, height: int) -> bytes:
    """A black 1-bit PNG, compressed row by row so that the picture never exists in memory."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = bytes(1 + (width + 7) // 8)
    packer = zlib.compressobj(1)
    body = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


# What is read


@pytest.mark.parametrize("from_path", [True, False])
def test_a_decoder_is_given_a_large_photo_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_path: bool
) -> None:
    """Each piece asks for the interpreter once more, which another thread may have."""
    data = encode(Image.fromarray(noise(900, 1200)), "JPEG", quality=95)
    assert len(data) > 8 * 65536
    pieces: list[int] = []
    get = Image._getdecoder  # type: ignore[attr-defined]

    class Counting:
        def __init__(self, *given: object):
            self._own = get(*given)

        def decode(self, piece: bytes) -> tuple[int, int]:
            pieces.append(len(piece))
            found: tuple[int, int] = self._own.decode(piece)
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self._own, name)

    monkeypatch.setattr(Image, "_getdecoder", Counting)
    (tmp_path / "a.jpg").write_bytes(data)
    seen = load_image(tmp_path / "a.jpg" if from_path else data)
    assert pieces[0] > 0.99 * len(data)
    monkeypatch.undo()
    assert seen.tobytes() == Image.open(io.BytesIO(data)).tobytes()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_lossless_formats_keep_every_pixel(tmp_path: Path, kind: str) -> None:
    pixels = noise()
    path = tmp_path / "picture"
    path.write_bytes(encode(Image.fromarray(pixels), kind, **({"lossless": True} if kind == "WEBP" else {})))
    image = load_image(path)
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_path_string_bytes_image_and_array_give_the_same_picture(tmp_path: Path) -> None:
    pixels = noise()
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    for source in (
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        Image.open(path),
        pixels,
    ):
        np.testing.assert_array_equal(np.asarray(load_image(source)), pixels)


def test_one_pixel_is_an_image(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), (7, 8, 9)).save(tmp_path / "dot.png")
    image = load_image(tmp_path / "dot.png")
    assert (image.size, image.getpixel((0, 0))) == ((1, 1), (7, 8, 9))


def test_an_rgb_image_is_not_copied() -> None:
    image = Image.fromarray(noise())
    assert load_image(image) is image


@pytest.mark.parametrize(
    ("orientation", "red_at", "green_at"),
    [
        (1, (5, 16), (60, 16)),
        (2, (60, 16), (5, 16)),
        (3, (60, 16), (5, 16)),
        (6, (16, 5), (16, 60)),
        (8, (16, 60), (16, 5)),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "TIFF", "PNG"])
def test_exif_orientation_turns_the_picture_upright_once(
    kind: str, orientation: int, red_at: tuple[int, int], green_at: tuple[int, int]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = load_image(encode(red_left_half(), kind, exif=exif))
    for again in (image, load_image(image)):
        assert again.size == ((32, 64) if orientation in (6, 8) else (64, 32))
        assert near(again.getpixel(red_at), RED)
        assert near(again.getpixel(green_at), GREEN)


def test_all_eight_orientations_agree_with_pillow() -> None:
    pixels = noise()
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encode(Image.fromarray(pixels), "PNG", exif=exif)
        expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        np.testing.assert_array_equal(np.asarray(load_image(data)), np.asarray(expected))


def test_garbled_exif_does_not_spoil_a_good_picture() -> None:
    data = encode(red_left_half(), "JPEG", exif=b"Exif\x00\x00this is no TIFF header at all")
    assert near(load_image(data).getpixel((5, 16)), RED)


def test_cmyk_jpeg_keeps_its_colours() -> None:
    data = encode(Image.new("CMYK", (32, 32), (0, 255, 255, 0)), "JPEG", quality=95)
    assert near(load_image(data).getpixel((16, 16)), RED)


def test_ycbcr_becomes_rgb() -> None:
    assert near(load_image(Image.new("RGB", (8, 8), GREEN).convert("YCbCr")).getpixel((4, 4)), GREEN)


@pytest.mark.parametrize("mode", ["1", "L"])
def test_black_and_white_stay_black_and_white(mode: str) -> None:
    image = Image.new(mode, (2, 1))
    image.putpixel((1, 0), 255)
    loaded = load_image(encode(image, "PNG"))
    assert [loaded.getpixel((x, 0)) for x in (0, 1)] == [(0, 0, 0), WHITE]


def test_transparency_lies_over_white() -> None:
    half = load_image(encode(Image.new("RGBA", (1, 1), (0, 0, 0, 128)), "PNG")).getpixel((0, 0))
    grey = load_image(encode(Image.new("LA", (1, 1), (0, 128)), "PNG")).getpixel((0, 0))
    clear = load_image(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).getpixel((0, 0))
    solid = load_image(Image.new("RGBA", (1, 1), (255, 0, 0, 255))).getpixel((0, 0))
    assert (half, grey, clear, solid) == ((127, 127, 127), (127, 127, 127), WHITE, RED)


@pytest.mark.parametrize("transparency", [0, b"\x00\xff"])
def test_a_transparent_palette_entry_is_white(transparency: int | bytes) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    loaded = load_image(encode(image, "PNG", transparency=transparency))
    assert [loaded.getpixel((x, 0)) for x in (0, 1)] == [WHITE, GREEN]


def test_a_transparent_colour_of_an_rgb_png_is_white() -> None:
    loaded = load_image(encode(red_left_half(), "PNG", transparency=RED))
    assert (loaded.getpixel((0, 0)), loaded.getpixel((63, 0))) == (WHITE, GREEN)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_not_clipped(kind: str) -> None:
    values = np.array([[0, 257, 128 * 257, 200 * 257 + 100, 65535]], np.uint16)
    loaded = np.asarray(load_image(encode(Image.fromarray(values), kind)))
    np.testing.assert_array_equal(loaded[0, :, 0], [0, 1, 128, 200, 255])
    assert (loaded[..., :1] == loaded).all()


def test_every_spelling_of_sixteen_bits_is_scaled() -> None:
    values = np.array([[0, 100 * 257, 65535]], np.uint16)
    spellings = {
        "I": Image.fromarray(values.astype(np.int32)),
        "I;16": Image.fromarray(values),
        "I;16B": Image.frombytes("I;16B", (3, 1), values.astype(">u2").tobytes()),
    }
    for mode, image in spellings.items():
        assert image.mode == mode
        np.testing.assert_array_equal(np.asarray(load_image(image))[0, :, 0], [0, 100, 255])


@pytest.mark.parametrize(
    ("values", "levels"),
    [([0, 0.2, 1], [0, 51, 255]), ([0, 51, 200], [0, 51, 200]), ([-5, 500, 1000], [0, 128, 255])],
)
def test_float_grey_has_white_at_one_at_255_or_at_its_maximum(values: list[float], levels: list[int]) -> None:
    image = Image.fromarray(np.array([values], np.float32))
    np.testing.assert_array_equal(np.asarray(load_image(encode(image, "TIFF")))[0, :, 0], levels)


def test_deep_grey_is_the_same_in_one_strip_or_many(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).integers(0, 65536, (50, 30), dtype=np.uint16)
    whole = np.asarray(load_image(values_image := Image.fromarray(values)))
    monkeypatch.setattr(images, "_STRIP_PIXELS", 100)
    np.testing.assert_array_equal(np.asarray(load_image(values_image)), whole)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF", "PNG"])
def test_an_animation_gives_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, GREEN)]
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:])
    with Image.open(io.BytesIO(data)) as animation:
        assert animation.n_frames == 2
    assert near(load_image(data).getpixel((8, 8)), RED)


# Arrays and tensors


def test_arrays_of_one_three_and_four_channels() -> None:
    grey = noise()[:, :, 0]
    np.testing.assert_array_equal(np.asarray(load_image(grey))[:, :, 1], grey)
    np.testing.assert_array_equal(np.asarray(load_image(grey[:, :, None]))[:, :, 2], grey)
    rgba = np.dstack([noise(), np.full((40, 60), 255, np.uint8)])
    np.testing.assert_array_equal(np.asarray(load_image(rgba)), noise())
    rgba[:, :, 3] = 0
    assert np.asarray(load_image(rgba)).min() == 255


def test_floats_in_zero_to_one_round_to_the_nearest_level() -> None:
    pixels = noise()
    for dtype in (np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(np.asarray(load_image((pixels / 255).astype(dtype))), pixels)


def test_tensors_come_channels_first_or_last_on_any_tape() -> None:
    pixels = noise()
    last = torch.from_numpy(pixels)
    first = last.permute(2, 0, 1)
    tracked = (first / 255).requires_grad_()
    for tensor in (last, first, tracked, first[:, ::2, ::2].float() / 255):
        expected = pixels if tensor.shape != (3, 20, 30) else pixels[::2, ::2]
        np.testing.assert_array_equal(np.asarray(load_image(tensor)), expected)
    assert load_image(torch.ones(3, 4, 5, dtype=torch.bfloat16)).size == (5, 4)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((3, 224, 224), np.uint8), "3x224x224"),
        (np.zeros((0, 5, 3), np.uint8), "0x5x3"),
        (np.zeros(5, np.uint8), "shape 5"),
        (np.full((2, 2), 128.0), r"\[0, 1\]"),
        (np.full((2, 2), np.nan), r"\[0, 1\]"),
        (np.zeros((2, 2), np.uint16), "uint16"),
        (np.zeros((2, 2), bool), "bool"),
    ],
)
def test_arrays_that_would_be_misread_are_refused(array: np.ndarray, says: str) -> None:
    with pytest.raises(ImageError, match=says):
        load_image(array)


def test_other_objects_are_refused_by_name() -> None:
    with pytest.raises(ImageError, match="dict"):
        load_image({})


# Names of pictures


def test_the_same_picture_has_the_same_id_wherever_it_comes_from(tmp_path: Path) -> None:
    pixels = noise()
    (tmp_path / "sub").mkdir()
    first, second = tmp_path / "a.png", tmp_path / "sub" / "b.bmp"
    Image.fromarray(pixels).save(first)
    Image.fromarray(pixels).save(second)
    sources = [first, second, first.read_bytes(), pixels, torch.from_numpy(pixels), load_image(first)]
    names = {image_id(source) for source in sources}
    assert len(names) == 1
    assert len(names.pop()) == 32


def test_the_id_changes_with_a_pixel_and_with_the_shape() -> None:
    pixels = noise()
    changed = pixels.copy()
    changed[20, 30, 1] ^= 1
    shapes = [pixels, changed, pixels.reshape(60, 40, 3), pixels[:, ::-1]]
    assert len({image_id(np.ascontiguousarray(shape)) for shape in shapes}) == 4


def test_the_id_does_not_depend_on_how_the_image_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = image_id(noise())
    monkeypatch.setattr(images, "_STRIP_PIXELS", 130)
    assert image_id(noise()) == whole
