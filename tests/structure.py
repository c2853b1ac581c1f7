"""The size and shape of the package: ``python -m tests.structure [PHOTO]``.

Counts lines, top-level entries and the longest files; with a photo, also the files that `mltta tag PHOTO` enters.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).parents[1] / "src" / "mltta"


def line_counts() -> dict[str, int]:
    """Lines of Python by file."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(file.relative_to(PACKAGE)): len(file.read_text("utf-8").splitlines()) for file in files}


def top_level() -> list[str]:
    """Files and folders of the package itself."""
    return sorted(entry.name for entry in PACKAGE.iterdir() if entry.name != "__pycache__")


def entered(photo: str) -> set[str]:
    """Files of the package with a function that runs for `mltta tag PHOTO`; what runs on import does not count."""
    found: set[str] = set()
    root = f"{PACKAGE}/"

    def importing(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root):
                return True
            frame = frame.f_back
        return False

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(root) or not code.co_flags & 1:
            return  # a class body is not optimized
        file = code.co_filename.removeprefix(root)
        if file not in found and not importing(frame):
            found.add(file)

    from mltta.cli import main

    sys.argv = ["mltta", "tag", photo]
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


if __name__ == "__main__":
    lines = line_counts()
    packages: Counter[str] = Counter()
    for name, count in lines.items():
        packages[name.partition("/")[0]] += count
    print("  ".join(f"{name} {count:,}" for name, count in sorted(packages.items())))
    print(f"{sum(lines.values()):,} lines in {len(lines)} files; {len(top_level())} top-level entries")
    print("longest: " + ", ".join(f"{name} {count}" for name, count in Counter(lines).most_common(5)))
    for photo in sys.argv[1:2]:
        files = entered(photo)
        print(f"`mltta tag {photo}` enters {len(files)} files:\n  " + "\n  ".join(sorted(files)))
