"""What a method said about every image, on disk: written as it comes, resumed after any kill.

A result is a folder: ``run.json`` says what was run, ``images.jsonl`` has one record an image (its place in the
dataset, the labels called present, milliseconds, or why it failed), ``scores.f32`` the scores of the images that did
not fail, one row each, in the same order: (branches, C) float32, then (C,) what was shown of them; and ``targets.i8``
the truth. A row counts once its record is written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mltta.errors import MlttaError
from mltta.evaluation.records import Record, row_bytes, to_line, to_row, whole_records
from mltta.methods.base import State, branch_probabilities, merge_branches, z_scores

#: how a method's scores are compared over images
Scoring = Literal["raw", "softmax", "z-score"]


class ResultWriter:
    """Appends records; opened again after a kill, it goes on where the last whole record ended."""

    def __init__(
        self,
        folder: Path,
        run: Mapping[str, Any],
        targets: NDArray[np.int8],
        branches: int = 1,
        fresh: bool = False,
    ):
        """Args:
        folder: where the result lives.
        run: what is run, in plain data; a folder of another run is refused.
        targets: (N, C) the truth, kept beside the scores.
        fresh: forget what is there.
        """
        images, labels = targets.shape
        self.folder, self.shape = folder, (branches, labels)
        self.done = np.zeros(images, bool)
        #: records there are, and those that were there when it was opened
        self.count = self.resumed = 0
        about = {**run, "images": images, "shape": list(self.shape)}
        text = (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
        held = folder / "run.json"
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if held.is_file() and held.read_bytes() != text:
                raise MlttaError(f"{folder} holds the result of another run; remove it or write elsewhere")
            self._records = (folder / "images.jsonl").open("ab+")
            self._scores = (folder / "scores.f32").open("ab+")
            _claim(self._scores, folder)
            if fresh:
                for name in ("state.safetensors", "summary.json"):
                    (folder / name).unlink(missing_ok=True)
            if not held.is_file():
                _replace(folder / "targets.i8", targets.tobytes())
                _replace(held, text)
            self._go_on(at_most=0 if fresh else None)

    def retry_failed(self) -> None:
        """Take the images that failed for not done: a later record counts instead of an earlier one."""
        self.done[self._failed] = False
        self.resumed -= len(self._failed)

    def write(self, records: Sequence[Record]) -> None:
        """Append records: scores first, so that a record never points at scores that are not there."""
        with _writing(self.folder):
            for record in records:
                if record.scores is not None:
                    self._scores.write(to_row(record))
            self._scores.flush()
            for record in records:
                self._records.write(to_line(record))
            self._records.flush()
        self.done[[record.index for record in records]] = True
        self.count += len(records)

    def save_state(self, state: State) -> None:
        """Keep an online method's memory, and how many records it has seen."""
        part = self.folder / f"state.{os.getpid()}"
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        with _writing(self.folder):
            save_file(tensors, part, {"records": str(self.count)})
            part.replace(self.folder / "state.safetensors")

    def load_state(self) -> State | None:
        """The kept memory; records after it are dropped, to be made again from it. None: start from nothing."""
        file = self.folder / "state.safetensors"
        kept, state = 0, None
        if file.is_file():
            try:
                with safe_open(file, "pt") as held:
                    kept = int(held.metadata()["records"])
                    # copied, because a product with an unaligned tensor may round its last bit another way
                    state = {name: held.get_tensor(name).clone() for name in held.keys()}  # noqa: SIM118
            except (OSError, SafetensorError):
                kept, state = 0, None
        if kept > self.count:  # it remembers images whose records are lost
            kept, state = 0, None
        self._go_on(at_most=kept)
        return state

    def close(self) -> None:
        for file in (self._records, self._scores):
            with suppress(OSError):  # what a full disk did not take was told when it was written
                file.close()

    def _go_on(self, at_most: int | None = None) -> None:
        """Count the whole records that are there, and cut off what comes after them."""
        self._records.seek(0)
        self.done[:] = False
        failed: set[int] = set()
        end = rows = count = 0
        for record, size in islice(whole_records(self._records, self._scores, self.shape), at_most):
            rows += record.get("error") is None
            (failed.discard if record.get("error") is None else failed.add)(record["index"])
            count += 1
            end += size
            self.done[record["index"]] = True
        self._failed = sorted(failed)
        self.count = self.resumed = count
        self._records.truncate(end)
        self._records.seek(0, os.SEEK_END)
        self._scores.truncate(rows * row_bytes(self.shape))
        self._scores.seek(0, os.SEEK_END)


