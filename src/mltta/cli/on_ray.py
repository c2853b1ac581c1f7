"""`--ray`: the option whose address may be left out, what goes with it, and `mltta tag` on a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.distributed.cluster import Size
    from mltta.distributed.plan import Plan
    from mltta.distributed.worker import Told
    from mltta.evaluation.measure import Spread
    from mltta.tagger import Tagger

CLUSTER = "Cluster"
#: a cluster that runs here already, or one that is started for the run
ANY = "auto"
_ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+")

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Spread the work with Ray: over a cluster at an address, one that runs here, or this machine's cores.",
        rich_help_panel=CLUSTER,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--ray-workers", min=1, help="Workers; by default all CPUs or GPUs.", rich_help_panel=CLUSTER
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--ray-threads", min=1, help="Photos side by side in a worker.", rich_help_panel=CLUSTER),
]
Gpus = Annotated[
    float,
    typer.Option("--ray-gpus", min=0, help="GPUs a worker, or a part of one.", rich_help_panel=CLUSTER),
]
ShardSize = Annotated[
    int | None,
    typer.Option(
        "--shard-size",
        min=1,
        help="Photos of a shard; by default 32, growing to 1,024.",
        rich_help_panel=CLUSTER,
    ),
]


class WithRay(TyperCommand):
    """A command whose ``--ray`` takes an address or none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        said = []
        for word, after in zip_longest(args, args[1:], fillvalue=""):
            bare = word == "--ray" and not _ADDRESS.fullmatch(after)
            said.append(f"--ray={ANY}" if bare else word)
        return super().parse_args(ctx, said)


def refuse_with_ray(given: Mapping[str, object]) -> None:
    """Refuse what needs the photos, or the order, of one machine."""
    asked = [name for name, value in given.items() if value]
    if asked:
        raise ConfigError(
            f"{asked[0]} does not go with --ray: it is done on one machine, with the photos at hand"
        )


def tag_on_ray(
    asked: Callable[[], Callable[[], Tagger]],
    given: list[str],
    output: Path | None,
    *,
    address: str,
    size: Size,
    shard_size: int | None,
    overwrite: bool,
    quiet: bool,
) -> int:
    """Tag on a cluster into a folder of partitions, tell how it went, and give the exit code."""
    from mltta.cli.closing import Closing
    from mltta.cli.progress import Progress
    from mltta.distributed import tag
    from mltta.distributed.cluster import open_ray
    from mltta.output.formats import SUFFIXES

    open_ray()  # before any work is done
    if output is None or output.suffix.lower() in SUFFIXES:
        raise ConfigError(
            "--ray writes a folder, a file a shard: give one with -o; then `mltta tag FOLDER -o tags.csv` makes any "
            "other format of it"
        )
    build = asked()
    closing = Closing()
    with Progress(quiet) as bar:

        def heard(told: Told | None, plan: Plan) -> None:
            if told is None:  # it begins
                closing.start()
                bar.begin(plan.images)
                if plan.skipped and not quiet:
                    typer.echo(plan.skipped, err=True)
                return
            bar.advance(told.part.images)
            closing.add(told.part.images, told.part.failed, told.before, told.labels, told.reasons)

        done = tag(
            build if size.gpus else build(),
            given,
            _address(output),
            address=None if address == ANY else address,
            size=size,
            shard_size=shard_size,
            overwrite=overwrite,
            progress=heard,
        )
        closing.stop()
    threads_used = sorted({part.threads for part in done.parts.values()})
    closing.notes.append(
        f"{done.count:,} shards, threads per worker: {' or '.join(map(str, threads_used))}; "
        f"`mltta tag {output} -o tags.csv` makes one table of them"
    )
    closing.tell(str(output), quiet)
    return closing.code


@contextmanager
def spread_by(address: str | None, workers: int | None, threads: int | None) -> Iterator[Spread | None]:
    """What has a cluster measure images, where one was asked for."""
    if address is None:
        yield None
        return
    from mltta.distributed import Size, measuring

    with measuring(None if address == ANY else address, Size(workers, threads)) as spread:
        yield spread


def _address(output: Path) -> str:
    """A path, or an address whose slashes a path has swallowed."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9]+):/(?!/)", r"\1://", str(output))


def tagger_of(backbone: Mapping[str, Any], labels: Any, method: str, asked: Mapping[str, Any]) -> Tagger:
    """The tagger that options describe; here or, sent there, where a worker is."""
    from mltta.cli.options import open_backbone
    from mltta.tagger import Tagger

    return Tagger(open_backbone(**backbone), labels, method, **asked)


def builder(
    backbone: Mapping[str, Any], labels: Any, method: str, asked: Mapping[str, Any]
) -> Callable[[], Tagger]:
    """How to make that tagger."""
    return partial(tagger_of, backbone, labels, method, asked)
