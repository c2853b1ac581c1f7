"""Checksums of stored files, which detect damage but not tampering."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mltta.arrays import Array

#: key of the checksum in plain data and in headers of tensor files
CHECKSUM = "checksum"


def of_bytes(content: bytes | memoryview, start: int = 0) -> int:
    """Return the CRC-32, which detects bursts up to 32 bits and misses one in four billion other errors."""
    return zlib.crc32(content, start)


def of_file(path: Path) -> str:
    """Return the checksum of a file, read in pieces."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def of_data(held: Mapping[str, Any]) -> str:
    """Return the checksum of plain data, independent of JSON formatting and without the checksum field."""
    own = {name: value for name, value in held.items() if name != CHECKSUM}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def sealed(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with its checksum added."""
    return {**held, CHECKSUM: of_data(held)}


def unsealed(content: bytes, format: str) -> dict[str, Any] | None:
    """Return plain data of a format if its checksum matches, else None."""
    try:
        held: dict[str, Any] = json.loads(content)
        return held if held["format"] == format and held[CHECKSUM] == of_data(held) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def of_tensors(tensors: Mapping[str, Array], about: Mapping[str, str]) -> str:
    """Return the checksum of tensors and the metadata of their file."""
    found = zlib.crc32(of_data(about).encode())
    for name, tensor in sorted(tensors.items()):
        kind = str(tensor.dtype) if is_torch_array(tensor) else f"torch.{tensor.dtype}"
        found = zlib.crc32(f"{name} {kind} {tuple(tensor.shape)}".encode(), found)
        if is_torch_array(tensor):
            import torch  # slow to import, but already imported if there is a tensor

            tensor = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        found = zlib.crc32(np.ascontiguousarray(tensor).data, found)
    return f"{found:08x}"
