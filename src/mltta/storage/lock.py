"""A lock beside a file, so that no two processes write it at once: the system's own lock, and the owner's number."""

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

#: a byte far behind what is written, as Windows lets nobody read a byte that is locked
_BYTE = 1 << 30
_HERE = platform.node() or "this machine"
_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock while the block runs; raises MlttaError where another process holds it.

    The system lets go of the lock when its process ends, however that happens: the file that a killed one leaves
    behind is taken over.
    """
    file = _take(path, what)
    try:
        yield
    finally:
        with suppress(OSError):
            # before it is let go, or another's may be removed; Windows wants it closed first
            if sys.platform == "win32":
                file.close()
            path.unlink()
        file.close()


def _take(path: Path, what: str) -> IO[bytes]:
    while True:
        file = path.open("ab+")
        try:
            _claim(file)
        except OSError as error:
            owner = _owner(file)
            file.close()
            ended = (
                owner and owner[0] == _HERE and (owner[1] == os.getpid() or not atomic.is_running(owner[1]))
            )
            if error.errno in _TAKEN or (owner and not ended):  # of another machine's we do not know
                who = f"process {owner[1]} on {owner[0]}" if owner else "another process"
                said = f"{what} is being written by {who}; wait until it ends, stop it, or write elsewhere"
                raise MlttaError(said) from None
            file = path.open("ab+")  # a disk without locks: the number has to do
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # not one that its owner just removed
                file.truncate(0)
                file.write(f"{_HERE} {os.getpid()}\n".encode())
                file.flush()
                return file
        file.close()


def _claim(file: IO[bytes]) -> None:
    """Take the system's lock, or raise OSError at once."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)
    else:
        import fcntl  # lockf, as a worker process inherits a flock and would hold it after our end

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _owner(file: IO[bytes]) -> tuple[str, int] | None:
    """The machine and the process number that a lock names."""
    with suppress(OSError, ValueError):
        file.seek(0)
        machine, _, number = file.read(300).decode(errors="replace").rpartition(" ")
        return machine, int(number)
    return None
