"""`--ray`: `mltta tag` on a cluster, and what has a cluster measure images for `mltta eval`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mltta.cli.groups import SpreadOptions, with_synonyms
from mltta.cli.options import ANY
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.cli.tag import TagOptions
    from mltta.distributed.plan import Plan
    from mltta.distributed.tag_shards import Told
    from mltta.evaluation.measure import Spread
    from mltta.tagger import Tagger

#: what needs the photos, or the order, of one machine
ONE_MACHINE = ["annotate", "where", "watch", "keywords", "copy_to", "link_to", "format", "wide"]


def tag_on_ray(options: TagOptions, open_tagger: Callable[[TagOptions], Tagger]) -> int:
    """Tag on a cluster into a folder of partitions, tell how it went, and give the exit code."""
    for name in ONE_MACHINE:
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise ConfigError(
                f"--{flag} does not work with --ray: it runs on one machine, where the photos are"
            )
    from mltta.cli.progress import Closing, Progress
    from mltta.distributed import tag
    from mltta.distributed.cluster import open_ray
    from mltta.output.formats import SUFFIXES

    open_ray()  # before any work is done
    output = options.output[0] if len(options.output) == 1 else None
    if output is None or output.suffix.lower() in SUFFIXES:
        raise ConfigError(
            "--ray writes a folder with one file per shard: give it with -o; `mltta tag FOLDER -o tags.csv` then "
            "converts it"
        )
    # label files are read here: workers may not have them
    asked = replace(options, labels=with_synonyms(options.labels, options), synonyms=None, wordnet=False)
    if not options.ray_gpus and options.device == "auto":
        asked = replace(asked, device="cpu")
    closing = Closing()
    with Progress(options.quiet) as bar:

        def heard(told: Told | None, plan: Plan) -> None:
            if told is None:  # it begins
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
            _address(output),
            **_cluster(options, options.ray_gpus),
            **options.chosen("shard_size", "overwrite"),
            progress=heard,
        )
        closing.stop()
    threads_used = sorted({part.threads for part in done.parts.values()})
    closing.notes.append(
        f"{done.count:,} shards, threads per worker: {' or '.join(map(str, threads_used))}; "
        f"`mltta tag {output} -o tags.csv` makes one table of them"
    )
    closing.tell(str(output), options.quiet)
    return closing.code


@contextmanager
def spread_by(options: SpreadOptions) -> Iterator[Spread | None]:
    """What has a cluster measure images, if one was asked for."""
    if options.ray is None:
        yield None
        return
    from mltta.distributed import measuring

    with measuring(**_cluster(options)) as spread:
        yield spread


def _cluster(options: SpreadOptions, gpus: float = 0.0) -> dict[str, Any]:
    from mltta.distributed import Size

    address = None if options.ray == ANY else options.ray
    return {"address": address, "size": Size(options.ray_workers, options.ray_threads, gpus)}


def _address(output: Path) -> str:
    """A path, or an address whose slashes a path has swallowed."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9]+):/(?!/)", r"\1://", str(output))
