"""Photos with annotated labels from several sources, and their features, encoded once and kept in .npz files."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mltta import LabelSet, load_dataset
from mltta.labels import each_alone
from mltta.methods.auto import AutoConfig
from mltta.methods.calibration import fingerprint
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.model.vocabulary import rivals
from mltta.session.execution import Execution
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo
from training import labeled, sources

#: photos of a source and of a label that are enough to count
PHOTOS, POSITIVE = 40, 5
#: in these people are seldom named
PEOPLE = frozenset({"person", "woman", "man", "child", "boy", "girl", "baby"})


@dataclass
class Annotated:
    """A source: 1 if a label is present, 0 if it is absent, -1 if that is not known."""

    name: str
    labels: LabelSet
    ids: list[str]
    images: Sequence[Any]
    truth: NDArray[np.int8]
    #: false if each photo was chosen for one label
    natural: bool = True


def dataset(name: str, key: str, root: Path, first: int | None, **options: Any) -> Annotated:
    """A benchmark."""
    data = load_dataset(key, root, **options)
    data = data.select(slice(first)) if first else data
    return Annotated(name, data.labels, [str(i) for i in data.ids], data.images, data.targets)


def packed(folder: Path, most: int) -> list[Annotated]:
    """The sources of a pack of labelled photos: photos.tar and photos.jsonl."""
    facts = [json.loads(line) for line in (folder / "photos.jsonl").read_text(encoding="utf-8").splitlines()]
    absent = {source.repository: source.absent for source in sources.read()}
    with tarfile.open(folder / "photos.tar") as tar:
        held = {Path(m.name).name: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]
    by: dict[str, list[dict[str, Any]]] = {}
    for one in facts:
        kind = "all" if one["all_labels_given"] else absent.get(one["source"], "none")
        if kind != "none":
            by.setdefault(one["source"], []).append({**one, "every": kind == "all"})
    found = (_source(name, own, lambda own: held[own["photo"]], most) for name, own in sorted(by.items()))
    return [one for one in found if one is not None]


def held_out(folder: Path, most: int) -> list[Annotated]:
    """The photos that `training.gather` held out, by source."""
    all_of_them = labeled.read(folder, held_out=True)
    by: dict[str, list[dict[str, Any]]] = {}
    for one, data in zip(all_of_them.facts, all_of_them.images, strict=True):
        if all_of_them.annotates[one["source"]]:
            every = one["source"] in all_of_them.complete
            known = all_of_them.annotates[one["source"]] - set(one["unknown"])
            by.setdefault(one["source"], []).append({**one, "every": every, "data": data, "known": known})
    found = (_source(name, own, lambda own: own["data"], most) for name, own in sorted(by.items()))
    return [one for one in found if one is not None]


def _source(
    name: str, facts: list[dict[str, Any]], read: Callable[[dict[str, Any]], bytes], most: int
) -> Annotated | None:
    """A source as its labels that are words of the vocabulary; None if there are too few."""
    order = np.random.default_rng(0).permutation(len(facts))[:most]
    facts = [facts[i] for i in sorted(order)]
    words = sorted({word for one in facts for word in one["labels"]})
    meant = dict(
        zip(words, each_alone(LabelSet(tuple(words), tuple(words), ((),) * len(words))).texts, strict=True)
    )
    fixed = set(rivals().texts)
    given = [{meant[word] for word in one["labels"]} & fixed for one in facts]
    counts = Counter(word for own in given for word in own)
    names = sorted(
        word
        for word, count in counts.items()
        if count >= POSITIVE and (facts[0]["every"] or word not in PEOPLE)
    )
    if len(facts) < PHOTOS or len(names) < 3:
        return None
    truth = np.array([[word in own for word in names] for own in given], np.int8)
    for row, one in enumerate(facts):
        if "known" in one:
            truth[row, [word not in one["known"] and word not in given[row] for word in names]] = -1
    short = name.rpartition("/")[2][:24]
    ids, images = [one["photo"] for one in facts], [read(one) for one in facts]
    return Annotated(short, LabelSet.of(names), ids, images, truth, facts[0]["every"])


def features(backbone: Backbone, source: Annotated, folder: Path, effort: str = "best") -> Encoded:
    """The views that auto needs, from a file or encoded and written to it."""
    specs = AutoConfig(effort=effort).specs(backbone.preprocess.size)  # type: ignore[arg-type]
    name = f"{fingerprint(backbone)[:12]}-{effort}-{source.name}-{len(source.ids)}.npz"
    file = folder / name
    if not file.exists():
        stream = FeatureStream(backbone, specs, fetch=_Fetch(source), execution=Execution(batch_size=8))
        rows: dict[Any, list[Any]] = {spec: [] for spec in specs}
        for item in (item for batch in stream(range(len(source.ids))) for item in batch):
            for spec in specs:
                rows[spec].append(np.asarray(item.features[spec], np.float16))
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(file, *(np.stack(rows[spec]) for spec in specs))
        print(f"{source.name}: {len(source.ids)} photos encoded", flush=True)
    held = np.load(file)
    return Encoded({spec: held[f"arr_{i}"] for i, spec in enumerate(specs)})


class _Fetch:
    def __init__(self, source: Annotated):
        self.source = source

    def __call__(self, i: int) -> Photo:
        image = self.source.images[i]
        if isinstance(image, bytes):
            image = Image.open(io.BytesIO(image)).convert("RGB")
        return Photo(i, self.source.ids[i], image, self.source.ids[i])
