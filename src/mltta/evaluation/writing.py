"""Writes results record by record, and resumes after a kill."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from mltta.errors import MlttaError
from mltta.evaluation.results import Result, damaged, read_run, run_text
from mltta.evaluation.rows import Outcomes, line_of, row_bytes, row_of
from mltta.methods.base import State
from mltta.session.scorer import Scored
from mltta.storage import atomic, checksums
from mltta.storage.atomic import not_followed
from mltta.storage.lock import locked
from mltta.storage.reading import reading
from mltta.storage.tensors import to_bytes

log = logging.getLogger("mltta")


class ResultWriter:
    """Appends records; reopened after a kill, it resumes after the last complete record."""

    def __init__(
        self,
        folder: Path,
        run: Mapping[str, Any],
        targets: NDArray[np.int8],
        branches: int = 1,
        fresh: bool = False,
    ):
        """Args:
        folder: folder of the result.
        run: description of the run, as plain data; a folder of another run is refused.
        targets: (N, C), stored next to the scores.
        fresh: discard existing records.
        """
        images, labels = targets.shape
        self.folder, self.shape = folder, (branches, labels)
        self.done = np.zeros(images, bool)
        #: number of records, and of those that existed on opening
        self.count = self.resumed = 0
        truth = f"{checksums.of_bytes(targets.tobytes()):08x}"
        text = run_text({**run, "images": images, "shape": list(self.shape), "targets_crc32": truth})
        held = folder / "run.json"
        with atomic.writing(folder), ExitStack() as stack:
            folder.mkdir(parents=True, exist_ok=True)
            if held.is_file() and held.read_bytes() != text:
                try:
                    read_run(held)
                except MlttaError:
                    if not fresh:
                        raise
                else:
                    why = "contains the result of another run; remove it or use another folder"
                    raise MlttaError(f"{folder} {why}")
                held.unlink()  # it is damaged
            stack.enter_context(locked(folder / ".lock", str(folder)))
            self._records, self._scores = (
                stack.enter_context(open(folder / name, "ab+", opener=not_followed))
                for name in ("images.jsonl", "scores.f32")
            )
            if fresh:
                for name in ("state.safetensors", "summary.json", "bootstrap.json"):
                    (folder / name).unlink(missing_ok=True)
                self._records.truncate(0)
                self._scores.truncate(0)
            if not held.is_file():
                atomic.write(folder / "targets.i8", targets.tobytes(), follow=False)
                atomic.write(held, text, follow=False)
            self._resume()
            self._open = stack.pop_all()

    def retry_failed(self) -> None:
        """Process failed images again; a later record replaces an earlier one."""
        self.done[list(self._outcomes.failed)] = False
        self.resumed -= len(self._outcomes.failed)

    def all_or_nothing(self) -> None:
        """Drop the records of an incomplete run, because each depends on all images."""
        if not self.done.all():
            self._resume(at_most=0)

    def result(self) -> Result:
        """The written result; reuses the records in memory if they are complete."""
        return Result(self.folder, self._outcomes if self.count == self._outcomes.count else None)

    def write(self, records: Sequence[Scored]) -> None:
        """Append records; scores first, so that a record never refers to missing scores."""
        with atomic.writing(self.folder):
            rows = list(map(row_of, records))
            self._scores.write(b"".join(rows))
            self._scores.flush()
            self._records.write(b"".join(map(line_of, records, rows)))
            self._records.flush()
        self.done[[record.photo.index for record in records]] = True
        self.count += len(records)

    def save_state(self, state: State) -> None:
        """Save an online method's state, and the number of records it includes."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        with atomic.writing(self.folder):
            atomic.write(
                self.folder / "state.safetensors",
                to_bytes(tensors, {"records": str(self.count)}),
                follow=False,
            )

    def load_state(self) -> State | None:
        """Load the saved state and drop the records after it, which are then recomputed. None: start from scratch."""
        file = self.folder / "state.safetensors"
        kept, state = 0, None
        if file.is_file():
            try:
                kept, state = _read_state(file)
            except (MlttaError, OSError, SafetensorError) as error:
                log.warning("%s (%s): restarting from the first image", file, error)
        if kept > self.count:  # the state includes images whose records are lost
            kept, state = 0, None
        if kept < self.count:
            self._resume(at_most=kept)
        return state

    def close(self) -> None:
        with suppress(OSError):  # a full disk was reported on write
            self._open.close()

    def _resume(self, at_most: int | None = None) -> None:
        """Count the complete records, and truncate the rest."""
        found = Outcomes.read(self._records, self._scores, self.shape, len(self.done), at_most=at_most)
        if found.goes_on:
            raise damaged(self.folder, found.count + 1)
        if found.damaged:  # at the end: expected after a power cut
            where = f"{self.folder}: the records starting at line {found.count + 1}"
            log.warning("%s are damaged and will be computed again", where)
        self._outcomes = found
        self.done[:] = found.row_of >= 0
        self.done[list(found.failed)] = True
        self.count = self.resumed = found.count
        for file, size in ((self._records, found.size), (self._scores, found.rows * row_bytes(self.shape))):
            file.truncate(size)
            file.seek(0, os.SEEK_END)


def _read_state(file: Path) -> tuple[int, State]:
    """Read an online method's state, and the number of records it includes."""
    with reading(file, MlttaError, "it cannot be used"), safe_open(file, "pt") as held:
        header: dict[str, str] = held.metadata() or {}
        # copied, because a product with an unaligned tensor may round its last bit differently
        state = {name: held.get_tensor(name).clone() for name in held.keys()}  # noqa: SIM118
        kept, said = int(header["records"]), header.pop(checksums.CHECKSUM, None)
    if said != checksums.of_tensors(state, header):
        raise MlttaError("damaged, or in an older format without checksums")
    return kept, state
