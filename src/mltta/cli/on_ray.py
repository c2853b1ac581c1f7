"""`--ray`: the option whose address may be left out, and `mltta tag` on a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from mltta.cli.groups import SpreadOptions, with_synonyms
from mltta.cli.tag_options import TagOptions, open_tagger
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.distributed.plan import Plan
    from mltta.distributed.tag_shards import Told
    from mltta.evaluation.measure import Spread

#: a cluster that runs here already, or one that is started for the run
ANY = "auto"
_ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+")


class WithRay(TyperCommand):
    """A command whose ``--ray`` takes an address or none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        said = []
        for word, after in zip_longest(args, args[1:], fillvalue=""):
            bare = word == "--ray" and not _ADDRESS.fullmatch(after)
            said.append(f"--ray={ANY}" if bare else word)
        return super().parse_args(ctx, said)


def refuse_with_ray(options: TagOptions, *names: str) -> None:
    """Refuse what needs the photos, or the order, of one machine."""
    asked = [name for name in names if getattr(options, name)]
    if asked:
        flag = asked[0].replace("_", "-")
        raise ConfigError(f"--{flag} does not work with --ray: it runs on one machine, where the photos are")


def tag_on_ray(options: TagOptions) -> int:
    """Tag on a cluster into a folder of partitions, tell how it went, and give the exit code."""
    from mltta.cli.closing import Closing
    from mltta.cli.progress import Progress
    from mltta.distributed import tag
    from mltta.distributed.cluster import Size, open_ray
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
            address=None if options.ray == ANY else options.ray,
            size=Size(options.ray_workers, options.ray_threads, options.ray_gpus),
            shard_size=options.shard_size,
            overwrite=options.overwrite,
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
    from mltta.distributed import Size, measuring

    address = None if options.ray == ANY else options.ray
    with measuring(address, Size(options.ray_workers, options.ray_threads)) as spread:
        yield spread


def _address(output: Path) -> str:
    """A path, or an address whose slashes a path has swallowed."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9]+):/(?!/)", r"\1://", str(output))
