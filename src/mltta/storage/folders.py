"""Where files are on this machine: the embedded model, and the cache."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

#: the embedded model: an open_clip folder like any other
MINI = Path(__file__).parents[1] / "assets" / "mini"


def cache_folder() -> Path:
    """Where work worth keeping goes: MLTTA_CACHE, or mltta in the user's cache folder."""
    own = os.environ.get("MLTTA_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mltta"


@cache
def embedded_text_tower() -> str:
    """The fingerprint of the embedded model's text tower, which its captions name."""
    return str(json.loads((MINI / "captions" / "config.json").read_text(encoding="utf-8"))["backbone"])
