"""Caption bases: texts and their embeddings for one backbone, built, saved and loaded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mltta.arrays import Array, normalize, to_numpy
from mltta.captions.read import read_texts
from mltta.errors import CaptionError
from mltta.model.search import Search
from mltta.storage import atomic, checksums, hub
from mltta.storage.folders import MINI, cache_folder
from mltta.storage.reading import LABELS, parse_json, read_bytes, reading

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")
FORMAT = "mltta-captions-2"
#: older format without checksums
UNCHECKED = "mltta-captions-1"
TEXT_BYTES = 4 << 30
_KINDS = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8}
#: value that disables captions
NONE = "none"
DAMAGED = "build or download it again"
#: files of a base, in the order they are written
FILES = ("texts.txt", "embeddings.safetensors", "config.json")


class CaptionBase:
    """Sentences and their unit embeddings (K, D), a NumPy array, from one backbone's text tower.

    On disk: a folder with ``config.json``, ``texts.txt`` (one caption per line) and ``embeddings.safetensors``, which
    is memory-mapped. The same base works for any label list.
    """

    def __init__(self, texts: Sequence[str], embeddings: Array, fingerprint: str, model: str = ""):
        """Args:
        fingerprint: hash of the text tower that computed the embeddings.
        model: name of that model; empty for bases in older formats.
        """
        self.embeddings: NDArray[Any] = to_numpy(embeddings)
        if not len(texts):
            raise CaptionError("a caption base needs at least one caption")
        if len(texts) != len(self.embeddings):
            raise CaptionError(f"got {len(texts)} texts for {len(self.embeddings)} embeddings")
        if not np.isfinite(_lengths(self.embeddings)).all():
            raise CaptionError(
                f"caption embeddings of {model or 'this model'} are not finite: its weights or its learned "
                "prompts are damaged"
            )
        self.texts, self.fingerprint, self.model = list(texts), fingerprint, model

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def build(cls, texts: Sequence[str], backbone: Backbone) -> CaptionBase:
        """Embed sentences without blank and repeated ones."""
        kept = list(dict.fromkeys(t for t in (" ".join(text.split()) for text in texts) if t))
        if not kept:
            raise CaptionError("no captions: all lines are blank")
        return cls(kept, backbone.encode_texts(kept), backbone.text_fingerprint, backbone.name)

    @classmethod
    def from_file(cls, source: str | os.PathLike[str], backbone: Backbone) -> CaptionBase:
        """Embed the captions of a file or a dataset, in the formats of `read_texts`."""
        return cls.build(read_texts(source), backbone)

    @classmethod
    def merge(cls, bases: Sequence[CaptionBase]) -> CaptionBase:
        """Merge bases of one backbone; repeated captions are kept once, from the first base."""
        first = bases[0]
        if others := [base for base in bases if base.fingerprint != first.fingerprint]:
            raise CaptionError(
                f"cannot merge caption bases of different backbones: {describe(first)} and {describe(others[0])}. "
                "Rebuild one of them from its texts with the other's model."
            )
        rows: dict[str, tuple[CaptionBase, int]] = {}
        for base in bases:
            for row, text in enumerate(base.texts):
                rows.setdefault(text, (base, row))
        joined = np.concatenate([base.embeddings[i : i + 1] for base, i in rows.values()]).astype(np.float32)
        model = next((base.model for base in bases if base.model), "")
        return cls(list(rows), joined, first.fingerprint, model)

    def save(self, folder: str | Path, compact: bool = False) -> None:
        """Write the three files; config.json is written last, so that an incomplete base never loads.

        Args:
            compact: store one byte per number, with a scale per caption: a quarter of the size.
        """
        from safetensors.numpy import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join(self.texts) + "\n"
        tensors = {"embeddings": np.ascontiguousarray(self.embeddings)}
        if compact:
            scale = np.abs(self.embeddings).max(axis=1, keepdims=True).clip(1e-12) / np.float32(127)
            levels = np.rint(self.embeddings / scale).astype(np.int8)
            tensors = {"embeddings": levels, "scale": np.ascontiguousarray(scale[:, 0])}
        held = save(tensors)
        config = {"format": FORMAT, "captions": len(self), "dim": self.embeddings.shape[1]}
        config |= {"backbone": self.fingerprint, "model": self.model, "texts_blake2b": _digest(text)}
        config["embeddings_crc32"] = f"{checksums.of_bytes(held):08x}"
        said = (json.dumps(checksums.sealed(config), indent=1) + "\n").encode()
        # existing memory maps of old files stay valid; a mix of old and new files does not load
        (folder / "config.json").unlink(missing_ok=True)
        for name, content in zip(FILES, (text.encode(), held, said), strict=True):
            atomic.write(folder / name, content)

    @classmethod
    def load(cls, folder: str | Path, backbone: Backbone | None = None) -> CaptionBase:
        """Load a saved base memory-mapped, and validate it; with a backbone, refuse one built by another."""
        from safetensors import SafetensorError

        folder = Path(folder)
        file = folder / "embeddings.safetensors"
        if not (folder / "config.json").is_file():
            raise CaptionError(f"{folder} is not a caption base: config.json is missing")
        try:
            with reading(folder, CaptionError, DAMAGED):
                config = _config(folder)
                text = read_bytes(folder / "texts.txt", TEXT_BYTES, CaptionError).decode()
                said = config.get("embeddings_crc32")
                if said is not None and checksums.of_file(file) != said:
                    raise CaptionError(f"{file} is damaged: {DAMAGED}")
                embeddings, wanted = _mapped(file, "embeddings"), (config["captions"], config["dim"])
                scale = (
                    _mapped(file, "scale") if embeddings.dtype == np.int8 else np.ones(len(embeddings), "f4")
                )
                fits = embeddings.shape == wanted and scale.shape == wanted[:1] and scale.dtype.kind == "f"
                if _digest(text) != config["texts_blake2b"] or not fits or not np.isfinite(scale).all():
                    raise CaptionError(f"{folder} is damaged: its files do not match; {DAMAGED}")
                if embeddings.dtype == np.int8:
                    embeddings = normalize(embeddings * scale[:, None])
                texts = text.splitlines()
                base = cls(texts, embeddings, str(config["backbone"]), str(config.get("model", "")))
        except (OSError, KeyError, SafetensorError) as error:
            raise CaptionError(f"{folder} is not a readable caption base: {error}") from error
        if (np.abs(_lengths(embeddings) - 1) > 0.05).any():
            raise CaptionError(f"{file} contains embeddings that are not normalized: {DAMAGED}")
        if backbone is not None:
            base.check_backbone(backbone)
        return base

    def nearest(self, feature: Array, n: int) -> list[tuple[float, str]]:
        """The n captions most similar to a unit feature (D), with their similarity, nearest first."""
        base = self.embeddings.astype(np.float32, copy=False)
        similarity, rows = Search(base)(to_numpy(feature)[None], n)
        return [(s, self.texts[i]) for s, i in zip(similarity[0].tolist(), rows[0].tolist(), strict=True)]

    @cached_property
    def digest(self) -> str:
        """Hash of everything retrieval depends on: texts and embeddings."""
        digest = hashlib.blake2b("\n".join(self.texts).encode(), digest_size=8)
        digest.update(np.ascontiguousarray(self.embeddings).data)
        return digest.hexdigest()

    def check_backbone(self, backbone: Backbone) -> None:
        """Refuse embeddings from another text tower, whose similarities would be meaningless."""
        if self.fingerprint != backbone.text_fingerprint:
            raise CaptionError(
                f"this caption base was built with another backbone or other prompts ({describe(self)}, but "
                f"{backbone.name} is {backbone.text_fingerprint[:8]}). Rebuild it from its texts with this model."
            )


def _config(folder: Path) -> dict[str, Any]:
    """Read and validate config.json; bases without checksums are accepted with a log message."""
    file = folder / "config.json"
    config = parse_json(read_bytes(file, LABELS, CaptionError), file, CaptionError, DAMAGED)
    if not isinstance(config, dict) or config.get("format") not in (FORMAT, UNCHECKED):
        said = config.get("format") if isinstance(config, dict) else None
        raise CaptionError(f"{folder} is not a caption base (format {said!r})")
    if checksums.CHECKSUM in config or config["format"] == FORMAT:
        if config.get(checksums.CHECKSUM) != checksums.of_data(config) or "embeddings_crc32" not in config:
            raise CaptionError(f"{file} is damaged: {DAMAGED}")
    else:
        log.info("%s has no checksums (older format), so damage cannot be detected", folder)
    return config


def _mapped(file: Path, name: str) -> NDArray[Any]:
    """Memory-map a tensor of a safetensors file; safetensors' own NumPy reader copies it."""
    from safetensors import safe_open

    with safe_open(file, "np") as held:  # validates the file
        kind = held.get_slice(name).get_dtype()
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        about = json.loads(opened.read(length))[name]
    start, shape = 8 + length + about["data_offsets"][0], tuple(about["shape"])
    if not all(shape):  # empty arrays cannot be mapped
        return np.zeros(shape, _KINDS[kind])
    # writable, because torch warns about read-only arrays
    return np.asarray(np.memmap(file, _KINDS[kind], "c", start, shape))


