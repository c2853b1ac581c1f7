"""Files of tensors: read without executing code, written with a checksum."""

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

#: classes that training loops pickle beside the weights; replaced by inert placeholders when read
_LEFTOVERS = ("torch.optim.", "collections.defaultdict", "builtins.dict", "numpy.")


class _Husk:
    """Inert placeholder for a pickled object of a training loop."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def to_bytes(tensors: Mapping[str, Array], about: Mapping[str, str]) -> bytes:
    """Return a safetensors file with a checksum; equal tensors and metadata give equal bytes."""
    torch_ = all(map(is_torch_array, tensors.values()))
    save = import_module(f"safetensors.{'torch' if torch_ else 'numpy'}").save
    data: bytes = save(dict(tensors), {**about, CHECKSUM: of_tensors(tensors, about)})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # safetensors does not sort it
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def read_file(path: Path, allow_torchscript: bool = False) -> tuple[Any, bool]:
    """Return the content of a file of tensors, and whether it is a TorchScript archive."""
    import torch

    if not path.is_file():
        raise WeightsError(f"no weights file at {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path), False
        if zipfile.is_zipfile(path) and _is_torchscript(path):
            if not allow_torchscript:
                kind = "a TorchScript archive (OpenAI's original format), which may execute code"
                todo = "If you trust its source, pass --allow-torchscript."
                raise WeightsError(f"{path} is {kind}. {todo}")
            return torch.jit.load(path, map_location="cpu").state_dict(), True  # type: ignore[no-untyped-call]
        with _husks(path):
            return torch.load(path, map_location="cpu", weights_only=True), False
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        why = "it is not a weights file, is damaged, or contains more than tensors and could execute code"
        raise WeightsError(f"{path} was refused: {why}") from error
    except Exception as error:
        raise WeightsError(f"{path} cannot be read as a weights file ({reason(error)})") from error


def reason(error: Exception) -> str:
    """Return the last line of an error message, or the type of the error if it is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _husks(path: Path) -> AbstractContextManager[Any]:
    """Allow the optimizer and scheduler of a checkpoint, read as placeholders; refuse all other classes."""
    import torch

    if not zipfile.is_zipfile(path) or not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        return nullcontext()  # the oldest format, or an old torch: only tensors are read
    named = torch.serialization.get_unsafe_globals_in_checkpoint(path)  # lists names without executing code
    known = [name for name in named if name.startswith(_LEFTOVERS)]
    dicts = ("collections.defaultdict", "builtins.dict")
    return torch.serialization.safe_globals([((lambda *_: {}) if n in dicts else _Husk, n) for n in known])


def _is_torchscript(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(map(re.compile(r"/code/|^([^/]*/)?(constants|version)\.pkl$").search, archive.namelist()))
