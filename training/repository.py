"""Photos in bare git directories: list the files of a commit and read them as blobs."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

AHEAD = (
    64  # blobs asked for before they are read: git unpacks them meanwhile, and the names fit into the pipe
)


class Entry(NamedTuple):
    """A file of a commit."""

    path: str
    blob: str
    size: int


def find(folder: Path, name: str) -> Path | None:
    """The git directory of `owner/name` in a folder of clones named owner+name, bare or with a work tree."""
    own = folder / name.replace("/", "+")
    choices = (own / "repo/.git", own / "repo", own / ".git", own, own.with_name(own.name + ".git"))
    return next((path for path in choices if (path / "HEAD").is_file()), None)


def _git(directory: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "--git-dir", str(directory), *arguments], capture_output=True)


def resolve(directory: Path, commit: str) -> str | None:
    """The commit if the clone has it, else the commit of its HEAD, else None."""
    for name in (commit, "HEAD"):
        found = _git(directory, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found.returncode == 0:
            return found.stdout.decode().strip()
    return None


def listing(directory: Path, commit: str) -> list[Entry]:
    """All files of a commit, in the order of their paths."""
    found = _git(directory, "ls-tree", "-r", "-l", "-z", commit)
    if found.returncode:
        raise ValueError(f"{directory}: {found.stderr.decode(errors='replace').strip()}")
    entries = []
    for line in found.stdout.split(b"\0"):
        facts, _, path = line.partition(b"\t")
        fields = facts.split()
        if len(fields) == 4 and fields[1] == b"blob":
            size = int(fields[3]) if fields[3].isdigit() else 0  # the clone lacks a file without a size
            entries.append(Entry(path.decode("utf-8", "surrogateescape"), fields[2].decode(), size))
    return sorted(entries)


def read(directory: Path, blobs: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    """The bytes of each blob, None for those that the clone lacks."""
    command = ["git", "--git-dir", str(directory), "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked: deque[str] = deque()
        for blob in blobs:
            process.stdin.write(f"{blob}\n".encode())
            process.stdin.flush()
            asked.append(blob)
            if len(asked) > AHEAD:
                yield asked.popleft(), _answer(process.stdout)
        process.stdin.close()
        while asked:
            yield asked.popleft(), _answer(process.stdout)


def _answer(stream: IO[bytes]) -> bytes | None:
    fields = stream.readline().split()
    if len(fields) != 3:  # "<blob> missing"
        return None
    data = stream.read(int(fields[2]))
    stream.read(1)  # a line feed follows the bytes
    return data
