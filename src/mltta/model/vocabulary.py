"""Cached text features: the words of all built-in lists with the seven short templates.

They take seconds to encode and never change. Those of the embedded model are included; any other backbone encodes them
once and stores them in the cache folder. Labels among them are looked up, whether typed by hand or not.
"""

from __future__ import annotations

import hashlib
import json
import logging
from functools import cache
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from mltta.arrays import Array, to_numpy
from mltta.labels import BUILT_IN, LabelSet, each_alone
from mltta.storage import atomic
from mltta.storage.checksums import of_tensors
from mltta.storage.folders import MINI, cache_folder
from mltta.storage.tensors import to_bytes

log = logging.getLogger("mltta")
FORMAT = "mltta-vocabulary-1"
#: number of additional synonyms used per label
SYNONYMS = 8


class Vocabulary:
    """Words and their unit features (V, D)."""

    def __init__(self, texts: list[str], features: Array):
        self.texts, self.features = texts, features
        #: index of each text, by exact spelling
        self.rows = {text: row for row, text in enumerate(texts)}


def words() -> list[str]:
    """The texts of all built-in labels and their first synonyms, without duplicates."""
    labels = [each_alone(LabelSet.load(name)) for name in BUILT_IN]
    texts = [text for some in labels for text in some.texts]
    more = [word for some in labels for own in some.synonyms for word in own[:SYNONYMS]]
    return list(dict.fromkeys(texts + more))


@cache
def rivals() -> LabelSet:
    """The fixed vocabulary that every label competes with: the everyday words."""
    return each_alone(LabelSet.load("everyday"))


def identity(fingerprint: str, templates: tuple[str, ...], texts: list[str]) -> str:
    """Key of the features: text tower, templates and words."""
    said = json.dumps([FORMAT, fingerprint, templates, texts])
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def kept_file(name: str) -> Path:
    """The cache file of a backbone's vocabulary."""
    return cache_folder() / "vocabulary" / f"{name}.safetensors"


def find(name: str) -> Vocabulary | None:
    """The vocabulary included with the embedded model or cached on this machine."""
    files = MINI / "vocabulary.safetensors", kept_file(name)
    return next(filter(None, (load(file, name) for file in files)), None)


def load(file: Path, name: str) -> Vocabulary | None:
    """Load cached features; None if they are missing, outdated or damaged."""
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
        log.warning("%s is damaged; computing it again", file)
        return None
    return Vocabulary(texts, features.astype(np.float32))


def save_to(file: Path, name: str, vocabulary: Vocabulary) -> None:
    """Save features; if that fails, the run continues without the cache."""
    tensors = {"features": np.ascontiguousarray(to_numpy(vocabulary.features))}
    about = {"identity": name, "texts": json.dumps(vocabulary.texts)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(file, to_bytes(tensors, about))
    except OSError as error:
        log.warning("cannot cache the vocabulary in %s: %s", file, error)
