"""The file that says what was run: run.json of a result, and when a result is to be refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from mltta.errors import MlttaError
from mltta.methods.base import Emits, Merging
from mltta.storage import checksums
from mltta.storage.reading import LABELS, parse_json, read_bytes, reading

FORMAT = "mltta-result-2"
AGAIN = "Run its `mltta eval` command again with --fresh, or remove the folder."


def run_text(about: Mapping[str, Any]) -> bytes:
    """What run.json holds."""
    said = json.dumps(checksums.sealed({"format": FORMAT, **about}), indent=1, ensure_ascii=False) + "\n"
    return said.encode(errors="backslashreplace")


def read_run(file: Path) -> dict[str, Any]:
    """What was run, checked; the checksum is taken off."""
    todo = "it is not a result of `mltta eval`, or a damaged one"
    try:
        run = parse_json(read_bytes(file, LABELS, MlttaError), file, MlttaError, todo)
    except OSError as error:
        raise MlttaError(
            f"{file.parent} is not a result of `mltta eval`: it has no run.json that reads"
        ) from error
    if not isinstance(run, dict) or "format" not in run:
        raise MlttaError(f"{file} is not a result of `mltta eval`, or was written by an old version. {AGAIN}")
    whole = run.pop(checksums.CHECKSUM, None) == checksums.of_data(run)
    if run.pop("format", None) != FORMAT or not whole:
        raise MlttaError(f"{file} is damaged, or of another version. {AGAIN}")
    with reading(file, MlttaError, todo):
        branches, labels = run["shape"]
        if not all(isinstance(n, int) and 0 < n < 1 << 31 for n in (branches, labels, run["images"])):
            raise MlttaError(f"{file} is damaged: what it says makes no sense. {AGAIN}")
    return run


def check_run(run: Mapping[str, Any], folder: Path) -> None:
    """Refuse what cannot be compared with others: a run.json that is whole, but not one of `mltta eval`."""
    kinds: dict[str, Any] = {"labels": list, "settings": dict, "template": (str, list)}
    kinds |= dict.fromkeys(("method", "dataset", "dataset_digest", "model"), str)
    kinds |= dict.fromkeys(("teacher", "descriptions", "online", "config", "order", "seed"), object)
    with reading(folder / "run.json", MlttaError, "it is not a result of `mltta eval`"):
        known = all(isinstance(run[name], kind) for name, kind in kinds.items())
        known &= run["merge"] in get_args(Merging) and run["emits"] in get_args(Emits)
        if not known or list(map(type, run["labels"])) != [str] * run["shape"][1]:
            raise MlttaError(f"{folder / 'run.json'} is damaged: what it says makes no sense. {AGAIN}")


def damaged(folder: Path, line: int) -> MlttaError:
    """The error for a record that is not what was written."""
    return MlttaError(
        f"{folder / 'images.jsonl'}, line {line}, or its row of scores.f32, is damaged. {AGAIN}"
    )
