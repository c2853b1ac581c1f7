"""A lock file, so that no two processes write a file at once: an OS lock, and the process id of its owner."""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mltta.errors import MlttaError
from mltta.storage import atomic

#: a byte far beyond the content, as locked bytes cannot be read on Windows
_BYTE = 1 << 30
_HERE = platform.node() or "this machine"
_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock during the block; raises MlttaError if another process holds it.

    The system releases the lock when its process ends for any reason, so the lock file of a killed process is
    taken over.
    """
    file = _take(path, what)
    try:
        yield
    finally:
        with suppress(OSError):
            # before releasing it, so that only our own file is removed; Windows requires closing it first
            if sys.platform == "win32":
                file.close()
            path.unlink()
        file.close()


def _take(path: Path, what: str) -> IO[bytes]:
    while True:
        file = open(path, "ab+", opener=atomic.not_followed)  # noqa: SIM115
        try:
            _claim(file)
        except OSError as error:
            owner = _owner(file)
            file.close()
            ended = (
                owner and owner[0] == _HERE and (owner[1] == os.getpid() or not atomic.is_running(owner[1]))
            )
            if error.errno in _TAKEN or (owner and not ended):  # other machines cannot be checked
                who = f"process {owner[1]} on {owner[0]}" if owner else "another process"
                said = f"{what} is being written by {who}; wait for it, stop it, or choose another output"
                raise MlttaError(said) from None
            # a disk without locks: rely on the process id
            file = open(path, "ab+", opener=atomic.not_followed)  # noqa: SIM115
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # not just removed by its owner
                file.truncate(0)
                file.write(f"{_HERE} {os.getpid()}\n".encode())
                file.flush()
                return file
        file.close()


def _claim(file: IO[bytes]) -> None:
    """Take the OS lock without waiting, or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)
    else:
        import fcntl  # lockf, because worker processes would inherit a flock

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _owner(file: IO[bytes]) -> tuple[str, int] | None:
    """Return the machine and process id in a lock file."""
    with suppress(OSError, ValueError):
        file.seek(0)
        machine, _, number = file.read(300).decode(errors="replace").rpartition(" ")
        return machine, int(number)
    return None
