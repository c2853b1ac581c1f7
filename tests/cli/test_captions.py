"""`mltta captions`, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mltta import CaptionBase, load_backbone
from mltta.captions.store import open_captions
from mltta.errors import CaptionError
from tests import golden_data as golden
from tests.cli.test_cli import MODEL, mltta

TINY = [arg for arg in MODEL if arg not in ("--device", "cpu")]
TEXTS = ["A dog sleeps on a sofa.", "Two cats and a settee.", "The sky is blue.", "A red bus."]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "captions.txt"
    path.write_text("\n".join([*TEXTS, "", TEXTS[0]]))
    return path


@pytest.fixture(scope="module")
def base(source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bases") / "base"
    mltta("captions", "build", source, "--out", folder, *TINY)
    return folder


def test_build_embeds_the_captions_and_reports_what_was_asked(source, tmp_path):
    args = ["captions", "build", source, "--out", tmp_path / "base", *TINY, "--labels", "dog, sofa, cow"]
    said = json.loads(mltta(*args, "--json").stdout)
    assert said["bases"][0]["captions"] == 4
    assert said["quality"]["by_label"] == {"dog": 1, "sofa": 1, "cow": 0}
    backbone = golden.backbone("vit")
    made = CaptionBase.load(tmp_path / "base", backbone)
    assert made.texts == TEXTS
    torch.testing.assert_close(torch.from_numpy(made.embeddings), backbone.encode_texts(TEXTS))
    assert "already contains config.json" in mltta(*args, check=2).stderr


def test_build_writes_over_no_file_of_the_users(tmp_path):
    own = tmp_path / "texts.txt"
    own.write_text("\n".join(TEXTS))
    said = mltta("captions", "build", own, "--out", tmp_path, *TINY, check=2).stderr
    assert "already contains texts.txt" in said
    assert own.read_text().splitlines() == TEXTS
    assert "is a file: give a folder" in mltta("captions", "build", own, "--out", own, *TINY, check=2).stderr


def test_what_is_neither_text_nor_image_is_not_searched_for(base, tmp_path):
    for query in (tmp_path, "  "):
        assert (
            "expected a text or a path to an image"
            in mltta("captions", "search", query, *TINY, check=2).stderr
        )
    assert "no such file or folder" in mltta("captions", "info", tmp_path / "nowhere", check=2).stderr


@pytest.mark.parametrize(
    "args",
    [
        ("search", "a dog", "--captions", "none", *MODEL),
        ("info", "none"),
        ("push", "none", "org/name"),
        ("merge", "none", "none", "--out", "both"),
    ],
)
def test_where_captions_are_needed_none_is_not_looked_for_as_a_file(args):
    said = mltta("captions", *args, check=2).stderr
    assert "none disables captions, but they are required here: give a caption base" in said


def test_several_models_get_a_folder_each_and_captions_finds_the_one_that_fits(source, tmp_path):
    mini = load_backbone("mini", device="cpu")
    folder = Path(mini_folder(tmp_path))
    out = tmp_path / "both"
    mltta("captions", "build", source, "-o", out, "-m", "mini", "-m", folder, "--device", "cpu")
    assert len(list(out.glob("*/config.json"))) == 2
    assert open_captions(out, mini).texts == TEXTS
    with pytest.raises(CaptionError, match=r"has captions for mini .* but none for"):
        open_captions(out, golden.backbone("vit"))
    CaptionBase.build(TEXTS[:2], golden.backbone("vit")).save(out / "vit")
    assert open_captions(out, golden.backbone("vit")).texts == TEXTS[:2]
    twice = mltta("captions", "build", source, "-o", tmp_path / "no", "-m", "mini", "-m", "mini", check=2)
    assert "given twice" in twice.stderr


def mini_folder(tmp_path: Path) -> Path:
    """The embedded model under another name, as a user's own folder."""
    from mltta.storage.folders import MINI

    (tmp_path / "own").symlink_to(MINI)
    return tmp_path / "own"


