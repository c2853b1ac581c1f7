"""Text features that are kept: the words of all built-in lists under the seven short templates.

They cost seconds to encode and never change. Those of the embedded model ship with it; any other backbone encodes them
once and keeps them in the cache folder. A label that is among them, typed by hand or not, is looked up.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from mltta.arrays import Array, to_numpy
from mltta.labels import BUILT_IN, LabelSet, with_known_words
from mltta.storage import atomic
from mltta.storage.checksums import of_tensors
from mltta.storage.folders import MINI, cache_folder
from mltta.storage.tensors import to_bytes

log = logging.getLogger("mltta")
FORMAT = "mltta-vocabulary-1"
#: of each label, so many further words are looked for in a picture
SYNONYMS = 8


class Vocabulary:
    """Words and their unit features (V, D)."""

    def __init__(self, texts: list[str], features: Array):
        self.texts, self.features = texts, features
        #: where a label's text is, if it is there, letter for letter
        self.rows = {text: row for row, text in enumerate(texts)}


def words() -> list[str]:
    """The texts of all built-in labels and the first synonyms of each, all once."""
    labels = [LabelSet.load(name) for name in BUILT_IN]
    texts = [text for some in labels for text in some.texts]
    known = map(with_known_words, labels)
    more = [word for some in known for own in some.synonyms for word in own[:SYNONYMS]]
    return list(dict.fromkeys(texts + more))


def background_words() -> list[str]:
    """The texts of all built-in labels: what else a photo could show."""
    return list(dict.fromkeys(text for name in BUILT_IN for text in LabelSet.load(name).texts))


def identity(fingerprint: str, templates: tuple[str, ...], texts: list[str]) -> str:
    """Names what features depend on: the text tower, the templates, the words."""
    said = json.dumps([FORMAT, fingerprint, templates, texts])
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def kept_file(name: str) -> Path:
    """Where the features of a backbone are kept on this machine."""
    return cache_folder() / "vocabulary" / f"{name}.safetensors"


def find(name: str) -> Vocabulary | None:
    """What ships with the embedded model or is kept on this machine."""
    files = MINI / "vocabulary.safetensors", kept_file(name)
    return next(filter(None, (load(file, name) for file in files)), None)


def load(file: Path, name: str) -> Vocabulary | None:
    """The kept features, or None when there are none, or they are others, or damaged."""
    try:
        with safe_open(file, "np") as held:
            about = dict(held.metadata() or {})
            features = held.get_tensor("features")
        texts = json.loads(about.get("texts", "[]"))
    except (OSError, ValueError, SafetensorError):
        return None
    whole = about.pop("checksum", "") == of_tensors({"features": features}, about)
    if about.get("identity") != name:
        return None
    if not whole or len(texts) != len(features):
        log.warning("%s is damaged, so it is made again", file)
        return None
    return Vocabulary(texts, features.astype(np.float32))


def save_to(file: Path, name: str, vocabulary: Vocabulary) -> None:
    """Keep features; a disk that takes none costs time, not the run."""
    tensors = {"features": np.ascontiguousarray(to_numpy(vocabulary.features))}
    about = {"identity": name, "texts": json.dumps(vocabulary.texts)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(file, to_bytes(tensors, about))
    except OSError as error:
        log.warning("the features of everyday words could not be kept in %s: %s", file, error)
