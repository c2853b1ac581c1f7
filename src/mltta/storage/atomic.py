"""Files written whole or not at all: beside the old one, then renamed over it. A kill leaves the old or the new."""

from __future__ import annotations

import itertools
import os
import platform
import re
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mltta.errors import MlttaError

_number = itertools.count()
#: this machine, as the names of unfinished files say it: the process numbers of another mean nothing here
_MACHINE = f"{zlib.crc32(platform.node().encode()):08x}"
_UNFINISHED = re.compile(r"\.part-([0-9a-f]{8})-(\d+)-\d+$")
#: seconds after which an unfinished file of another machine is nobody's any more
_ABANDONED = 24 * 3600.0


def write(file: Path, content: bytes, *, durable: bool = True) -> None:
    """Put content in a file's place in one step; raises OSError and leaves what was there when it cannot.

    Args:
        durable: wait until the disk has it, so that even a power cut leaves the old or the new.
    """
    with replacing(file, durable=durable) as part:
        part.write_bytes(content)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn what a disk may say into an error that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        why, name = error.strerror or str(error), error.filename
        where = f" ({os.fspath(name)})" if name and str(name) != str(path) else ""
        said = f"{path} cannot be written: {why}{where}. Fix this, then rerun the command to continue"
        raise MlttaError(said) from error


@contextmanager
def replacing(file: Path, *, durable: bool = True) -> Iterator[Path]:
    """A path to write to; when the block ends well, what was written there is in the file's place."""
    if file.exists() and not file.is_file():  # a device or a pipe has no place to be renamed into
        yield file
        return
    file = file.resolve() if file.is_symlink() else file
    for old in _abandoned(file):
        old.unlink(missing_ok=True)
    part = file.with_name(f"{_stem(file)}{_MACHINE}-{os.getpid()}-{next(_number)}")
    try:
        yield part
        if durable:
            with part.open("rb+") as written:
                os.fsync(written.fileno())
        part.replace(file)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _stem(file: Path) -> str:
    """Hidden, and short enough to leave room for what follows it."""
    return "." + file.name.encode(errors="surrogateescape")[:150].decode(errors="ignore") + ".part-"


def _abandoned(file: Path) -> Iterator[Path]:
    """What writers of this file have left behind that have ended."""
    stem = _stem(file)
    with suppress(OSError):
        for name in os.listdir(file.parent):
            if not name.startswith(stem) or (found := _UNFINISHED.search(name)) is None:
                continue
            part, here = file.with_name(name), found[1] == _MACHINE and sys.platform != "win32"
            old = time.time() - part.stat().st_mtime > _ABANDONED
            if not is_running(int(found[2])) if here else old:
                yield part


def is_running(process: int) -> bool:
    """Whether a process of this machine has not ended, as far as can be told: on Windows asking would end it."""
    if sys.platform == "win32":
        return True
    with suppress(OSError, OverflowError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
