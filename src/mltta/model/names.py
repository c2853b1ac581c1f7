"""Models that can be loaded by name."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

#: the paper's architectures, by their common names, in open_clip's spelling
PAPER_MODELS = {"RN50": "RN50", "RN101": "RN101", "ViT-B/32": "ViT-B-32", "ViT-B/16": "ViT-B-16"}


def list_models(filter: str = "", *, all: bool = False) -> list[str]:
    """List names of models for `load_backbone`: the embedded one and the paper's.

    Args:
        filter: only names that contain this text or match this pattern, such as "RN*".
        all: every model and pretrained tag known to open_clip.

    Example:
        >>> list_models("RN*")
        ['RN50:openai', 'RN101:openai']
    """
    names = ["mini", *(f"{name}:openai" for name in PAPER_MODELS)]
    if all:
        import open_clip

        names = [f"{name}:{tag}" for name, tag in open_clip.list_pretrained()]
    return matching(names, filter)


def matching(names: Iterable[str], filter: str) -> list[str]:
    """Names that contain a text or match a pattern, ignoring case."""
    pattern = filter.casefold() if set(filter) & set("*?[") else f"*{filter.casefold()}*"
    return [name for name in names if fnmatchcase(name.casefold(), pattern)]