def _lengths(embeddings: NDArray[Any]) -> NDArray[np.float64]:
    """The squared length of every row, computed in pieces; not finite if the row is not."""
    pieces = range(0, len(embeddings), 1 << 14)
    parts = (embeddings[i : i + (1 << 14)].astype(np.float32) for i in pieces)
    return np.concatenate([np.einsum("nd,nd->n", part, part) for part in parts] or [np.zeros(0)])


def describe(base: CaptionBase) -> str:
    """Describe the model of a base."""
    return f"{base.model or 'unnamed'} (weights {base.fingerprint[:8]})"


def chosen_captions(
    source: CaptionBase | str | os.PathLike[str] | Literal[False], backbone: Backbone
) -> CaptionBase | Literal[False]:
    """Open the given caption base; False or "none" disables captions."""
    if source is False or isinstance(source, CaptionBase):
        return source
    return False if os.fspath(source) == NONE else open_captions(source, backbone)


def open_captions(source: str | os.PathLike[str], backbone: Backbone) -> CaptionBase:
    """Open the base that fits a backbone, from a folder or "hf-hub:ORG/NAME", or build one from a file of captions."""
    bases = [CaptionBase.load(folder) for folder in base_folders(source)]
    if not bases:
        return CaptionBase.from_file(source, backbone)
    if len(bases) == 1:
        bases[0].check_backbone(backbone)
    if fitting := [base for base in bases if base.fingerprint == backbone.text_fingerprint]:
        return fitting[0]
    raise CaptionError(
        f"{os.fspath(source)} has captions for {', '.join(map(describe, bases))}, but none for {backbone.name}. "
        "Build a base for this model too."
    )


