"""Every shell and Python block of the README and the guides runs, or says why it does not."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
from collections import Counter, deque
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from torch import Tensor

from mltta.captions import labelled
from mltta.labels import LabelSet
from mltta.methods import registry
from mltta.model import load as loading
from mltta.model.passes import ImageTower
from tests.docs.blocks import blocks_of, check_printed, run_python, run_shell

ROOT = Path(__file__).parents[2]
GUIDES = [
    "index",
    "idea",
    "tagging",
    "library",
    "labels",
    "keywords",
    "languages",
    "models",
    "captions",
    "serve",
    "scale",
    "evaluation",
    "reproduce",
    "write-a-method",
    "api",
    "auto",
]
PAGES = {"README.md": ROOT / "README.md"} | {
    f"docs/{name}.md": ROOT / "docs" / f"{name}.md" for name in GUIDES
}
#: what may keep a block from running
REASONS = {
    "needs the hub",
    "needs weights from the hub",
    "needs a GPU",
    "takes minutes",
    "installs packages",
    "sets up the repository",
    "runs until Ctrl-C",
    "needs a language model",
    "needs FiftyOne's database",
    "starts a server",
    "needs a running server",
    "needs photos of your own",
    "needs a cluster",
    "needs photos",
    "downloads Pyodide",
}


@pytest.fixture(scope="module", autouse=True)
def _heavy_work_is_shared():
    """mini is loaded once for all blocks; a picture is encoded once, and captions are read once for a label list."""
    load, encode = loading.load_backbone, ImageTower.one_pass
    mini = functools.cache(lambda: load("mini"))
    passes: dict[tuple[int, bytes], Tensor] = {}

    def load_once(name="mini", weights=None, **more):
        plain = not any(value for value in (weights, *more.values()) if value not in ("auto", "cpu"))
        return mini() if name == "mini" and plain else load(name, weights, **more)

    def encode_once(tower, pixels):
        key = (id(tower), hashlib.blake2b(np.asarray(pixels).tobytes()).digest())
        if key not in passes:
            passes[key] = encode(tower, pixels)
        return passes[key]

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(loading, "load_backbone", load_once))
        patches.enter_context(mock.patch.object(ImageTower, "one_pass", encode_once))
        patches.enter_context(mock.patch.object(labelled, "_lately", deque(maxlen=64)))
        yield


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A reader's folder: a photo, some folders of them, labels, a small VOC."""
    photos = ROOT / "examples" / "photos"
    shutil.copyfile(photos / "dogs.jpg", tmp_path / "photo.jpg")
    for folder, names in (("holidays", ["cat"]), ("photos", ["cat", "dogs", "officer"])):
        (tmp_path / folder).mkdir()
        for name in names:
            shutil.copyfile(photos / f"{name}.jpg", tmp_path / folder / f"{name}.jpg")
    (tmp_path / "photos" / "labels.csv").write_text(
        "image,labels\ncat.jpg,cat\ndogs.jpg,dog\nofficer.jpg,person\n"
    )
    shutil.copyfile(ROOT / "examples" / "labels.txt", tmp_path / "my_labels.txt")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    voc = tmp_path / "VOCdevkit" / "VOC2012"
    (voc / "ImageSets" / "Main").mkdir(parents=True)
    (voc / "JPEGImages").mkdir()
    shown = {"cat": "cat", "dogs": "dog", "officer": "person"}
    for name in shown:
        shutil.copyfile(photos / f"{name}.jpg", voc / "JPEGImages" / f"{name}.jpg")
    for label in LabelSet.load("voc").names:
        rows = "".join(f"{name} {1 if shown[name] == label else -1:>2}\n" for name in shown)
        (voc / "ImageSets" / "Main" / f"{label}_val.txt").write_text(rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, place, record_property):
    names: dict[str, object] = {"__name__": "__main__"}
    ran, why = 0, Counter()
    with mock.patch.dict(registry._REGISTRY):
        for block in blocks_of(PAGES[page], page):
            if block.reason:
                assert block.reason in REASONS, f"{block}: {block.reason!r} is no reason that the tests know"
                why[block.reason] += 1
                continue
            if block.kind == "python":
                run_python(block, names)
            else:
                (check_printed if block.kind == "text" else run_shell)(block)
            ran += 1
    record_property("blocks", json.dumps({"ran": ran, "why": why}))


def test_every_guide_of_the_site_is_run_here():
    """Pages that the navigation calls guides are in the list above."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    guides = text.split("- Guides:")[1].split("- Measurements:")[0]
    listed = {line.split(": ")[1] for line in guides.splitlines() if ".md" in line and "#" not in line}
    assert listed <= {f"{name}.md" for name in GUIDES}
    assert len(listed) >= 9
