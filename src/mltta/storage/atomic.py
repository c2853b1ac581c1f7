"""Atomic file writes: to a temporary file that replaces the old one. A kill leaves the old or the new file."""

from __future__ import annotations

import errno
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
#: this machine in the names of unfinished files, since process ids of other machines cannot be checked
_MACHINE = f"{zlib.crc32(platform.node().encode()):08x}"
_UNFINISHED = re.compile(r"\.part-([0-9a-f]{8})-(\d+)-\d+$")
#: seconds after which an unfinished file of another machine counts as abandoned
_ABANDONED = 24 * 3600.0


def write(file: Path, content: bytes, *, durable: bool = True, follow: bool = True) -> None:
    """Replace a file's content atomically; on OSError the old file is unchanged.

    Args:
        durable: sync to disk, so that even a power failure leaves the old or the new file.
        follow: write through a link; otherwise the link is replaced.
    """
    with replacing(file, durable=durable, follow=follow) as part:
        part.write_bytes(content)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Convert OSError to an error that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        why, name = error.strerror or str(error), error.filename
        where = f" ({os.fspath(name)})" if name and str(name) != str(path) else ""
        said = f"{path} cannot be written: {why}{where}. Fix this, then rerun the command to continue"
        raise MlttaError(said) from error


@contextmanager
def replacing(file: Path, *, durable: bool = True, follow: bool = True) -> Iterator[Path]:
    """Yield a temporary path, which replaces the file if the block succeeds."""
    linked = file.is_symlink()
    if (
        file.exists() and not file.is_file() and (follow or not linked)
    ):  # devices and pipes cannot be replaced
        yield file
        return
    if linked and follow:
        file = file.resolve()
        if not file.exists():  # whoever made the link may not mean us to create its target
            raise FileNotFoundError(errno.ENOENT, "a link to a file that does not exist", str(file))
    for old in _abandoned(file):
        old.unlink(missing_ok=True)
    part = file.with_name(f"{_stem(file)}{_MACHINE}-{os.getpid()}-{next(_number)}")
    part.open("xb").close()  # ours, and not a link that someone put there
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


def refuse_links(target: Path, folder: Path) -> None:
    """Raise OSError if a path below a folder leads through a link, and so possibly out of it."""
    for part in (target, *target.parents):
        if part == folder:
            return
        if part.is_symlink():
            raise OSError(errno.ELOOP, "a link, which may lead to another folder; remove it", str(part))


def not_followed(path: str, flags: int) -> int:
    """An opener that refuses links, for files that are ours alone."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _stem(file: Path) -> str:
    """Return a hidden prefix that leaves room for the suffix."""
    return "." + file.name.encode(errors="surrogateescape")[:150].decode(errors="ignore") + ".part-"


def _abandoned(file: Path) -> Iterator[Path]:
    """Yield temporary files of this file whose writers have ended."""
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
    """Whether a local process is running; always true on Windows, where checking would end it."""
    if sys.platform == "win32":
        return True
    with suppress(OSError, OverflowError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
