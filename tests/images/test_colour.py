"""Colours come out as they were meant: by the profile in the file, within two levels of what it says."""

from __future__ import annotations

import io
import logging
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from mltta.images.decode import image_id, load_image

# primaries as XYZ under D50, columns R, G, B, as the published profiles have them
ADOBE = np.array([[0.60974, 0.20528, 0.14919], [0.31111, 0.62567, 0.06322], [0.01947, 0.06087, 0.74457]])
P3 = np.array([[0.51512, 0.29198, 0.15710], [0.24120, 0.69225, 0.06657], [-0.00105, 0.04189, 0.78407]])
SRGB = np.array([[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]])
PATCHES = [(200, 30, 30), (40, 180, 60), (30, 60, 190), (128, 128, 128), (220, 190, 150), (90, 140, 110)]


def icc(space: bytes, pcs: bytes, tags: dict[bytes, bytes]) -> bytes:
    """A profile of some tags, as the standard lays it out."""
    tags = {b"desc": text(b"desc"), b"cprt": text(b"text"), **tags}
    at, table, body = 132 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", at + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    head = struct.pack(">I4sI4s4s4s", at + len(body), b"\0" * 4, 0x02400000, b"mntr", space, pcs)
    head += bytes(12) + b"acsp" + bytes(28) + fixed(0.9642, 1.0, 0.8249)
    return head.ljust(128, b"\0") + table + body


def fixed(*values: float) -> bytes:
    return b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def text(kind: bytes) -> bytes:
    said = b"made here\0"
    if kind == b"text":
        return b"text" + bytes(4) + said
    return b"desc" + bytes(4) + struct.pack(">I", len(said)) + said + bytes(78)


def matrix_profile(primaries: np.ndarray, gamma: float | None) -> bytes:
    """An RGB profile; without a gamma it has the curve of sRGB."""
    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round((gamma or 1) * 256))
    if gamma is None:
        values = fixed(2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
        curve = b"para" + bytes(4) + struct.pack(">HH", 3, 0) + values
    tags = {b"wtpt": b"XYZ " + bytes(4) + fixed(0.9642, 1.0, 0.8249)}
    for name, column in zip((b"r", b"g", b"b"), primaries.T, strict=True):
        tags |= {name + b"XYZ": b"XYZ " + bytes(4) + fixed(*column), name + b"TRC": curve}
    return icc(b"RGB ", b"XYZ ", tags)


def press_profile(inks: dict[tuple[int, ...], tuple[int, int, int]]) -> bytes:
    """A CMYK profile: the Lab colour, in 8 bits, of each of the 16 ways to lay inks fully or not at all."""
    ramp = bytes(range(256))
    nodes = [tuple(n >> shift & 1 for shift in (3, 2, 1, 0)) for n in range(16)]
    table = b"".join(bytes(inks.get(node, (30, 128, 128))) for node in nodes)
    body = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    return icc(b"CMYK", b"Lab ", {b"A2B0": body + ramp * 4 + table + ramp * 3})


def linear(levels: np.ndarray, gamma: float | None) -> np.ndarray:
    x = levels / 255
    return np.where(x > 0.04045, ((x + 0.055) / 1.055) ** 2.4, x / 12.92) if gamma is None else x**gamma


def meant(colour: tuple[int, ...], primaries: np.ndarray, gamma: float | None) -> np.ndarray:
    """The sRGB levels of a colour, by the definitions."""
    return shown(primaries @ linear(np.array(colour), gamma))


def shown(xyz: np.ndarray) -> np.ndarray:
    """The sRGB levels of XYZ under D50."""
    x = np.clip(np.linalg.solve(SRGB, xyz), 0, 1)
    return 255 * np.where(x > 0.0031308, 1.055 * x ** (1 / 2.4) - 0.055, 12.92 * x)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **options)
    return held.getvalue()


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "AVIF", "HEIF"])
@pytest.mark.parametrize(
    ("primaries", "gamma"), [(ADOBE, 563 / 256), (P3, None)], ids=["Adobe RGB", "Display P3"]
)
def test_wide_gamut_patches_come_out_within_two_levels(kind, primaries, gamma):
    options = {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}}.get(kind, {"quality": 100})
    if kind in ("AVIF", "HEIF", "JPEG"):
        options |= {"JPEG": {"subsampling": 0}, "AVIF": {"subsampling": "4:4:4"}}.get(kind, {"chroma": 444})
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    profile = matrix_profile(primaries, gamma)
    within = 4 if kind in ("AVIF", "HEIF", "JPEG") else 2  # which lose a level before
    for colour in PATCHES:
        data = encode(Image.new("RGB", (16, 16), colour), kind, icc_profile=profile, **options)
        found, wanted = load_image(data).getpixel((8, 8)), meant(colour, primaries, gamma)
        assert np.abs(found - wanted).max() <= within, (colour, found, wanted)
    assert np.abs(meant(PATCHES[1], primaries, gamma) - PATCHES[1]).max() > 10, "or this says nothing"


