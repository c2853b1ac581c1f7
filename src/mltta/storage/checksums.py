"""Checksums of what is kept: they tell a damaged file from a whole one, not a forged one from a true one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mltta.arrays import Array

#: the name a checksum goes by in plain data and in the headers of tensor files
CHECKSUM = "checksum"


def of_bytes(content: bytes | memoryview, start: int = 0) -> int:
    """CRC-32: any burst of up to 32 bits is noticed, other damage but for one time in four billion."""
    return zlib.crc32(content, start)


def of_file(path: Path) -> str:
    """A file's checksum, read a piece at a time."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def of_data(held: Mapping[str, Any]) -> str:
    """The checksum of plain data, however it is laid out as JSON; its own is left out."""
    own = {name: value for name, value in held.items() if name != CHECKSUM}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def sealed(held: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with its checksum."""
    return {**held, CHECKSUM: of_data(held)}


def unsealed(content: bytes, format: str) -> dict[str, Any] | None:
    """Plain data of a format that is as it was sealed, or None."""
    try:
        held: dict[str, Any] = json.loads(content)
        return held if held["format"] == format and held[CHECKSUM] == of_data(held) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def of_tensors(tensors: Mapping[str, Array], about: Mapping[str, str]) -> str:
    """The checksum of tensors and of what the header of their file says about them."""
    found = zlib.crc32(of_data(about).encode())
    for name, tensor in sorted(tensors.items()):
        kind = str(tensor.dtype) if is_torch_array(tensor) else f"torch.{tensor.dtype}"
        found = zlib.crc32(f"{name} {kind} {tuple(tensor.shape)}".encode(), found)
        if is_torch_array(tensor):
            import torch  # takes seconds; whoever has a tensor has it

            tensor = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        found = zlib.crc32(np.ascontiguousarray(tensor).data, found)
    return f"{found:08x}"
