"""The page inside a browser answers as the server does; here ONNX Runtime stands for the browser's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mltta
from mltta.model.cpu_passes import Inline
from mltta.model.onnx_backbone import open_graph
from mltta.serve.in_page import Page

PHOTOS = sorted((Path(__file__).parents[2] / "examples" / "photos").glob("*.jpg"))
pytestmark = pytest.mark.light


def js(value: Any) -> Any:
    """A value as Pyodide gives it to Python."""
    return SimpleNamespace(to_py=lambda: value)


@lru_cache(maxsize=1)
def page() -> Page:
    return Page()


@lru_cache(maxsize=2)
def graph(name: str) -> Any:
    return open_graph(Path(page().folder) / name)


def call(path: str, photos: Sequence[Path] = (), **fields: Any) -> tuple[Any, int]:
    """The answer, and how often the page had to compute for it."""
    files = [js(memoryview(photo.read_bytes())) for photo in photos]
    for rounds in range(20):
        said = page().answer(path, json.dumps(fields), [photo.name for photo in photos], files)
        if said:
            return json.loads(said), rounds
        asked = page().take()
        assert asked
        for key, name, output, inputs in asked:
            (found,) = graph(name).run([output], inputs)
            page().give(key, js(memoryview(np.ascontiguousarray(found).reshape(-1))), found.shape)
    raise AssertionError("it asks again and again")


@pytest.mark.parametrize("labels", ["voc", "zeppelin, cat | kitty, flower"])
def test_photos_are_tagged_as_by_the_tagger(labels):
    photos = PHOTOS[:2]
    answer, rounds = call(
        "tag", photos, labels=labels, method="auto", settings={}, all=True, where=True, captions=True
    )
    given = labels if labels == "voc" else labels.split(", ")
    tagger = mltta.Tagger(labels=given, engine="onnx", where=True, explain=True)
    for entry, wanted in zip(answer["images"], tagger(photos), strict=True):
        assert entry["present"] == wanted.present
        assert [one["score"] for one in entry["labels"]] == pytest.approx(
            [one["score"] for one in wanted], abs=1e-6
        )
        assert set(entry["where"]) == set(wanted.where)
        assert set(entry["captions"]) == set(wanted.captions)
    assert rounds <= 12  # seven templates and the captions of words of one's own, then the photos


def test_the_page_offers_what_it_can_run():
    assert [one["name"] for one in call("methods")[0]["methods"]] == ["auto", "clip"]
    assert call("labels/voc")[0]["labels"] == list(mltta.LabelSet.load("voc").names)
    assert "error" in call("labels/nothing")[0]


def test_what_cannot_be_tagged_says_why(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no photo")
    answer, _ = call("tag", [tmp_path / "a.jpg"], labels="voc", settings={})
    assert "a.jpg" in answer["images"][0]["error"]
    assert "unknown method" in call("tag", PHOTOS[:1], method="ml-tta", settings={})[0]["error"]


def test_work_without_threads_is_done_at_once():
    with Inline() as pool:
        assert list(pool.map(str, [1, 2])) == ["1", "2"]
        assert isinstance(pool.submit(int, "x").exception(), ValueError)
