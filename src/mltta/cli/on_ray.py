"""`--ray`: tag on a cluster, and measure images for `mltta eval`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from mltta.cli.groups import SpreadOptions, with_synonyms
from mltta.cli.options import ANY
from mltta.cli.progress import Closing, Progress
from mltta.errors import ConfigError
from mltta.output.formats import SUFFIXES

if TYPE_CHECKING:
    from mltta.cli.tag import TagOptions
    from mltta.distributed.plan import Plan
    from mltta.distributed.tag_shards import Told
    from mltta.evaluation.measure import Spread
    from mltta.tagger import Tagger

#: options that work on one machine only
ONE_MACHINE = ["library", "annotate", "where", "watch", "keywords", "copy_to", "link_to", "format", "wide"]


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
        raise ConfigError(f"{said}; `mltta export FOLDER -o tags.csv` then converts it")
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
    then = f"`mltta export {output} -o tags.csv` converts them to one table"
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
