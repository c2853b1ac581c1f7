"""Ray as it is needed here: imported late, connected to, and what of it each worker takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mltta.errors import ConfigError, MlttaError
from mltta.session.execution import cores

#: of each CPU a worker takes so much, so that Ray's own tasks always find room
SHARE = 0.9
#: photos side by side in a worker that is not told otherwise; more threads of one Python wait for each other
MOST_THREADS = 4
#: shards handed to Ray at once, so that a hundred million photos are a few thousand rows in the driver
AT_ONCE = 10_000


@dataclass(frozen=True)
class Size:
    """How many workers there are, and what each takes; None is chosen from what the cluster has.

    Args:
        workers: actors, each of which loads the model once.
        threads: photos that a worker has under way side by side.
        gpus: GPUs a worker, or a part of one.
    """

    workers: int | None = None
    threads: int | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if any(value is not None and value < 1 for value in (self.workers, self.threads)) or self.gpus < 0:
            raise ConfigError(f"give at least 1 worker, 1 thread and no less than 0 GPUs, not {self}")


@dataclass(frozen=True)
class Fitted:
    """A size that fits the cluster: workers, the threads and CPUs and GPUs of each."""

    workers: int
    threads: int
    cpus: float
    gpus: float


def fit(size: Size, nodes: Sequence[tuple[float, float]]) -> Fitted:
    """Choose what was left open, and leave a part of every CPU to others.

    Two workers with a whole CPU each on a cluster of two CPUs would leave none to read with, and wait for ever.

    Args:
        nodes: CPUs and GPUs of each machine.

    Example:
        >>> fit(Size(workers=2), [(2.0, 0.0)])
        Fitted(workers=2, threads=1, cpus=0.9, gpus=0.0)
    """
    cpus, gpus = sum(own for own, _ in nodes), sum(own for _, own in nodes)
    if cpus <= 0:
        raise MlttaError("the cluster has no CPUs: start its nodes with --num-cpus")
    if size.gpus and gpus < size.gpus:
        raise MlttaError(f"{size.gpus:g} GPUs a worker were asked for, and the cluster has {gpus:g}")
    workers, threads = size.workers, size.threads
    if size.gpus:
        workers = workers or max(1, int(gpus / size.gpus))
    elif workers is None:
        threads = threads or max(1, min(MOST_THREADS, int(min(own for own, _ in nodes if own > 0))))
        workers = max(1, sum(int(own // threads) for own, _ in nodes))
    threads = threads or max(1, int(cpus // workers))
    taken = min(SHARE * threads, SHARE * cpus / workers)
    return Fitted(workers, threads, int(1000 * taken) / 1000, size.gpus)


def open_ray() -> Any:
    """Ray with its data part, or what to install."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'mltta[ray]'") from None
    return ray


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Ray, connected: to an address, a cluster that runs here or that RAY_ADDRESS names, else one for this block.

    Args:
        address: "local" always starts one of this machine; None or "auto" does where there is no other.
    """
    ray = open_ray()
    if ray.is_initialized():
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == "local":
            raise ConnectionError
        ray.init(address=address or "auto", **quiet)
    except ConnectionError as error:
        if address not in (None, "auto", "local") or (address != "local" and os.environ.get("RAY_ADDRESS")):
            raise MlttaError(
                f"no Ray cluster answers at {address or os.environ['RAY_ADDRESS']}: {error}"
            ) from None
        ray.init(address="local", num_cpus=cores(), **quiet)
    except ValueError as error:
        raise ConfigError(f"--ray {address} is no address of a Ray cluster: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def nodes_of(ray: Any) -> list[tuple[float, float]]:
    """CPUs and GPUs of each machine of a cluster."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(float(own.get("CPU", 0)), float(own.get("GPU", 0))) for own in alive]


def spread(
    ray: Any, work: type, arguments: Sequence[Any], rows: Iterable[dict[str, Any]], fitted: Fitted
) -> Iterator[dict[str, Any]]:
    """What actors of a class make of each row, as it comes; Ray does the rows of a lost actor again.

    Every row is a block of its own: what one actor takes at a time, and what is lost with it.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    waiting = iter(rows)
    while some := list(islice(waiting, AT_ONCE)):
        spread_out = ray.data.from_items(some, override_num_blocks=len(some)).map_batches(
            work,
            fn_constructor_args=tuple(arguments),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(fitted.workers, len(some))),
            num_cpus=fitted.cpus,
            num_gpus=fitted.gpus or None,
        )
        try:
            yield from spread_out.iter_rows()
        except ray.exceptions.RayError as error:
            raise _said(error) from error


def _said(error: BaseException) -> MlttaError:
    """What a worker raised, in its own words where they were meant for people."""
    cause: BaseException | None = error
    while cause is not None:
        inner = getattr(cause, "cause", None)
        if isinstance(cause, MlttaError):
            return cause
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    return MlttaError(f"a worker failed: {str(error).strip().splitlines()[-1]}")
