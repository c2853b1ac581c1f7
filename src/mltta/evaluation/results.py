"""A method's results for every image, on disk.

A result is a folder. ``run.json`` describes the run. ``images.jsonl`` has one record per image (index in the dataset,
labels shown, milliseconds, or the error). ``scores.f32`` has the scores of images without errors, one row per image in
the same order: (branches, C) float32, then (C,) scores of the decision. ``targets.i8`` has the targets.
All files are verified against checksums when read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mltta.errors import MlttaError
from mltta.evaluation.rows import Outcomes
from mltta.labels.sets import MOST_LABELS
from mltta.methods.base import Emits, Merging, branch_probabilities, merge_branches, z_scores
from mltta.storage import checksums
from mltta.storage.reading import LABELS, read_bytes, reading
from mltta.storage.rules import whole

#: how scores are made comparable between images
Scoring = Literal["raw", "softmax", "z-score"]
FORMAT = "mltta-result-2"
#: of a result, so that its arrays fit into memory
MOST_IMAGES, MOST_BRANCHES = 1 << 25, 256
AGAIN = "Rerun its `mltta eval` command with --fresh, or remove the folder."


def run_text(about: Mapping[str, Any]) -> bytes:
    """Content of run.json."""
    said = json.dumps(checksums.sealed({"format": FORMAT, **about}), indent=1, ensure_ascii=False) + "\n"
    return said.encode(errors="backslashreplace")


def read_run(file: Path) -> dict[str, Any]:
    """Read and validate a run's description, without its checksum."""
    try:
        run = checksums.unsealed(read_bytes(file, LABELS, MlttaError), FORMAT)
    except OSError:
        why = "run.json is missing or unreadable"
        raise MlttaError(f"{file.parent} is not a result of `mltta eval`: {why}") from None
    if run is None:
        raise MlttaError(f"{file} is not a result of `mltta eval`, outdated or damaged. {AGAIN}")
    with reading(file, MlttaError, AGAIN):
        branches, labels = run["shape"]
        sizes = ((branches, MOST_BRANCHES), (labels, MOST_LABELS), (run["images"], MOST_IMAGES))
        if not all(whole(most, 1)(number) for number, most in sizes):
            raise MlttaError(f"{file} is damaged: invalid values. {AGAIN}")
    return {name: said for name, said in run.items() if name not in ("format", checksums.CHECKSUM)}


def check_run(run: Mapping[str, Any], folder: Path) -> None:
    """Raise if a run.json is intact but lacks the fields of `mltta eval`."""
    kinds: dict[str, Any] = {"labels": list, "settings": dict, "template": (str, list)}
    kinds |= dict.fromkeys(("method", "dataset", "dataset_digest", "model"), str)
    kinds |= dict.fromkeys(("teacher", "descriptions", "online", "config", "order", "seed"), object)
    with reading(folder / "run.json", MlttaError, "it is not a result of `mltta eval`"):
        known = all(isinstance(run[name], kind) for name, kind in kinds.items())
        known &= run["merge"] in get_args(Merging) and run["emits"] in get_args(Emits)
        if not known or list(map(type, run["labels"])) != [str] * run["shape"][1]:
            raise MlttaError(f"{folder / 'run.json'} is damaged: invalid values. {AGAIN}")


def damaged(folder: Path, line: int) -> MlttaError:
    """The error for a damaged record."""
    file = folder / "images.jsonl"
    return MlttaError(f"{file}, line {line}, or its row of scores.f32, is damaged. {AGAIN}")