def test_info_shows_the_model_and_how_well_labels_are_covered(base, tmp_path):
    words = tmp_path / "words.csv"
    words.write_text("sofa,settee\n")
    shown = mltta("captions", "info", base, "--labels", "dog, sofa, cow", "--synonyms", words).stdout
    assert "4 captions" in shown
    assert "labels never mentioned: 1 of 3: cow" in shown
    said = json.loads(mltta("captions", "info", base, "-l", "dog, sofa, cow", "--json").stdout)
    assert said["bases"][0]["weights"] == golden.backbone("vit").text_fingerprint
    assert said["quality"]["labels_per_caption"] == {"0": 3, "2": 1} | {"1": 0}
    done = mltta("captions", "info", tmp_path, check=2)
    assert "Build one from captions with `mltta captions build`" in done.stderr


def test_search_by_text_and_by_image_shows_the_nearest_first(base, tmp_path):
    args = ["--captions", base, *MODEL, "-n", "2", "--labels", "dog, cat, sofa", "--json"]
    found = json.loads(mltta("captions", "search", TEXTS[0], *args).stdout)
    assert found[0]["caption"] == TEXTS[0]
    assert found[0]["labels"] == ["dog", "sofa"]
    assert found[0]["similarity"] == pytest.approx(1, abs=1e-5)
    Image.new("RGB", (60, 40), "red").save(tmp_path / "red.png")
    found = json.loads(mltta("captions", "search", tmp_path / "red.png", *args).stdout)
    assert len(found) == 2
    assert found[0]["similarity"] >= found[1]["similarity"]
    assert "red.png" in mltta("captions", "search", "none/red.png", *args, check=2).stderr
    assert TEXTS[0] in mltta("captions", "search", TEXTS[0], *args[:-1]).stdout


def test_merge_keeps_embeddings_as_they_are_and_repeated_captions_once(base, tmp_path, monkeypatch):
    (tmp_path / "more.jsonl").write_text('{"text": "A zebra."}\n{"text": "Two cats and a settee."}\n')
    mltta("captions", "build", tmp_path / "more.jsonl", "-o", tmp_path / "more", *TINY)
    monkeypatch.setattr(
        "mltta.model.backbone.Backbone.encode_texts", lambda *_: pytest.fail("embedded again")
    )
    said = mltta("captions", "merge", base, tmp_path / "more", "--out", tmp_path / "all", "--json").stdout
    assert json.loads(said)["bases"][0]["dropped"] == 1
    parts = [CaptionBase.load(folder) for folder in (base, tmp_path / "more", tmp_path / "all")]
    assert parts[2].texts == [*TEXTS, "A zebra."]
    assert np.array_equal(parts[2].embeddings, np.concatenate([parts[0].embeddings, parts[1].embeddings[:1]]))


def test_bases_of_different_models_are_not_merged_and_both_are_named(base, tmp_path):
    CaptionBase(["A dog."], torch.ones(1, 32) / 32**0.5, "f" * 32, "ViT-B/16").save(tmp_path / "other")
    done = mltta("captions", "merge", base, tmp_path / "other", "--out", tmp_path / "all", check=2)
    assert "ViT-B/16 (weights ffffffff)" in done.stderr
    assert CaptionBase.load(base).model in done.stderr
    assert not (tmp_path / "all").exists()


def test_push_refuses_what_is_no_base_before_anything_is_sent(tmp_path):
    assert "is not a caption base" in mltta("captions", "push", tmp_path, "org/name", check=2).stderr
    (tmp_path / "config.json").write_text("{}")
    assert "is not a caption base" in mltta("captions", "push", tmp_path, "org/name", check=2).stderr


def test_synonyms_change_what_captions_say_to_tag(base, tmp_path):
    (tmp_path / "words.json").write_text('{"cow": ["bus"]}')
    Image.new("RGB", (60, 40), "red").save(tmp_path / "red.png")
    args = ["tag", tmp_path / "red.png", "-l", "dog, sofa, cow", "--captions", base, *MODEL, "-f", "json"]
    args += ["--threshold", "0"]  # all labels with their scores
    assert mltta(*args).stdout != mltta(*args, "--synonyms", tmp_path / "words.json").stdout
    (tmp_path / "words.json").write_text('{"horse": ["bus"]}')
    assert "No label 'horse'" in mltta(*args, "--synonyms", tmp_path / "words.json", check=2).stderr
