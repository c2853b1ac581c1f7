"""Caption bases and prompts on the Hugging Face hub: a folder goes up, a folder comes down."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mltta.errors import HubError
from mltta.storage.reading import explain

PREFIX = "hf-hub:"
#: nothing else is sent or fetched: texts, numbers and their description, never a program
PATTERNS = ["*.json", "*.txt", "*.safetensors"]
#: what a model's tokenizer is made of
TOKENIZERS = ["*.json", "*.txt", "*.txt.gz", "*.model"]


def parted(name: str) -> tuple[str, str | None]:
    """ORG/NAME and the branch, tag or commit behind an @, if one is given."""
    repository, at, revision = name.removeprefix(PREFIX).partition("@")
    if at and not revision:
        raise HubError(f"{name}: behind the @ goes a branch, a tag or a commit")
    return repository, revision or None


def pinned(name: str, folder: Path) -> str:
    """A name with the commit that its folder in the cache is of, where the cache says it."""
    commit = folder.name
    known = len(commit) == 40 and set(commit) <= set("0123456789abcdef")
    return f"{PREFIX}{parted(name)[0]}@{commit}" if known else name


def pull(name: str, patterns: Sequence[str] = PATTERNS) -> Path:
    """Fetch "hf-hub:ORG/NAME[@REVISION]", or ORG/NAME, into the hub's cache once and return its folder."""
    from huggingface_hub import snapshot_download

    repository, revision = parted(name)
    offline = f"{repository} is not on this machine and the Hugging Face hub cannot be reached."
    offline += " Connect once so that it is cached, or give a local folder."
    with _asking(offline, f"{repository} could not be fetched from the Hugging Face hub"):
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))


def push(
    folder: str | Path, name: str, private: bool = False, what: str = "", files: Sequence[str] = ()
) -> str:
    """Send files of a folder to ORG/NAME, made if need be, and return its address.

    Args:
        what: what an error is to call them, by default the folder.
        files: which, by their paths in the folder; by default all texts, numbers and descriptions.
    """
    from huggingface_hub import HfApi

    what, name, api = what or str(folder), name.removeprefix(PREFIX), HfApi()
    offline = f"{what} was not sent: the Hugging Face hub cannot be reached. Try again when it can."
    refused = f"{what} was not sent: the hub does not let you write to {name}."
    refused += " Log in with `hf auth login` and a token that may write there."
    with _asking(offline, f"{what} was not sent to {name}", refused):
        url = api.create_repo(name, private=private, exist_ok=True)
        allowed, message = list(files) or PATTERNS, "Upload with mltta"
        api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=allowed, commit_message=message)
        return str(url)


@contextmanager
def _asking(offline: str, failed: str, refused: str = "") -> Iterator[None]:
    """Turn what the hub and the network raise, which is almost anything, into words for the user."""
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
    """Without a way to the hub look into its cache alone: its client would retry for a minute first."""
    from urllib.request import getproxies  # opens the network libraries, which few runs need

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
