"""Where a model runs."""

from __future__ import annotations

import torch

from mltta.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve "auto", an NVIDIA GPU where there is one, and say plainly when a device is not there.

    Apple's "mps" is taken when it is asked for; it has not been tried.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        if chosen.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError("another kind")
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        there += ["mps"] * torch.backends.mps.is_available()
        raise ConfigError(
            f"device {str(device)!r} is not available; here there is {', '.join(there)}"
        ) from error
    return chosen


def pick_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """The precision of an image tower: as told, else bfloat16 on an NVIDIA GPU and float32 elsewhere."""
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConfigError(f"images in {dtype!r}: choose from {', '.join(DTYPES)}")
    return DTYPES[dtype]