@pytest.mark.parametrize("profile", [None, "built in", "made here", "grey gamma"])
def test_without_a_profile_or_with_srgb_every_pixel_stays(profile):
    made = {
        None: None,
        "built in": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
        "made here": matrix_profile(SRGB, None),
        "grey gamma": icc(b"GRAY", b"XYZ ", {b"kTRC": b"curv" + bytes(4) + struct.pack(">IH", 1, 512)}),
    }[profile]
    found = load_image(encode(noise(), icc_profile=made))
    assert image_id(found) == image_id(noise())


def test_colours_are_changed_once():
    found = load_image(encode(noise(), icc_profile=matrix_profile(ADOBE, 563 / 256)))
    assert image_id(found) != image_id(noise())
    assert image_id(load_image(found)) == image_id(found)


def test_transparent_pixels_have_their_colours_changed_and_keep_their_transparency():
    profile = matrix_profile(P3, None)
    colours = [(40, 180, 60, 255), (40, 180, 60, 0)]
    solid, clear = (load_image(encode(Image.new("RGBA", (4, 4), c), icc_profile=profile)) for c in colours)
    assert np.abs(solid.getpixel((1, 1)) - meant((40, 180, 60), P3, None)).max() <= 2
    assert clear.getpixel((1, 1)) == (255, 255, 255)


def test_a_palette_has_a_profile_too():
    image = Image.new("P", (4, 4))
    image.putpalette([40, 180, 60])
    found = load_image(encode(image, icc_profile=matrix_profile(P3, None)))
    assert np.abs(found.getpixel((1, 1)) - meant((40, 180, 60), P3, None)).max() <= 2


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
def test_cmyk_is_printed_as_its_profile_says(kind):
    # of this press, cyan ink is a brick red: L 50, a and b 40 above the neutral 128
    press = press_profile({(0, 0, 0, 0): (255, 128, 128), (1, 0, 0, 0): (128, 168, 168)})
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    paper, ink = (
        load_image(encode(Image.new("CMYK", (16, 16), inks), kind, icc_profile=press, **options))
        for inks in ((0, 0, 0, 0), (255, 0, 0, 0))
    )
    assert np.abs(np.subtract(paper.getpixel((8, 8)), 255)).max() <= 2
    y = (100 * 128 / 255 + 16) / 116
    brick = shown(np.array([0.9642, 1.0, 0.8249]) * np.array([y + 40 / 500, y, y - 40 / 200]) ** 3)
    assert np.abs(ink.getpixel((8, 8)) - brick).max() <= 2
    plain = load_image(encode(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), kind, **options))
    assert np.abs(np.subtract(plain.getpixel((8, 8)), (0, 255, 255))).max() <= 2, "as always without one"


@pytest.mark.parametrize("damage", ["cut", "garbled", "empty", "huge", "of another kind"])
def test_a_damaged_profile_is_ignored_with_a_word_for_those_who_ask(damage, caplog):
    good = matrix_profile(ADOBE, 2.2)
    bad = {
        "cut": good[:150],
        "garbled": bytes(byte ^ 0x5A for byte in good),
        "empty": b"\0",
        "huge": good + bytes(9 << 20),
        "of another kind": press_profile({}),
    }[damage]
    with caplog.at_level(logging.DEBUG, "mltta"):
        found = load_image(
            encode(noise(), "TIFF", icc_profile=bad)
        )  # a PNG of the huge one is refused by Pillow
    assert image_id(found) == image_id(noise())
    assert "ignored" in caplog.text


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGB", "RGBA", "LA"])
def test_a_second_reading_changes_nothing(mode):
    picture = Image.fromarray(np.array([PATCHES], np.uint8)).convert(mode)
    file = io.BytesIO()
    picture.save(file, "PNG", icc_profile=matrix_profile(ADOBE, 2.2))
    once = load_image(file.getvalue(), working=True)
    assert load_image(once, working=True).tobytes() == once.tobytes()
