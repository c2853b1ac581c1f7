"""Where things are kept on this machine."""

from __future__ import annotations

import os
from pathlib import Path

#: the embedded model: an open_clip folder like any other
MINI = Path(__file__).parents[1] / "assets" / "mini"


def cache_folder() -> Path:
    """Where work worth keeping goes: MLTTA_CACHE, or mltta in the user's cache folder."""
    own = os.environ.get("MLTTA_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mltta"
