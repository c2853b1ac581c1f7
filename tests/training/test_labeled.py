"""Labeled photos are read back with what is known of each, and a model is measured on those held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mltta.metrics import average_precision
from tests.training.clones import clone, picture, saved, source
from training import gather, labeled
from training.evaluate import Answers

COLORS = {"cat": (200, 60, 60), "dog": (60, 60, 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """Shards of two sources: one of two classes, one whose photos have all labels."""
    place = tmp_path_factory.mktemp("labeled")
    pets = {
        f"{kind}/{i}.jpg": saved(picture(500 + 20 * n + i)) for n, kind in enumerate(COLORS) for i in range(9)
    }
    scenes = {f"{i}.jpg": saved(picture(600 + i)) for i in range(6)}
    commits = clone(place / "clones", "a/pets", pets), clone(place / "clones", "b/scenes", scenes)
    terms = {f"{i}.jpg": ("sea|sky", "tree|sky", "sunset")[i % 3] for i in range(6)}
    manifest = [
        source("a/pets", {"cat": "cat|animal", "dog": "dog|animal"}, commit=commits[0], absent="classes"),
        source("b/scenes", terms, commit=commits[1], absent="all", group="scenes"),
    ]
    (place / "aside").mkdir()
    (place / "aside/other.jpg").write_bytes(saved(picture(999)))
    gather.gather(manifest, place / "clones", [place / "aside"], place / "out", share=0.5, piece=60_000)
    return place / "out"


def test_each_photo_is_read_once(folder):
    held, rest = (labeled.read(folder, held_out=own) for own in (True, False))
    assert len(held.facts) + len(rest.facts) == 24
    assert 12 <= len(held.facts) < 24
    assert not {f["photo"] for f in held.facts} & {f["photo"] for f in rest.facts}
    assert all(image[:2] == b"\xff\xd8" for image in held.images)


def test_labels_are_present_absent_or_unknown(folder):
    rest = labeled.read(folder, held_out=False)
    names = ["cat", "dog", "animal", "sky", "tree", "sunset", "person"]
    known: dict[str, list[int]] = {
        f["terms"][0]: row.tolist() for f, row in zip(rest.facts, rest.labels(names), strict=True)
    }
    assert known["cat"] == [1, 0, 1, -1, -1, -1, -1]
    assert known["dog"] == [0, 1, 1, -1, -1, -1, -1]
    assert known["tree"] == [-1, -1, -1, 1, 1, -1, -1]  # a sunset implies the sky, which is there
    assert known["sunset"] == [-1, -1, -1, 1, 0, 1, -1]


def test_a_damaged_or_missing_shard_is_refused(folder, tmp_path):
    for path in folder.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "photos-000.tar"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"photos-000\.tar does not match its checksum"):
        labeled.read(tmp_path, held_out=True)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"photos-000\.tar is missing"):
        labeled.read(tmp_path, held_out=True)


@pytest.fixture(scope="module")
def mini() -> Answers:
    return Answers(gather.meanings.EVERYDAY.parents[1] / "mini", torch.device("cpu"))


def test_figures_are_those_of_the_scores(folder, mini):
    held = labeled.read(folder, held_out=True)
    rows = [i for i, f in enumerate(held.facts) if f["source"] == "a/pets"]
    truth = np.array([[held.facts[i]["terms"][0] == n for n in ("cat", "dog")] for i in rows], int)
    figures = labeled.measure(mini, held)["a/pets"]
    found = labeled.scores(mini, [held.images[i] for i in rows], ["cat", "dog"])
    assert (figures["photos"], figures["labels"]) == (len(rows), 2)
    for way, own in found.items():
        assert own.sum(1) == pytest.approx(1, abs=1e-3)
        assert figures[way] == pytest.approx(100 * average_precision(own, truth).mean())


def test_a_photo_of_one_thing_is_recognized(mini):
    photos = Path(__file__).parents[2] / "examples/photos"
    names = ["bee", "bicycle", "kitchen"]
    own = labeled.scores(mini, [(photos / "bee.jpg").read_bytes()], names)
    assert [names[scores[0].argmax()] for scores in own.values()] == ["bee", "bee"]
