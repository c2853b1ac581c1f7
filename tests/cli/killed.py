"""`mltta tag` killed with -9 at random moments, again and again: python -m tests.cli.killed ….

Each run is a process of its own that starts warm. For each format an undisturbed run goes before, to compare with.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path


def start(arguments: list[str]) -> int:
    """A run in a process of its own; its number."""
    import mltta.cli

    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.argv = ["mltta", *arguments]
        mltta.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 98
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lines(journal: Path) -> int:
    """How many images a journal has, failed ones and repeats too."""
    return journal.read_bytes().count(b'"image"') if journal.is_file() else 0


def kill_once(arguments: list[str], journal: Path, at: int) -> bool:
    """Kill a run when its journal has so many images; False where it had ended before."""
    child = start(arguments)
    while lines(journal) < at and os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.001)
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return ended(child) == -signal.SIGKILL


def main(photos: Path, folder: Path, formats: list[str], kills: int, seed: int, *more: str) -> None:
    import open_clip  # noqa: F401  everything that takes long to import
    import pyarrow.parquet  # noqa: F401
    import torch

    from mltta import Tagger  # noqa: F401

    torch.set_num_threads(1)
    dice, count = random.Random(seed), len(list(photos.iterdir()))
    for format in formats:
        line = ["tag", str(photos), *more, "-o"]
        whole, output = folder / f"whole.{format}", folder / f"killed.{format}"
        journal = folder / f".killed.{format}.mltta"
        assert ended(start([*line, str(whole)])) == 0
        moments = []
        while len(moments) < kills:
            before = lines(journal)
            at = dice.randint(
                before, min(count, before + 2 * count // kills)
            )  # at the last: while the file is written
            if kill_once([*line, str(output)], journal, at):
                moments.append(lines(journal))
            else:  # it was done already: start anew
                for file in (output, journal):
                    file.unlink()
        code = ended(start([*line, str(output)]))
        same = output.read_bytes() == whole.read_bytes()
        print(
            json.dumps(
                {"format": format, "code": code, "same": same, "moments": moments, "lines": lines(journal)}
            )
        )


if __name__ == "__main__":
    photos, folder, formats, kills, seed, *more = sys.argv[1:]
    main(Path(photos), Path(folder), formats.split(","), int(kills), int(seed), *more)
