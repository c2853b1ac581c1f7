"""Log of a run, on the screen and in `log.jsonl`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Log:
    """Writes lines of named values, each with the seconds since the start."""

    def __init__(self, file: Path) -> None:
        self.file, self.start = file, time.time()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")

    def __call__(self, **values: Any) -> None:
        values = {"seconds": round(time.time() - self.start, 1), **values}
        shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(" ".join(shown), flush=True)
        with self.file.open("a") as file:
            file.write(json.dumps(values) + "\n")
