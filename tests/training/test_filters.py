"""Filters name what is wrong with a photo."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from tests.training.clones import picture
from training import filters


def test_filters_name_what_is_wrong():
    photo = picture(3, 300, 240)
    drawing = Image.new("RGB", (300, 240), "white")
    for x in range(5, 300, 12):
        ImageDraw.Draw(drawing).line((x, 10, x, 230), fill="black", width=4)
    agency = photo.copy()
    ImageDraw.Draw(agency).rectangle((0, 216, 300, 240), fill="black")
    ImageDraw.Draw(agency).text((100, 222), "example agency", fill="white")
    framed = agency.copy()
    ImageDraw.Draw(framed).rectangle((0, 0, 300, 8), fill="black")
    halves = Image.new("RGB", (300, 240), "white")
    checks = (np.indices((240, 145)).sum(0) // 12 % 2 * 200 + 20).astype(np.uint8)
    tiles = Image.merge("RGB", [Image.fromarray(checks), *[Image.fromarray(checks // 2)] * 2])
    halves.paste(tiles, (0, 0))
    halves.paste(tiles, (155, 0))
    clear = photo.convert("RGBA")
    clear.putpixel((0, 0), (0, 0, 0, 0))
    assert filters.fault(photo) is None
    assert filters.fault(photo.resize((120, 95))) == "tiny"
    assert filters.fault(photo, (1000, 300)) == "elongated"
    assert filters.fault(clear) == "transparent"
    assert filters.fault(photo.convert("P")) == "palette"
    assert filters.fault(photo.convert("L")) == "grey"
    assert filters.fault(drawing) == "line drawing"
    assert filters.fault(Image.new("RGB", (300, 240), (90, 120, 200))) == "blank"
    assert filters.fault(agency) == "banner"
    assert filters.fault(framed) is None
    assert filters.fault(halves) == "collage"


def test_a_product_photo_without_colors_is_kept():
    product = Image.new("L", (300, 240), 255)
    product.paste(picture(4, 150, 150).convert("L"), (70, 40))
    assert filters.fault(product) is None
