"""Complete files of tags in any format, including COCO JSON and FiftyOne datasets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from mltta.output.formats import Page, Record, printable, text_format


def write_tags(part: Path, format: str, records: Iterable[Record], page: Page) -> None:
    """Write a complete file in the given format."""
    text = text_format(format, page.wide)
    if text is not None:
        with part.open("wb") as file:
            file.writelines(piece.encode() for piece in text.pieces(records))
    elif format == "parquet":
        from mltta.output.parquet import write_parquet

        write_parquet(part, records, page)
    elif format == "html":
        from mltta.output.gallery import write_gallery

        write_gallery(part, records, page)
    elif format == "coco":
        part.write_text(coco_text(records, page), encoding="utf-8", newline="")
    else:
        write_fiftyone(part, records, page)


def coco_text(records: Iterable[Record], page: Page) -> str:
    """Return COCO JSON: images, categories, and one annotation per label of an image, with score and without box.

    Failed images have no entry; images without labels have no annotations.
    """
    numbers = {label: number for number, label in enumerate(page.labels, start=1)}
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for record in records:
        if "error" in record:
            continue
        images.append({"id": len(images) + 1, "file_name": printable(record["image"])})
        for item in record["labels"]:
            known = {"id": len(annotations) + 1, "image_id": len(images)}
            said = {"category_id": numbers[item["label"]], "score": round(item["score"], 6)}
            annotations.append(known | said)
    categories = [{"id": number, "name": label} for label, number in numbers.items()]
    parts = {"images": images, "categories": categories, "annotations": annotations}
    texts = {name: ",\n".join(map(_json, part)) for name, part in parts.items()}
    lists = ",\n".join(f'"{name}": [\n{text}\n]' for name, text in texts.items())
    return printable("{\n" + lists + "\n}\n")


def _json(held: object) -> str:
    return json.dumps(held, ensure_ascii=False)


def write_fiftyone(part: Path, records: Iterable[Record], page: Page) -> None:
    """Write labels.json of a FiftyOne image classification dataset: labels by the full path of the image.

    FiftyOne also requires a folder "data", which stays empty because paths are absolute.
    """
    page.path.with_name("data").mkdir(exist_ok=True)
    labels: dict[str, list[dict[str, object]]] = {}
    for record in records:
        if "error" not in record:
            own = [{"label": one["label"], "confidence": round(one["score"], 6)} for one in record["labels"]]
            labels[printable(str(Path(record["image"]).absolute()))] = own
    entries = ",\n".join(f"{_json(path)}: {_json(own)}" for path, own in labels.items())
    text = f'{{"classes": {_json(list(page.labels))},\n"labels": {{\n{entries}\n}}}}\n'
    part.write_text(text, encoding="utf-8", newline="")