class Result:
    """A saved result, complete or not."""

    def __init__(self, folder: str | Path, outcomes: Outcomes | None = None):
        """Args:
        outcomes: its records, if already read.
        """
        self.folder = Path(folder)
        if outcomes is not None:
            self._outcomes = outcomes
        #: description of the run
        self.run: dict[str, Any] = read_run(self.folder / "run.json")
        truth = self.run.pop("targets_crc32", None)
        self.shape: tuple[int, int] = tuple(self.run["shape"])
        for name in ("images.jsonl", "scores.f32", "targets.i8"):
            if not (self.folder / name).is_file():
                why = f"{name} is missing. Rerun `mltta eval`."
                raise MlttaError(f"{folder} is an incomplete result: {why}")
        targets = self.folder / "targets.i8"
        if targets.stat().st_size != len(self) * self.shape[1] or checksums.of_file(targets) != truth:
            raise MlttaError(f"{targets} is damaged. {AGAIN}")

    @property
    def title(self) -> str:
        """The method, and the settings that differ from the paper's."""
        said = ["self-taught"] * (self.run["teacher"] == "self")
        said += [f"{name}={value}" for name, value in self.run["settings"].items()]
        return str(self.run["method"]) + (f" ({', '.join(said)})" if said else "")

    def __len__(self) -> int:
        """Number of images in the dataset."""
        return int(self.run["images"])

    def targets(self) -> NDArray[np.int8]:
        """Targets (images with scores, C): 1 present, 0 absent, -1 ignored."""
        shape = (len(self), self.shape[1])
        held: NDArray[np.int8] = np.memmap(self.folder / "targets.i8", np.int8, "r", shape=shape)
        return held if len(self.scored) == len(self) else held[self.scored]

    @cached_property
    def _outcomes(self) -> Outcomes:
        """The records, verified against their checksums."""
        lines, rows = self.folder / "images.jsonl", self.folder / "scores.f32"
        with lines.open("rb") as records, rows.open("rb") as scores:
            found = Outcomes.read(records, scores, self.shape, len(self))
        if found.damaged:
            raise damaged(self.folder, found.count + 1)
        return found

    @cached_property
    def scored(self) -> NDArray[np.int64]:
        """Dataset indices of the images with scores, ascending."""
        return (self._outcomes.row_of >= 0).nonzero()[0]

    @property
    def failed(self) -> dict[str, str]:
        """Errors of images without scores, by id."""
        return dict(self._outcomes.failed.values())

    @property
    def complete(self) -> bool:
        return len(self.scored) + len(self._outcomes.failed) == len(self)

    @property
    def ms(self) -> float:
        """Mean milliseconds per image, without encoding."""
        return self._outcomes.ms / max(self._outcomes.rows, 1)

    @property
    def digest(self) -> str:
        """Digest of everything that metrics depend on."""
        return " ".join(checksums.of_file(self.folder / name) for name in ("run.json", "images.jsonl"))

    @property
    def state_bytes(self) -> int:
        """Final size of an online method's state, in bytes."""
        file = self.folder / "state.safetensors"
        return file.stat().st_size if file.is_file() else 0

    def branches(self) -> NDArray[np.float32]:
        """Scores (images with scores, branches, C), in dataset order."""
        return self._rows()[:, :-1]

    def shown(self) -> NDArray[np.float32]:
        """Scores of the decision (images with scores, C), as shown by a tagger."""
        return self._rows()[:, -1]

    def _rows(self) -> NDArray[np.float32]:
        order, (branches, labels) = self._outcomes.row_of[self.scored], self.shape
        shape = (self._outcomes.rows, branches + 1, labels)
        held: NDArray[np.float32] = np.memmap(self.folder / "scores.f32", np.float32, "r", shape=shape)
        return held if (order == np.arange(len(held))).all() else held[order]

    def scores(self, how: Scoring = "raw") -> NDArray[np.float32]:
        """Final scores (images with scores, C): merged by the method, softmax over labels, or z-scores.

        A z-score is the number of standard deviations above the mean of the image's labels.
        """
        if how == "raw" and self.run["merge"] == "sum" and self.shape[0] == 1:
            return self.branches()[:, 0]  # memory-mapped
        stacked = np.array(self.branches())
        if how == "softmax":
            return np.asarray(branch_probabilities(stacked, self.run["emits"]))
        merged = merge_branches(stacked, self.run["merge"])
        return np.asarray(z_scores(merged) if how == "z-score" else merged)

    def present(self) -> NDArray[np.bool_]:
        """Mask of labels shown (images with scores, C)."""
        return self._outcomes.present(self.shape[1])[self._outcomes.row_of[self.scored]]


def find_results(paths: Sequence[str | Path]) -> list[Result]:
    """Find results in folders, directly or one level below; each is returned once."""
    found: dict[Path, Result] = {}
    for path in map(Path, paths):
        inside = [path] if (path / "run.json").is_file() else [file.parent for file in path.rglob("run.json")]
        if not inside:
            raise MlttaError(f"no result in {path}: give a folder written by `mltta eval`")
        for folder in sorted(inside):
            found.setdefault(folder.resolve(), Result(folder))
    return list(found.values())


def run_name(run: Mapping[str, Any]) -> str:
    """A short name that is unique for a run's description."""
    return hashlib.blake2b(json.dumps(run, sort_keys=True).encode(), digest_size=4).hexdigest()
