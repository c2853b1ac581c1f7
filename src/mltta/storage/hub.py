"""Upload and download of caption bases and prompts on the Hugging Face Hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from mltta.errors import HubError
from mltta.storage.reading import explain

PREFIX = "hf-hub:"
#: the only files that are uploaded or downloaded: texts, tensors and metadata, never code
PATTERNS = ["*.json", "*.txt", "*.safetensors"]
#: files of a model's tokenizer
TOKENIZERS = ["*.json", "*.txt", "*.txt.gz", "*.model"]


def parted(name: str) -> tuple[str, str | None]:
    """Split a name into ORG/NAME and the branch, tag or commit after @, if given."""
    repository, at, revision = name.removeprefix(PREFIX).partition("@")
    if at and not revision:
        raise HubError(f"{name}: expected a branch, tag or commit after @")
    return repository, revision or None


def pinned(name: str, folder: Path) -> str:
    """Return the name with the commit of its cached folder, if known."""
    commit = folder.name
    known = len(commit) == 40 and set(commit) <= set("0123456789abcdef")
    return f"{PREFIX}{parted(name)[0]}@{commit}" if known else name


def pull(name: str, patterns: Sequence[str] = PATTERNS) -> Path:
    """Download "hf-hub:ORG/NAME[@REVISION]", or ORG/NAME, to the Hub's cache if needed and return its folder."""
    from huggingface_hub import snapshot_download

    repository, revision = parted(name)
    offline = f"{repository} is not cached and the Hugging Face Hub cannot be reached."
    offline += " Connect once to cache it, or give a local folder."
    with _asking(offline, f"{repository} could not be downloaded from the Hugging Face Hub"):
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))


def push(
    folder: str | Path, name: str, private: bool = False, what: str = "", files: Sequence[str] = ()
) -> str:
    """Upload files of a folder to ORG/NAME, created if needed, and return its URL.

    Args:
        what: name of the files in errors (default: the folder).
        files: paths in the folder (default: all texts, tensors and metadata).
    """
    from huggingface_hub import HfApi

    what, name, api = what or str(folder), name.removeprefix(PREFIX), HfApi()
    offline = f"{what} was not uploaded: the Hugging Face Hub cannot be reached. Try again later."
    refused = f"{what} was not uploaded: you have no permission to write to {name}."
    refused += " Log in with `hf auth login` and a token with write access."
    with _asking(offline, f"{what} was not uploaded to {name}", refused):
        url = api.create_repo(name, private=private, exist_ok=True)
        allowed, message = list(files) or PATTERNS, "Upload with mltta"
        api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=allowed, commit_message=message)
        return str(url)


@contextmanager
def _asking(offline: str, failed: str, refused: str = "") -> Iterator[None]:
    """Convert errors of the Hub and the network, of almost any type, to messages for the user."""
    cut_off = False
    try:
        with cache_only_if_cut_off() as cut_off:
            yield
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        denied = status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError"
        said = refused if denied and refused else f"{failed}: {explain(error)}"
        raise HubError(offline if cut_off else said) from error


@contextmanager
def cache_only_if_cut_off() -> Iterator[bool]:
    """Use only the Hub's cache if the Hub cannot be reached, as its client would retry for a minute."""
    from huggingface_hub import constants

    end = urlsplit(constants.ENDPOINT)
    address = (end.hostname or "huggingface.co", end.port or (80 if end.scheme == "http" else 443))
    cut_off = constants.HF_HUB_OFFLINE
    if not cut_off and not any(getproxies().get(kind) for kind in (end.scheme, "all")):
        try:
            socket.create_connection(address, timeout=5).close()
        except OSError:
            cut_off = True
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, cut_off
    try:
        yield cut_off
    finally:
        constants.HF_HUB_OFFLINE = before