def base_folders(source: str | os.PathLike[str]) -> list[Path]:
    """List the caption bases in a folder or "hf-hub:ORG/NAME", one per model; empty for a file of texts."""
    name = os.fspath(source)
    if name == NONE:
        todo = f"give a caption base (or ./{NONE})"
        raise CaptionError(f"{NONE} disables captions, but they are required here: {todo}")
    folder = hub.pull(name) if name.startswith(hub.PREFIX) else Path(name).expanduser()
    if (folder / "config.json").is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob("*/config.json")) if folder.is_dir() else []
    if not found and name.startswith(hub.PREFIX):
        raise CaptionError(f"{name} contains no caption base")
    return found


def default_captions(backbone: Backbone) -> CaptionBase:
    """Load the 16,000 built-in captions, with embeddings for the given backbone.

    Embeddings for the embedded model are included. Any other backbone computes them once (seconds on a GPU,
    minutes on a CPU) and stores them in the cache folder.
    """
    if backbone.is_embedded:
        return CaptionBase.load(MINI / "captions", backbone)
    return kept_captions(read_texts(MINI / "captions" / "texts.txt"), backbone)


def kept_captions(texts: Sequence[str], backbone: Backbone) -> CaptionBase:
    """Sentences in a backbone's space, embedded once and kept in the cache folder."""
    name = f"{backbone.text_fingerprint}-{_digest(chr(10).join([*texts, '']))[:8]}"
    kept = cache_folder() / "captions" / name
    try:
        return CaptionBase.load(kept, backbone)
    except CaptionError:
        log.info("embedding %d captions for %s (cached afterwards)", len(texts), backbone.name)
        base = CaptionBase.build(texts, backbone)
    try:
        base.save(kept)
    except OSError as error:
        log.warning("cannot cache the embedded captions in %s: %s", kept, error)
    return base


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
