"""What to evaluate: methods with settings, and a description of everything a result depends on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mltta.data import Dataset
from mltta.images.generated import variations_folder
from mltta.methods.base import Method
from mltta.methods.registry import method_class
from mltta.session.session import Session


@dataclass(frozen=True)
class Recipe:
    """A method to evaluate: its name, settings and, for an online method, the order of images."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "paper"
    #: name in tables; not part of the result's identity
    title: str = ""
    #: None: dataset order; an integer: shuffled with this seed
    order: int | None = None

    @property
    def name(self) -> str:
        if self.title:
            return self.title
        told = [f"{k}={v}" for k, v in self.options.items() if k != "generated"]
        said = [self.preset] * (self.preset != "paper") + told
        return self.method + (f" ({', '.join(said)})" if said else "")

    @property
    def key(self) -> str:
        """The name, plus the order if there is one: unique within a run."""
        return self.name if self.order is None else f"{self.name}, order {self.order}"


def with_variations(recipe: Recipe, dataset: str, root: str | Path | None) -> Recipe:
    """The recipe with the generated images of a dataset, if its method takes some and it names none."""
    if root is None or "generated" in recipe.options or not uses_variations(recipe.method):
        return recipe
    return replace(recipe, options={**recipe.options, "generated": str(variations_folder(root, dataset))})


def uses_variations(method: str) -> bool:
    """Whether a method looks at generated images."""
    return hasattr(method_class(method).Config, "generated")


def describe(session: Session, dataset: Dataset, recipe: Recipe, method: Method) -> dict[str, Any]:
    """Everything a recipe's scores depend on; runs that differ in any of it never share a result."""
    about = json.loads(json.dumps(session.about(method)))
    usual = json.loads(json.dumps(asdict(type(method.config)())))
    if generated := about["config"].get("generated"):
        about["config"]["generated"] = ""  # what is in the folder counts, not where it lies
    return {
        **about,
        "settings": {name: value for name, value in about["config"].items() if value != usual[name]},
        **({"transductive": True} if method.transductive else {}),
        **({"reconstruction": True} if method.reconstruction else {}),
        "online": method.online,
        "order": recipe.order if method.online else None,
        "emits": method.emits,
        "merge": method.merging,
        "dataset": dataset.name,
        "generated": _tree_digest(generated) if generated else None,
    }


def dataset_digests(dataset: Dataset) -> dict[str, str | None]:
    """Digests of image names, labels, and files: different files never share a result."""
    files = None
    if isinstance(dataset.images, (list, tuple)):
        files = _digest(f"{x} {_size(x)}" for x in dataset.images if isinstance(x, (str, Path)))
    # two folders may both contain 1.jpg, 2.jpg, …
    names = (dataset.name, *dataset.labels.names, *dataset.ids)
    return {"dataset_digest": _digest(names, dataset.targets.tobytes()), "files": files}


def _digest(lines: Iterable[str], before: bytes = b"") -> str:
    found = hashlib.blake2b(before, digest_size=8)
    for line in lines:
        found.update(f"{line}\n".encode(errors="backslashreplace"))
    return found.hexdigest()


def _size(file: str | Path) -> int:
    try:
        return os.stat(file).st_size
    except (OSError, ValueError):
        return -1


def _tree_digest(folder: str) -> str:
    """A digest of the paths and sizes of all files in a folder."""
    files = sorted(file for file in Path(folder).rglob("[!.]*") if file.is_file())
    return _digest(f"{file.relative_to(folder)} {_size(file)}" for file in files)
