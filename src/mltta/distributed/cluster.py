"""Wrapper for Ray: lazy import, connection, and jobs for actors."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mltta.errors import ConfigError, MlttaError
from mltta.session.execution import cores

#: fraction of each CPU that a worker reserves, so that Ray's own tasks always have room
SHARE = 0.9
#: default limit of photos in progress per worker; further threads in one Python process wait for each other
MOST_THREADS = 4
#: shards passed to Ray at once, so that 100 million photos are a few thousand rows in the driver
AT_ONCE = 10_000


@dataclass(frozen=True)
class Size:
    """Number of workers and the resources of each; None chooses from the cluster's resources.

    Args:
        workers: actors, each of which loads the model once.
        threads: photos that a worker processes in parallel.
        gpus: GPUs per worker, may be a fraction.
    """

    workers: int | None = None
    threads: int | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if any(value is not None and value < 1 for value in (self.workers, self.threads)) or self.gpus < 0:
            raise ConfigError(f"workers and threads must be at least 1, and GPUs at least 0; got {self}")


@dataclass(frozen=True)
class Fitted:
    """A size that fits the cluster: workers, and the threads, CPUs and GPUs per worker."""

    workers: int
    threads: int
    cpus: float
    gpus: float


def fit(size: Size, nodes: Sequence[tuple[float, float]]) -> Fitted:
    """Choose unset values, leaving a fraction of every CPU free.

    Otherwise two workers with a full CPU each, on a cluster of two CPUs, would block Ray's reading tasks forever.

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
        raise MlttaError(f"{size.gpus:g} GPUs per worker were requested, but the cluster has {gpus:g}")
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
    """Import Ray with its data module, or raise an error with the install command."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'mltta[ray]'") from None
    return ray


@contextmanager
def connected(address: str | None = None, size: Size | None = None) -> Iterator[tuple[Any, Fitted]]:
    """Connect to Ray: an existing connection, a cluster at the address, or a local one for this block.

    Args:
        address: "local" always starts one; None or "auto" only if RAY_ADDRESS is unset and no cluster runs here.
    """
    ray = open_ray()
    if started := not ray.is_initialized():
        _connect(ray, address)
    try:
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        nodes = [(float(own.get("CPU", 0)), float(own.get("GPU", 0))) for own in alive]
        yield ray, fit(size or Size(), nodes)
    finally:
        if started:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address != "local":
            ray.init(address=address or "auto", **quiet)
            return
    except ConnectionError as error:
        if named := address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS"):
            raise MlttaError(f"cannot connect to a Ray cluster at {named}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"--ray {address} is not the address of a Ray cluster: {error}") from None
    ray.init(address="local", num_cpus=cores(), **quiet)


class Actor:
    """Actor that runs jobs: holds a worker, created once; worker and jobs are pickled."""

    def __init__(self, work: Callable[..., Callable[[Any], Any]], threads: int, *arguments: Any):
        import torch

        torch.set_num_threads(threads)
        self.work = work(*arguments)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[bytes]]:
        return {"made": [pickle.dumps(self.work(pickle.loads(job))) for job in batch["job"]]}


def spread(
    ray: Any, fitted: Fitted, jobs: Iterable[Any], work: Callable[..., Callable[[Any], Any]], *arguments: Any
) -> Iterator[Any]:
    """Yield the workers' results as they arrive; Ray repeats the jobs of a lost worker.

    Every job is a separate block: the unit that an actor processes, and that can be lost.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    waiting = iter(jobs)
    while some := [{"job": pickle.dumps(job)} for job in islice(waiting, AT_ONCE)]:
        made = ray.data.from_items(some, override_num_blocks=len(some)).map_batches(
            Actor,
            fn_constructor_args=(work, fitted.threads, *arguments),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(fitted.workers, len(some))),
            num_cpus=fitted.cpus,
            num_gpus=fitted.gpus or None,
        )
        try:
            for row in made.iter_rows():
                yield pickle.loads(row["made"])  # written by our own workers
        except ray.exceptions.RayError as error:
            raise _told(error) from error


def _told(error: BaseException) -> MlttaError:
    """A worker's error, with its own message if it is a user error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MlttaError):
            return cause
        inner = getattr(cause, "cause", None)
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    return MlttaError(f"a worker failed: {str(error).strip().splitlines()[-1]}")
