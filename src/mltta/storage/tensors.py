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
_SCRIPT = re.compile(r"/code/|^([^/]*/)?(constants|version)\.pkl$")
#: bytes at the end of a zip archive that describe it, and bytes of the list of its parts
_TAIL, _MOST_LISTED = 1 << 17, 1 << 24


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

            return _plain(load_file(path), path), False
        if zipfile.is_zipfile(path) and any(map(_SCRIPT.search, checked_archive(path))):
            if not allow_torchscript:
                kind = "a TorchScript archive (OpenAI's original format), which may execute code"
                todo = "If you trust its source, pass --allow-torchscript."
                raise WeightsError(f"{path} is {kind}. {todo}")
            return torch.jit.load(path, map_location="cpu").state_dict(), True  # type: ignore[no-untyped-call]
        with _husks(path):
            return _plain(torch.load(path, map_location="cpu", weights_only=True), path), False
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


def checked_archive(path: Path) -> list[str]:
    """Return the names in a zip archive as PyTorch writes it: its tensors not compressed, its list short."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        tail = file.read()
    # the size of the list, in the record of small and in that of large archives
    for mark, place, size in ((b"PK\5\6", 12, 4), (b"PK\6\6", 40, 8)):
        at = tail.rfind(mark)
        listed = int.from_bytes(tail[at + place : at + place + size], "little") if at >= 0 else 0
        if listed > _MOST_LISTED and listed != (1 << 8 * size) - 1:
            raise WeightsError(f"{path} was refused: it lists more parts than any weights file")
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > 2 * path.stat().st_size + _MOST_LISTED:
            raise WeightsError(
                f"{path} is compressed, which PyTorch's files are not: unpack and save it again"
            )
        return archive.namelist()


def _plain(found: Any, path: Path) -> Any:
    """Refuse tensors that are not dense numbers in the file: their values cannot be used, or need far more memory."""
    import torch

    kinds = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8}
    kinds |= {torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2}
    held = dict(found) if isinstance(found, dict) else {"the tensor": found}
    held |= held["state_dict"] if isinstance(held.get("state_dict"), dict) else {}
    total = 0
    for name, value in ((name, one) for name, one in held.items() if isinstance(one, torch.Tensor)):
        dense = value.layout is torch.strided and value.device.type == "cpu" and not value.is_nested
        size = value.numel() * value.element_size() if dense and value.dtype in kinds else -1
        if not 0 <= size <= value.untyped_storage().nbytes():
            said = f"{str(name)[:80]} is not a dense tensor of numbers ({value.dtype}, {value.layout})"
            raise WeightsError(f"{path} was refused: {said}")
        total += size
    if total > 4 * path.stat().st_size:  # tied weights are stored once
        raise WeightsError(f"{path} was refused: its tensors are {total:,} bytes, far more than the file")
    return found
