"""Opens captions wherever they are: a saved base, one on the hub, or texts to embed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mltta.captions.store import CaptionBase, describe
from mltta.errors import CaptionError
from mltta.storage import hub

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: how people write that a method is to do without captions
NONE = "none"


def chosen_captions(
    source: CaptionBase | str | os.PathLike[str] | Literal[False] | None, backbone: Backbone
) -> CaptionBase | Literal[False] | None:
    """The captions to use: a base, where one is, False or "none" for no captions, None for the default."""
    if source is None or source is False or isinstance(source, CaptionBase):
        return source
    return False if os.fspath(source) == NONE else open_captions(source, backbone)


def open_captions(source: str | os.PathLike[str], backbone: Backbone) -> CaptionBase:
    """The base that fits a backbone, from a folder or "hf-hub:ORG/NAME"; or one built of what `read_texts` takes."""
    folders = base_folders(source)
    if not folders:
        return CaptionBase.from_file(source, backbone)
    bases = [CaptionBase.load(folder) for folder in folders]
    if len(bases) == 1:
        bases[0].check_backbone(backbone)
    for base in bases:
        if base.fingerprint == backbone.text_fingerprint:
            return base
    raise CaptionError(
        f"{os.fspath(source)} holds captions for {', '.join(map(describe, bases))}, but none for {backbone.name}. "
        "Build them for this model too."
    )


def base_folders(source: str | os.PathLike[str]) -> list[Path]:
    """The caption bases that a folder, or "hf-hub:ORG/NAME", is or holds, one a model; none for a file of texts."""
    name = os.fspath(source)
    if name == NONE:
        raise CaptionError(
            f"{NONE} means no captions, which are needed here: name a caption base (or ./{NONE})"
        )
    folder = hub.pull(name) if name.startswith(hub.PREFIX) else Path(name).expanduser()
    if (folder / "config.json").is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob("*/config.json")) if folder.is_dir() else []
    if not found and name.startswith(hub.PREFIX):
        raise CaptionError(f"{name} holds no caption base")
    return found
