"""`mltta tag FOLDER` of partitions that `--ray` wrote: their tags in any other format, tagging nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mltta.cli.progress import Closing
from mltta.errors import ImageError, MlttaError
from mltta.output.exchange import write_tags
from mltta.output.formats import WIDE, Page, Record, file_of, refuse_wide
from mltta.output.gallery import for_gallery
from mltta.output.partitions import Partitions
from mltta.output.screen import Screen
from mltta.output.tags_file import refuse_others
from mltta.storage import atomic


def read_back(
    folders: Sequence[str], outputs: Mapping[Path | None, str], *, wide: bool, overwrite: bool, quiet: bool
) -> int:
    """Write the tags of one folder, or of several that were made with the same settings, as one; the exit code."""
    held = [Partitions(folder) for folder in folders]
    for other in held[1:]:
        refuse_others(str(other.folder), held[0].settings or {}, other.settings or {})
    labels, images = (held[0].settings or {}).get("labels", []), sum(one.images for one in held)
    if wide:
        refuse_wide(outputs.values())
    files = {file_of(format, path): format for path, format in outputs.items() if path is not None}
    there = next((path for path in files if path.exists() and not overwrite), None)
    if there is not None:
        raise MlttaError(f"{there} exists; give another -o, or --overwrite to replace it")
    closing = Closing(verb="read back")
    closing.start()
    if not files:
        with Screen(next(iter(outputs.values())), wide=wide) as screen:
            screen.begin({}, labels)
            for record in _records(held, closing):
                screen.add(record, None)
    for number, (path, format) in enumerate(files.items()):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as part:
            records = _records(held, None if number else closing, thumbnails=format == "html")
            write_tags(part, format, records, Page(path, images, labels, wide and format in WIDE))
    closing.stop()
    closing.tell(", ".join(str(path) for path in outputs if path is not None), quiet)
    return closing.code


def _records(
    held: Sequence[Partitions], closing: Closing | None, thumbnails: bool = False
) -> Iterator[Record]:
    for record in (record for partitions in held for record in partitions.records()):
        if closing is not None:
            closing.count(record)
        if thumbnails and "error" not in record:
            with suppress(ImageError):  # photos that are not here have none
                record.update(for_gallery(Path(record["image"]), {}))
        yield record
