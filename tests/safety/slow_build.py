"""A caption build that saves slowly, to be killed: python -m tests.safety.slow_build SOURCE OUT."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mltta.cli import main
from mltta.storage import atomic
from tests.safety.world import VIT


def slowly() -> None:
    """Every write goes byte by byte, and takes a moment before and after it is renamed."""
    plain = Path.write_bytes

    def write_bytes(self: Path, content: bytes) -> int:
        time.sleep(0.05)
        with self.open("wb") as file:
            for start in range(0, len(content), 1 + len(content) // 4):
                file.write(content[start : start + 1 + len(content) // 4])
                file.flush()
                print("saving", flush=True)
                time.sleep(0.05)
        return len(content)

    assert plain is not write_bytes
    Path.write_bytes = write_bytes  # type: ignore[method-assign]
    assert atomic.write


if __name__ == "__main__":
    slowly()
    source, out = sys.argv[1:]
    sys.argv = ["mltta", "captions", "build", source, "--weights", str(VIT), "--quick-gelu", "--out", out]
    main()
