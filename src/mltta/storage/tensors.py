"""Tensors in files: read without running code in them, written with a checksum."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from array_api_compat import is_torch_array

from mltta.arrays import Array
from mltta.errors import WeightsError
from mltta.storage.checksums import CHECKSUM, of_tensors

#: what training loops pickle beside the weights; it is read as a husk, and nothing of it ever runs
_LEFTOVERS = ("torch.optim.", "collections.defaultdict", "builtins.dict", "numpy.")


class _Husk:
    """Stands where a training loop's own object was; it holds what was stored and does nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def to_bytes(tensors: Mapping[str, Array], about: Mapping[str, str]) -> bytes:
    """A safetensors file with its checksum; the same tensors and words always give the same bytes."""
    torch_ = all(map(is_torch_array, tensors.values()))
    save = import_module(f"safetensors.{'torch' if torch_ else 'numpy'}").save
    data: bytes = save(dict(tensors), {**about, CHECKSUM: of_tensors(tensors, about)})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # the library knows no order
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def read_file(path: Path, allow_torchscript: bool = False) -> tuple[Any, bool]:
    """What a file of tensors holds, and whether it is a TorchScript archive."""
    import torch

    if not path.is_file():
        raise WeightsError(f"no weights file at {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path), False
        if zipfile.is_zipfile(path) and _is_torchscript(path):
            if not allow_torchscript:
                kind = "a TorchScript archive (OpenAI's original format), a program and not only tensors"
                todo = "If you trust where it comes from, pass --allow-torchscript."
                raise WeightsError(f"{path} is {kind}. {todo}")
            return torch.jit.load(path, map_location="cpu").state_dict(), True  # type: ignore[no-untyped-call]
        with _husks(path):
            return torch.load(path, map_location="cpu", weights_only=True), False
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        why = "it is no weights file, is damaged, or holds more than tensors and could run code"
        raise WeightsError(f"{path} was refused: {why}") from error
    except Exception as error:
        raise WeightsError(f"{path} is not a weights file that can be read ({reason(error)})") from error


def reason(error: Exception) -> str:
    """The last line of an error, or its kind when it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _husks(path: Path) -> AbstractContextManager[Any]:
    """Lets a checkpoint's optimizer and scheduler be read, each as a husk; all other classes stay refused."""
    import torch

    if not zipfile.is_zipfile(path) or not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        return nullcontext()  # the oldest format, or an old torch: nothing but tensors is read
    named = torch.serialization.get_unsafe_globals_in_checkpoint(path)  # lists them, runs nothing
    known = [name for name in named if name.startswith(_LEFTOVERS)]
    dicts = ("collections.defaultdict", "builtins.dict")
    return torch.serialization.safe_globals([((lambda *_: {}) if n in dicts else _Husk, n) for n in known])


def _is_torchscript(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(map(re.compile(r"/code/|^([^/]*/)?(constants|version)\.pkl$").search, archive.namelist()))
