"""`--ray`: tag on a cluster, convert its output folder, and measure images for `mltta eval`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mltta.cli.groups import SpreadOptions, with_synonyms
from mltta.cli.options import ANY
from mltta.cli.progress import Closing, Progress
from mltta.errors import ConfigError, ImageError, MlttaError
from mltta.output.exchange import write_tags
from mltta.output.formats import SUFFIXES, WIDE, Page, Record, file_of, refuse_wide
from mltta.output.gallery import for_gallery
from mltta.output.partitions import Partitions
from mltta.output.screen import Screen
from mltta.output.tags_file import refuse_others
from mltta.storage import atomic

if TYPE_CHECKING:
    from mltta.cli.tag import TagOptions
    from mltta.distributed.plan import Plan
    from mltta.distributed.tag_shards import Told
    from mltta.evaluation.measure import Spread
    from mltta.tagger import Tagger

#: options that work on one machine only
ONE_MACHINE = ["annotate", "where", "watch", "keywords", "copy_to", "link_to", "format", "wide"]


def tag_on_ray(options: TagOptions, open_tagger: Callable[[TagOptions], Tagger]) -> int:
    """Tag on a cluster into a folder of partitions, print a summary and return the exit code."""
    for name in ONE_MACHINE:
        if getattr(options, name):
            why = "does not work with --ray: it needs the photos on one machine"
            raise ConfigError(f"--{name.replace('_', '-')} {why}")
    from mltta.distributed import tag
    from mltta.distributed.cluster import open_ray

    open_ray()  # fail before any work is done
    output = options.output[0] if len(options.output) == 1 else None
    if output is None or output.suffix.lower() in SUFFIXES:
        said = "--ray writes a folder with one file per shard: give the folder with -o"
        raise ConfigError(f"{said}; `mltta tag FOLDER -o tags.csv` then converts it")
    # label files are read here: workers may not have them
    asked = replace(options, labels=with_synonyms(options.labels, options), synonyms=None, wordnet=False)
    if not options.ray_gpus and options.device == "auto":
        asked = replace(asked, device="cpu")
    closing = Closing()
    with Progress(options.quiet) as bar:

        def heard(told: Told | None, plan: Plan) -> None:
            if told is None:  # the run starts
                closing.start()
                bar.begin(plan.images)
                if plan.skipped and not options.quiet:
                    typer.echo(plan.skipped, err=True)
                return
            bar.advance(told.part.images)
            closing.add(told.part.images, told.part.failed, told.before, told.labels, told.reasons)

        done = tag(
            partial(open_tagger, asked) if options.ray_gpus else open_tagger(asked),
            list(options.images),
            # Path collapses the slashes of an address
            re.sub(r"^([A-Za-z][A-Za-z0-9]+):/(?!/)", r"\1://", str(output)),
            **_cluster(options, options.ray_gpus),
            **options.chosen("shard_size", "overwrite"),
            progress=heard,
        )
        closing.stop()
    threads = " or ".join(map(str, sorted({part.threads for part in done.parts.values()})))
    then = f"`mltta tag {output} -o tags.csv` converts them to one table"
    closing.notes.append(f"{done.count:,} shards, threads per worker: {threads}; {then}")
    closing.tell(str(output), options.quiet)
    return closing.code


def spread_by(options: SpreadOptions) -> AbstractContextManager[Spread | None]:
    """Return a context whose value measures images on a cluster; None without --ray."""
    if options.ray is None:
        return nullcontext()
    from mltta.distributed import measuring

    return measuring(**_cluster(options))


def _cluster(options: SpreadOptions, gpus: float = 0.0) -> dict[str, Any]:
    from mltta.distributed import Size

    address = None if options.ray == ANY else options.ray
    return {"address": address, "size": Size(options.ray_workers, options.ray_threads, gpus)}


def read_back(
    folders: Sequence[str], outputs: Mapping[Path | None, str], *, wide: bool, overwrite: bool, quiet: bool
) -> int:
    """Convert folders of partitions with the same settings to the outputs; return the exit code."""
    held = [Partitions(folder) for folder in folders]
    for other in held[1:]:
        refuse_others(str(other.folder), held[0].settings or {}, other.settings or {})
    labels, synonyms = ((held[0].settings or {}).get(name, []) for name in ("shown_as", "synonyms"))
    images = sum(one.images for one in held)
    if wide:
        refuse_wide(outputs.values())
    files = {file_of(format, path): format for path, format in outputs.items() if path is not None}
    for path in files:
        if path.exists() and not overwrite:
            raise MlttaError(f"{path} already exists; choose another -o, or use --overwrite to replace it")
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
            write_tags(part, format, records, Page(path, images, labels, wide and format in WIDE, synonyms))
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
            with suppress(ImageError):  # the photos may not be on this machine
                record.update(for_gallery(Path(record["image"]), {}))
        yield record
