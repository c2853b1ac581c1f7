"""The embedded model's files, known without loading it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

#: an open_clip folder like any other
MINI = Path(__file__).parents[1] / "assets" / "mini"


@cache
def embedded_text_tower() -> str:
    """The fingerprint of its text tower, which its captions name."""
    return str(json.loads((MINI / "captions" / "config.json").read_text(encoding="utf-8"))["backbone"])