class Result:
    """A result read back; complete or not."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        try:
            self.run: dict[str, Any] = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
            self.shape: tuple[int, int] = tuple(self.run["shape"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MlttaError(
                f"{folder} is not a result of `mltta eval`: it has no run.json that reads"
            ) from error
        for name in ("images.jsonl", "scores.f32", "targets.i8"):
            if not (self.folder / name).is_file():
                raise MlttaError(
                    f"{folder} is not a whole result: its {name} is missing. Run `mltta eval` again."
                )

    @property
    def title(self) -> str:
        """The method, and what of its settings is not the paper's."""
        said = ["self-taught"] * (self.run["teacher"] == "self")
        said += [f"{name}={value}" for name, value in self.run["settings"].items()]
        return str(self.run["method"]) + (f" ({', '.join(said)})" if said else "")

    def __len__(self) -> int:
        """Images of the dataset."""
        return int(self.run["images"])

    def targets(self) -> NDArray[np.int8]:
        """The truth (images with scores, C): 1 present, 0 absent, -1 left out."""
        shape = (len(self), self.shape[1])
        held: NDArray[np.int8] = np.memmap(self.folder / "targets.i8", np.int8, "r", shape=shape)
        return held if len(self.scored) == len(self) else held[self.scored]

    def records(self) -> Iterator[dict[str, Any]]:
        """The whole records, in the order they were written."""
        with (
            (self.folder / "images.jsonl").open("rb") as file,
            (self.folder / "scores.f32").open("rb") as scores,
        ):
            yield from (record for record, _ in whole_records(file, scores, self.shape))

    @cached_property
    def _read(self) -> _Columns:
        return _Columns.of(self)

    @property
    def scored(self) -> NDArray[np.int64]:
        """Places in the dataset of the images that have scores, rising."""
        return self._read.scored

    @property
    def failed(self) -> dict[str, str]:
        """Why images have no scores, by id."""
        return self._read.failed

    @property
    def complete(self) -> bool:
        return len(self.scored) + len(self.failed) == len(self)

    @property
    def ms(self) -> float:
        """Mean milliseconds an image took beyond its encoding."""
        return self._read.ms

    @property
    def state_bytes(self) -> int:
        """Size of an online method's memory at the end."""
        file = self.folder / "state.safetensors"
        return file.stat().st_size if file.is_file() else 0

    def branches(self) -> NDArray[np.float32]:
        """Scores (images with scores, branches, C), in the dataset's order."""
        return self._rows()[:, :-1]

    def shown(self) -> NDArray[np.float32]:
        """How sure the decision was of each label (images with scores, C): what a tagger shows."""
        return self._rows()[:, -1]

    def _rows(self) -> NDArray[np.float32]:
        rows, (branches, labels) = self._read.rows, self.shape
        held: NDArray[np.float32] = np.memmap(
            self.folder / "scores.f32", np.float32, "r", shape=(len(rows), branches + 1, labels)
        )
        return held if (rows == np.arange(len(rows))).all() else held[rows]

    def scores(self, how: Scoring = "raw") -> NDArray[np.float32]:
        """Final scores (images with scores, C): merged as the method does it, softmax over the labels, or z-scores.

        A z-score says how many standard deviations a label lies above the mean of its image's labels.
        """
        branches = self.branches()
        if how == "raw" and self.run["merge"] == "sum" and self.shape[0] == 1:
            return branches[:, 0]  # still on disk
        stacked = torch.from_numpy(np.array(branches))
        if how == "softmax":
            return branch_probabilities(stacked, self.run["emits"]).numpy()
        merged = merge_branches(stacked, self.run["merge"])
        return (z_scores(merged) if how == "z-score" else merged).numpy()

    def present(self) -> NDArray[np.bool_]:
        """Which labels were called present (images with scores, C)."""
        hot = np.zeros((len(self), self.shape[1]), bool)
        for record in self.records():
            hot[record["index"], record.get("present", [])] = True
        return hot[self.scored]


@dataclass(frozen=True)
class _Columns:
    """The records as arrays, without their text."""

    scored: NDArray[np.int64]
    rows: NDArray[np.int64]
    failed: dict[str, str]
    ms: float

    @classmethod
    def of(cls, result: Result) -> _Columns:
        row_of = np.full(len(result), -1, np.int64)
        failed: dict[str, str] = {}
        row, ms = 0, 0.0
        for record in result.records():
            if record.get("error") is not None:
                failed[record["id"]] = record["error"]
                continue
            failed.pop(record["id"], None)  # it failed in an earlier call
            row_of[record["index"]] = row
            row, ms = row + 1, ms + record["ms"]
        scored = (row_of >= 0).nonzero()[0]
        return cls(scored, row_of[scored], failed, ms / max(row, 1))


def find_results(paths: Sequence[str | Path]) -> list[Result]:
    """Results given as their folders, or as folders that hold some; each once."""
    found: dict[Path, Result] = {}
    for path in map(Path, paths):
        inside = [path] if (path / "run.json").is_file() else [file.parent for file in path.rglob("run.json")]
        if not inside:
            raise MlttaError(f"no result in {path}: give a folder that `mltta eval` wrote")
        for folder in sorted(inside):
            found.setdefault(folder.resolve(), Result(folder))
    return list(found.values())


def run_name(run: Mapping[str, Any]) -> str:
    """A short name for a run that differs when anything about it does."""
    return hashlib.blake2b(json.dumps(run, sort_keys=True).encode(), digest_size=4).hexdigest()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn what a disk may say into words for the user."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise MlttaError(
            f"results cannot be written to {folder}: {why}; when that is mended, the same command goes on from here"
        ) from error


def _claim(file: IO[bytes], folder: Path) -> None:
    """Refuse a result that another process writes to, whose rows would come between ours."""
    try:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise MlttaError(
            f"{folder} is being written by another process; wait until it ends, or stop it"
        ) from None
    except (ImportError, OSError):
        return  # no locks on this system or this disk


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(file)
