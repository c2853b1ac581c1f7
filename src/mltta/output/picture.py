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
SMALL, LEGEND = 240, "Red: where the label was found. Gray: the rest of the photo."


def annotate(image: Image.Image, tags: Tags, rows: int = ROWS) -> Image.Image:
    """The photo at a fixed height, with bars of the labels shown beside it, or why no label is shown."""
    photo = _at_height(image, HEIGHT)
    left, right = photo.width + MARGIN, photo.width + PANEL - MARGIN
    canvas = Image.new("RGB", (photo.width + PANEL, HEIGHT), "white")
    canvas.paste(photo, (0, 0))
    draw = ImageDraw.Draw(canvas)
    font, small = ImageFont.load_default(size=17), ImageFont.load_default(size=13)
    if not tags.present:
        draw.text((left, MARGIN), _wrapped(tags.note or "", font, right - left), INK, font)
    for i, item in enumerate(tags.shown[:rows]):
        top = MARGIN + i * (HEIGHT - 2 * MARGIN) / max(rows, 1)
        draw.text((left, top), _fit(item["label"], font, right - left - 60), INK, font)
        score = f"{item['score']:.2f}"
        draw.text((right - draw.textlength(score, small), top + 4), score, FAINT, small)
        bar = (right - left) * item["score"]  # the same scale in every picture
        draw.rectangle((left, top + 24, left + max(1.0, bar), top + 31), BAR)
    return canvas


def warmed(photo: Image.Image, heat: NDArray[np.float32]) -> Image.Image:
    """The heat map of a label: the photo in gray, and in color with a red tint where the label was found."""
    mask = Image.fromarray(levels(heat)).resize(photo.size, Image.Resampling.BICUBIC)
    grey = Image.blend(photo.convert("L").convert("RGB"), Image.new("RGB", photo.size, "black"), 0.2)
    red = Image.blend(photo, Image.new("RGB", photo.size, "#e5391f"), 0.45)
    return Image.composite(red, grey, mask)


def levels(heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Convert a heat map to bytes, scaling its maximum to 255."""
    return (255 * np.clip(heat / max(float(heat.max()), 1e-6), 0, 1) ** 0.7).astype(np.uint8)  # type: ignore[no-any-return]


def where_sheet(image: Image.Image, tags: Tags, most: int = 7) -> Image.Image:
    """The photo, its heat map for each label shown with name and score, and a legend or why no label is shown."""
    font, small = ImageFont.load_default(size=17), _at_height(image, SMALL)
    shown = [item for item in tags.shown if item["label"] in tags.where][:most]
    maps = [warmed(small, tags.where[item["label"]]) for item in shown]
    names = ["photo", *(f"{item['label']} {item['score']:.2f}" for item in shown)]
    across, step = min(4, len(names)), small.width + MARGIN
    width, height = max(across * step + MARGIN, 400), MARGIN + -(-len(names) // across) * (SMALL + 40)
    said = _wrapped(LEGEND if shown else tags.note or "", font, width - 2 * MARGIN)
    sheet = Image.new("RGB", (width, height + 24 * (said.count("\n") + 1) + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (picture, name) in enumerate(zip([small, *maps], names, strict=True)):
        place = MARGIN + i % across * step, MARGIN + i // across * (SMALL + 40)
        sheet.paste(picture, place)
        draw.text((place[0], place[1] + SMALL + 6), _fit(name, font, small.width), INK, font)
    draw.text((MARGIN, height), said, FAINT if shown else INK, font)
    return sheet


def _at_height(image: Image.Image, height: int) -> Image.Image:
    """Resize the photo to a height, limiting the width of panoramas."""
    width = min(max(1, round(image.width * height / image.height)), 3 * height)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def _fit(text: str, font: Any, room: float) -> str:
    """Shorten a label that is wider than its room."""
    cuts = (text, *(text[:length] + "…" for length in range(len(text), 0, -1)))
    return next((cut for cut in cuts if font.getlength(cut) <= room), "…")


def _wrapped(text: str, font: Any, room: float) -> str:
    """A sentence in lines that fit."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines[-1:] = [longer] if font.getlength(longer) <= room else [lines[-1], word]
    return "\n".join(_fit(line, font, room) for line in lines if line)
