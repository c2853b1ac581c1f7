"""`mltta tag FOLDER` of partitions that `--ray` wrote: their tags in any other format, tagging nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mltta.cli.closing import Closing
from mltta.errors import ImageError, MlttaError
from mltta.output.gallery import for_gallery
from mltta.output.partitions import Partitions
from mltta.output.records import Page, Record
from mltta.output.screen import Screen
from mltta.output.tag_formats import file_of, lines_of, whole_of
from mltta.output.tags_file import refuse_others
from mltta.storage import atomic


def read_back(
    folders: Sequence[str], format: str, output: Path | None, *, wide: bool, overwrite: bool, quiet: bool
) -> int:
    """Write the tags of one folder, or of several that were made with the same settings, as one; the exit code."""
    held = [Partitions(folder) for folder in folders]
    for other in held[1:]:
        refuse_others(str(other.folder), held[0].settings or {}, other.settings or {})
    labels = (held[0].settings or {}).get("labels", [])
    closing = Closing(verb="read back")
    closing.start()
    records = _counted(held, closing, thumbnails=format == "html")
    if output is None:
        with Screen(format, wide=wide) as screen:
            screen.begin({}, labels)
            for record in records:
                screen.add(record, None)
            screen.finish(())
    else:
        path, lines = file_of(format, output), lines_of(format, wide)
        if path.exists() and not overwrite:
            raise MlttaError(f"{path} is there already; give another -o, or --overwrite to replace it")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as part:
            if lines is not None:
                with part.open("wb") as file:
                    for piece in lines.pieces(records):
                        file.write(piece.encode())
            else:
                images = sum(one.images for one in held)
                whole_of(format)(part, records, Page(path, images, labels, wide))
    closing.stop()
    closing.tell(None if output is None else str(output), quiet)
    return closing.code


def _counted(held: Sequence[Partitions], closing: Closing, thumbnails: bool) -> Iterator[Record]:
    for partitions in held:
        for record in partitions.records():
            closing.count(record)
            if thumbnails and "error" not in record:
                with suppress(ImageError):  # photos that are not here have none
                    record.update(for_gallery(Path(record["image"]), {}))
            yield record
