"""Annotated pictures: the photo with label bars, and heat maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from mltta.tagger import Tags

HEIGHT, MARGIN, PANEL, ROWS = 480, 16, 380, 10
INK, FAINT, BAR = "#1b1f24", "#6b7280", "#0f766e"


def annotate(image: Image.Image, tags: Tags, rows: int = ROWS) -> Image.Image:
    """Return the photo with bars of the labels shown, and the heat map of the best label if there is one."""
    photo = _at_height(image, HEIGHT)
    left, right = photo.width + MARGIN, photo.width + PANEL - MARGIN
    canvas = Image.new("RGB", (photo.width + PANEL, HEIGHT), "white")
    heat = next((tags.where[label] for label in tags.present if label in tags.where), None)
    canvas.paste(photo if heat is None else warmed(photo, heat), (0, 0))
    draw = ImageDraw.Draw(canvas)
    font, small = ImageFont.load_default(size=17), ImageFont.load_default(size=13)
    for i, item in enumerate(tags.shown[:rows]):
        top = MARGIN + i * (HEIGHT - 2 * MARGIN) / max(rows, 1)
        draw.text((left, top), _fit(draw, item["label"], font, right - left - 60), INK, font)
        score = f"{item['score']:.2f}"
        draw.text((right - draw.textlength(score, small), top + 4), score, FAINT, small)
        bar = (right - left) * item["score"]  # the same scale in every picture
        draw.rectangle((left, top + 24, left + max(1.0, bar), top + 31), BAR)
    return canvas


def warmed(photo: Image.Image, heat: NDArray[np.float32]) -> Image.Image:
    """Return the photo with a heat map: grey, but reddened colours where a label was found."""
    mask = Image.fromarray(levels(heat)).resize(photo.size, Image.Resampling.BICUBIC)
    grey = Image.blend(photo.convert("L").convert("RGB"), Image.new("RGB", photo.size, "black"), 0.35)
    red = Image.blend(photo, Image.new("RGB", photo.size, "#d1422f"), 0.18)
    return Image.composite(red, grey, mask)


def levels(heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Convert a heat map to bytes, scaling its maximum to 255."""
    return (255 * np.clip(heat / max(float(heat.max()), 1e-6), 0, 1) ** 0.7).astype(np.uint8)  # type: ignore[no-any-return]


def where_sheet(image: Image.Image, tags: Tags, most: int = 8) -> Image.Image:
    """Return a sheet with one heat map per label shown, with name and score."""
    shown = [item for item in tags.shown if item["label"] in tags.where][:most]
    font, small = ImageFont.load_default(size=17), _at_height(image, 240)
    width, height = small.size
    across = min(4, max(1, len(shown)))
    down = max(1, -(-len(shown) // across))
    sheet = Image.new("RGB", (across * (width + MARGIN) + MARGIN, down * (height + 40) + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for i, item in enumerate(shown):
        left, top = MARGIN + i % across * (width + MARGIN), MARGIN + i // across * (height + 40)
        sheet.paste(warmed(small, tags.where[item["label"]]), (left, top))
        text = _fit(draw, f"{item['label']} {item['score']:.2f}", font, width)
        draw.text((left, top + height + 6), text, INK, font)
    return sheet


def _at_height(image: Image.Image, height: int) -> Image.Image:
    """Resize the photo to a height, limiting the width of panoramas."""
    width = min(max(1, round(image.width * height / image.height)), 3 * height)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def _fit(draw: ImageDraw.ImageDraw, text: str, font: Any, room: float) -> str:
    """Shorten a label to fit a width."""
    cuts = (text, *(text[:length] + "…" for length in range(len(text), 0, -1)))
    return next((cut for cut in cuts if draw.textlength(cut, font) <= room), "…")
