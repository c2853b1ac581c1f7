"""A software bill of materials as CycloneDX JSON: the libraries of the light install, and the embedded model."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import mltta
from mltta.storage.folders import MINI

#: licenses with an identifier of SPDX among those of the model's ingredients
_SPDX = ("Apache-2.0", "MIT")
#: the files that make up the model
_MODEL = ("open_clip_model.safetensors", "image.onnx", "text.onnx", "captions/embeddings.safetensors")


def bill() -> dict[str, Any]:
    """The bill of this version; equal inputs give equal bytes."""
    libraries = list(_libraries())
    named = "".join(f"{one['name']} {one['version']}\n" for one in libraries)
    own = f"pkg:pypi/mltta@{mltta.__version__}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + named)}",
        "version": 1,
        "metadata": {"component": _library("mltta", mltta.__version__, "MIT") | {"type": "application"}},
        "components": [*libraries, _model()],
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in libraries] + ["model:mini"]}],
    }


def _libraries() -> Iterator[dict[str, Any]]:
    """Everything that `pip install mltta` brings, as installed here."""
    todo, seen = ["mltta"], {"mltta"}
    found = []
    while todo:
        for line in metadata.requires(todo.pop()) or ():
            wanted = Requirement(line)
            name = re.sub(r"[-_.]+", "-", wanted.name).lower()
            if name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                continue
            seen.add(name)
            todo.append(name)
            found.append(name)
    for name in sorted(found):
        about = metadata.metadata(name)
        classified = [
            one.rpartition(":: ")[2] for one in about.get_all("Classifier", []) if "License ::" in one
        ]
        said = about.get("License-Expression") or "; ".join(classified) or (about.get("License") or "")[:100]
        yield _library(name, metadata.version(name), said)


def _library(name: str, version: str, said: str) -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version}"
    held = {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}
    return held | ({"licenses": _licenses(said)} if said else {})


def _licenses(said: str) -> list[dict[str, Any]]:
    return [{"license": {"id": said} if said in _SPDX else {"name": said}}]


def _model() -> dict[str, Any]:
    """The embedded model, with what it was trained on according to its card."""
    card = (MINI / "README.md").read_text(encoding="utf-8")
    lines = card.partition("## What it was trained on\n")[2].partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    parts = [
        {"type": "data", "name": name, "description": used, "licenses": _licenses(license)}
        for name, used, license in rows
    ]
    hashes = [
        {
            "type": "file",
            "name": name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((MINI / name).read_bytes()).hexdigest()}],
        }
        for name in _MODEL
    ]
    return {
        "type": "machine-learning-model",
        "bom-ref": "model:mini",
        "name": "mini",
        "version": mltta.__version__,
        "licenses": _licenses("MIT"),
        "components": [*hashes, *parts],
    }


def write(folder: Path) -> Path:
    """Write the bill next to the files of a release."""
    folder.mkdir(exist_ok=True)
    file = folder / f"mltta-{mltta.__version__}.cdx.json"
    file.write_text(json.dumps(bill(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file
