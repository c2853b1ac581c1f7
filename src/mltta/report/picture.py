"""A picture of an answer: the photo, and its labels as bars beside it."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from mltta.tagger import Tags

HEIGHT, MARGIN, PANEL, ROWS = 480, 16, 380, 10
INK, FAINT, PRESENT, ABSENT = "#1b1f24", "#6b7280", "#0f766e", "#c7cdd4"


def annotate(image: Image.Image, tags: Tags, rows: int = ROWS) -> Image.Image:
    """The photo at a fixed height with its best labels beside it; those judged present are dark."""
    width = min(max(1, round(image.width * HEIGHT / image.height)), 3 * HEIGHT)
    canvas = Image.new("RGB", (width + PANEL, HEIGHT), "white")
    canvas.paste(image.resize((width, HEIGHT), Image.Resampling.LANCZOS), (0, 0))
    draw = ImageDraw.Draw(canvas)
    font, small = ImageFont.load_default(size=17), ImageFont.load_default(size=13)
    shown = tags[:rows]
    left, right = width + MARGIN, width + PANEL - MARGIN
    step = (HEIGHT - 2 * MARGIN) / max(rows, 1)
    longest = max((item["score"] for item in shown), default=1.0) or 1.0
    for i, item in enumerate(shown):
        top = MARGIN + i * step
        present = item["label"] in tags.present
        draw.text(
            (left, top), _fit(draw, item["label"], font, right - left - 60), INK if present else FAINT, font
        )
        score = f"{item['score']:.2f}"
        draw.text((right - draw.textlength(score, small), top + 4), score, FAINT, small)
        bar = (right - left) * item["score"] / longest
        draw.rectangle((left, top + 24, left + max(1.0, bar), top + 31), PRESENT if present else ABSENT)
    return canvas


def _fit(
    draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, room: float
) -> str:
    """Shorten a label that is wider than its room."""
    if draw.textlength(text, font) <= room:
        return text
    while text and draw.textlength(text + "…", font) > room:
        text = text[:-1]
    return text + "…"
