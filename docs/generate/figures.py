"""Draw the example pictures from the sample photos, and the cost figures from the tables of results.md.

python -m docs.generate.figures
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from PIL import Image

import mltta
from docs.generate.__main__ import MEASURED
from mltta.images.views import render_views
from mltta.output.picture import annotate, where_sheet
from mltta.tables.plots import bars_by_group, pareto

DOCS = Path(__file__).parents[1]
PHOTOS = DOCS.parent / "examples" / "photos"
LABELS = DOCS.parent / "examples" / "labels.txt"
#: labels of the figure that shows one adaptation step
ASKED = ["dog", "tree", "grass", "leaf", "cat", "car"]


def save(picture: Image.Image, name: str, width: int = 900) -> None:
    """Save a JPEG that is small enough for a page."""
    height = round(picture.height * width / picture.width)
    small = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    small.save(DOCS / "figures" / name, quality=78, optimize=True, progressive=True)


def tags_and_places(backbone: mltta.Backbone) -> None:
    """Draw photos with their labels as bars, and one with heat maps."""
    tagger = mltta.Tagger(backbone, LABELS, where=True)
    for name, file in (
        ("photographer", "tags.jpg"),
        ("dogs", "tags-dogs.jpg"),
        ("skyline", "tags-wrong.jpg"),
    ):
        tags = tagger(PHOTOS / f"{name}.jpg")
        photo = mltta.load_image(PHOTOS / f"{name}.jpg")
        if name == "dogs":
            save(where_sheet(photo, tags), "where.jpg")
            bars, maps = annotate(photo, tags), where_sheet(photo, tags, 3)
            bars = bars.resize((maps.width, round(bars.height * maps.width / bars.width)))
            hero = Image.new("RGB", (maps.width, bars.height + maps.height), "white")
            hero.paste(bars, (0, 0))
            hero.paste(maps, (0, bars.height))
            save(hero, "hero.jpg")
        save(annotate(photo, tags), file, 760)


def views(backbone: mltta.Backbone, columns: int = 8) -> None:
    """Draw the clean view and the first random crops."""
    image = mltta.load_image(PHOTOS / "dogs.jpg")
    preprocess = backbone.preprocess
    views = render_views(image, mltta.ViewSpec(count=2 * columns), preprocess)
    pixels = torch.from_numpy(views)  # (N, 3, S, S)
    mean, std = (torch.tensor(part)[:, None, None] for part in (preprocess.mean, preprocess.std))
    levels = ((pixels * std + mean).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    side = preprocess.size
    sheet = Image.new("RGB", (columns * (side + 6) - 6, 2 * side + 6), "white")
    for j, view in enumerate(levels):
        sheet.paste(Image.fromarray(view), ((j % columns) * (side + 6), (j // columns) * (side + 6)))
    save(sheet, "crops.jpg")


def before_and_after(backbone: mltta.Backbone) -> None:
    """Draw the softmax over a few labels before adaptation, after TPT's step and after ML-TTA's."""
    series = {}
    for name in ("clip", "tpt", "ml-tta"):
        method = mltta.create_method(name, backbone, ASKED)
        scores = method(mltta.encode_images(backbone, [PHOTOS / "dogs.jpg"], method.needs))[0]
        share = scores / len(method.branch_names)  # ML-TTA adds its two prompts' logits
        series[{"clip": "before (clip)"}.get(name, f"after {name}")] = (100 * share.softmax(-1)).tolist()
    picture = bars_by_group("dogs.jpg, before and after one step", ASKED, series, "probability, percent")
    (DOCS / "figures" / "adapted.svg").write_text(picture, encoding="utf-8")


def costs() -> None:
    """Draw mAP over cost from the measured frontier, with the best of the three scorings."""
    tables = json.loads(MEASURED.read_text(encoding="utf-8"))["frontier"]["tables"]
    for title, name in (("VOC2012 val, dev half", "voc"), ("COCO, dev sample", "coco")):
        points = {}
        for row in tables[name]["rows"]:
            entry, cost, *scores = (re.sub(r"[*]| ±.*", "", cell) for cell in row)
            points[entry] = (float(cost), max(map(float, scores[:3])))
        drawn = pareto(
            title, points, "cost: forward passes at native resolution", "mAP, best of three scorings"
        )
        (DOCS / "figures" / f"cost-{name}.svg").write_text(drawn, encoding="utf-8")


def main() -> None:
    """Draw all figures."""
    backbone = mltta.load_backbone("mini", device="cpu")
    tags_and_places(backbone)
    views(backbone)
    before_and_after(backbone)
    costs()


if __name__ == "__main__":
    main()
