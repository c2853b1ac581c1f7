"""Many commands, each in a process of its own that starts warm: python -m tests.safety.many WHAT < commands.json."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """How a command ended, and what it said on its error stream."""

    code: int
    said: str


def outcomes(commands: list[list[object]], what: str = "plain", **env: str) -> list[Outcome]:
    """Run `mltta` with each list of arguments.

    Args:
        what: "plain"; "full", on a disk that takes 2 KB a file; "closed", without a screen.
    """
    given = json.dumps([[str(part) for part in command] for command in commands])
    line = [sys.executable, "-m", "tests.safety.many", what]
    own = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(line, input=given, capture_output=True, text=True, check=True, cwd=ROOT, env=own)
    return [Outcome(*one) for one in json.loads(done.stdout.splitlines()[-1])]


def main(what: str) -> None:
    import open_clip  # noqa: F401  everything that takes long to import
    import torch

    import mltta.cli
    from mltta import Tagger  # noqa: F401

    torch.set_num_threads(1)
    found = []
    for command in json.load(sys.stdin):
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.dup2(said.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                if what == "closed":
                    os.close(1)
                    sys.stdout = None  # type: ignore[assignment]  # as Python starts then
                if what == "full":
                    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 10, 2 << 10))
                sys.argv = ["mltta", *command]
                code = 99
                try:
                    mltta.cli.main()
                except SystemExit as end:
                    code = end.code if isinstance(end.code, int) else int(end.code is not None)
                sys.stderr.flush()
                os._exit(code)
            _, status = os.waitpid(child, 0)
            said.seek(0)
            found.append((os.waitstatus_to_exitcode(status), said.read().decode()))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
