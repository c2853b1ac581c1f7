"""Locations of files: the included model, the cache, local folders, and object storage (s3://, gs://) via pyarrow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

from mltta.errors import ConfigError
from mltta.storage import atomic

#: the included model, an open_clip folder
MINI = Path(__file__).parents[1] / "assets" / "mini"


def cache_folder() -> Path:
    """Return the cache folder: MLTTA_CACHE, or mltta in the user's cache folder."""
    own = os.environ.get("MLTTA_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mltta"


@cache
def embedded_text_tower() -> str:
    """Return the fingerprint of the included model's text tower, from its caption base."""
    return str(json.loads((MINI / "captions" / "config.json").read_text(encoding="utf-8"))["backbone"])


def is_remote(name: str) -> bool:
    """Whether a name is a URL of object storage, rather than a path or a web URL.

    Example:
        >>> is_remote("s3://bucket/photos"), is_remote("photos/a.jpg"), is_remote("https://example.org/a.jpg")
        (True, False, False)
    """
    scheme, colon, _ = name.partition("://")
    return bool(colon) and scheme.isalnum() and scheme.lower() not in ("http", "https")


@lru_cache(maxsize=64)
def open_store(address: str) -> tuple[Any, str]:
    """Return the pyarrow file system and path for a URL."""
    try:
        from pyarrow import fs
    except ImportError:
        said = f"{address}: object storage needs pyarrow: pip install 'mltta[parquet]'"
        raise ConfigError(said) from None
    if "@" in urlsplit(address).netloc:
        said = "URLs must not contain credentials, because they are stored: set them in the environment"
        raise ConfigError(said)
    try:
        store, path = fs.FileSystem.from_uri(address)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"pyarrow cannot open {address}: {error}") from None
    return store, str(path)


class Folder:
    """A local or remote folder whose files are read completely and written atomically."""

    def __init__(self, address: str):
        self.address = address if is_remote(address) else os.path.abspath(address)

    @property
    def local(self) -> Path | None:
        """The local path; None if the folder is remote."""
        return None if is_remote(self.address) else Path(self.address)

    def __str__(self) -> str:
        return self.address

    def read(self, name: str) -> bytes:
        """Return the content of a file; raises FileNotFoundError."""
        if self.local is not None:
            return (self.local / name).read_bytes()
        store, path = open_store(self.address)
        with store.open_input_stream(f"{path}/{name}") as file:
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; object storage shows an object only when its upload is complete."""
        with atomic.writing(f"{self.address}/{name}"):
            if self.local is not None:
                file = self.local / name
                file.parent.mkdir(parents=True, exist_ok=True)
                return atomic.write(file, content, follow=False)
            store, path = open_store(self.address)
            with store.open_output_stream(f"{path}/{name}") as stream:
                stream.write(content)

    def names(self) -> list[str]:
        """List names in the folder; empty if it does not exist."""
        if self.local is not None:
            return sorted(os.listdir(self.local)) if self.local.is_dir() else []
        return [name for name, _ in list_store(self.address)]

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        if self.local is not None:
            (self.local / name).unlink(missing_ok=True)
        elif name in self.names():
            store, path = open_store(self.address)
            store.delete_file(f"{path}/{name}")


def list_store(address: str, below: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the entries of a folder in object storage, sorted: name, and whether it is a folder."""
    from pyarrow import fs

    store, path = open_store(address)
    found = store.get_file_info(fs.FileSelector(f"{path}/{below}".rstrip("/"), allow_not_found=True))
    yield from sorted((info.base_name, info.type == fs.FileType.Directory) for info in found)


def open_stream(base: str, name: str) -> IO[bytes]:
    """Open a file for reading; ``base`` is the URL that defines the access to its storage."""
    if not is_remote(name):
        return open(name, "rb")
    store, _ = open_store(base if is_remote(base) else name)
    return cast(IO[bytes], store.open_input_stream(name.partition("://")[2]))
