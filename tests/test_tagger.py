"""The tagger: what it takes, what it gives, and that an answer belongs to its image alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta import Execution, Tagger, load_backbone
from mltta.errors import ConfigError, ImageError, LabelError, WeightsError
from tests import golden_data as golden

ROOT = Path(__file__).parents[1]
LABELS = ["dog", "cat", "traffic light", "sofa", "potted plant"]


def photo(seed: int, size: tuple[int, int] = (90, 60)) -> Image.Image:
    """A smooth random picture, different for every seed."""
    coarse = np.random.default_rng(seed).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(scope="module", params=["auto", "ml-tta"])
def tagger(request) -> Tagger:
    return Tagger(golden.backbone("vit"), LABELS, request.param)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    for i, name in enumerate(["a.png", "b.png", "sub/c.png"]):
        photo(i, (90 + i, 60)).save(tmp_path / name)
    return tmp_path


def test_an_answer_has_the_shape_of_a_transformers_pipeline_plus_the_labels_present(tagger):
    tags = tagger(photo(0))
    assert [set(item) for item in tags] == [{"label", "score"}] * 5
    assert sorted(item["label"] for item in tags) == sorted(LABELS)
    scores = [item["score"] for item in tags]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert tags.present == [item["label"] for item in tags[: len(tags.present)]]
    assert json.loads(json.dumps(tags)) == list(tags)


def test_path_bytes_array_and_pil_image_give_the_same_answer(tagger, folder):
    path = folder / "a.png"
    want = list(tagger(path))
    assert list(tagger(str(path))) == want
    assert list(tagger(path.read_bytes())) == want
    assert list(tagger(Image.open(path))) == want
    assert list(tagger(np.asarray(Image.open(path)))) == want


def test_a_list_and_a_folder_give_one_answer_each_in_order(tagger, folder):
    from_folder = tagger(folder)
    assert [tags.image.rsplit("/", 1)[-1] for tags in from_folder] == ["a.png", "b.png", "c.png"]
    from_list = tagger([photo(0, (90, 60)), folder / "b.png"])
    assert list(from_list[0]) == list(from_folder[0])
    assert list(from_list[1]) == list(from_folder[1])


def test_scores_are_identical_to_the_last_bit_in_any_batch_folder_or_order(tagger, folder):
    alone = {name: list(tagger(folder / name)) for name in ("a.png", "b.png", "sub/c.png")}
    backwards = tagger([folder / "sub/c.png", folder / "b.png", folder / "a.png"])
    assert [list(tags) for tags in backwards] == [alone["sub/c.png"], alone["b.png"], alone["a.png"]]
    elsewhere = folder / "other" / "name.png"
    elsewhere.parent.mkdir()
    shutil.copy(folder / "a.png", elsewhere)
    assert list(tagger(elsewhere)) == alone["a.png"]
    fresh = Tagger(golden.backbone("vit"), LABELS, tagger.method.name, execution=Execution(batch_size=7))
    everything = {tags.image.removeprefix(f"{folder}/"): list(tags) for tags in fresh(folder)}
    assert everything == alone | {"other/name.png": alone["a.png"]}


ANOTHER_RUN = """
import json, sys
from mltta import Tagger, load_backbone
backbone = load_backbone(None, {weights!r}, quick_gelu=True, device="cpu")
taggers = [Tagger(backbone, {labels!r}, method) for method in ("auto", "ml-tta")]
print(json.dumps([list(tagger(sys.argv[1])) for tagger in taggers]))
"""


def test_scores_are_identical_to_the_last_bit_across_runs(folder):
    code = ANOTHER_RUN.format(labels=LABELS, weights=str(golden.GOLDEN / "checkpoints/vit.safetensors"))
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, folder / "b.png"], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert [len(tags) for tags in json.loads(runs[0])] == [5, 5]


def test_two_threads_with_an_online_tagger_each_get_what_a_lone_run_gets():
    tagger = Tagger(
        golden.backbone("vit"),
        LABELS,
        "tda",
        execution=Execution(batch_size=2, workers=0),
        positive_capacity=1,
    )
    albums = [[photo(i, (48, 36)) for i in range(first, first + 30)] for first in (0, 100)]
    lone = [[list(tags) for tags in tagger(album)] for album in albums]
    assert lone[0][-1] != list(tagger(albums[0][-1])), (
        "it learns from the photos before, or this says nothing"
    )
    together = threading.Barrier(2)

    def tag(album: list[Image.Image]) -> list[list[dict]]:
        together.wait()
        return [list(tags) for tags in tagger.stream(album)]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(tag, albums)) == lone
    taken_in_turns = zip(*map(tagger.stream, albums), strict=True)
    assert [[list(tags) for tags in pair] for pair in taken_in_turns] == [
        list(p) for p in zip(*lone, strict=True)
    ]


def test_another_seed_looks_at_other_views(folder):
    one, other = (
        Tagger(golden.backbone("vit"), LABELS, "ml-tta", seed=seed)(folder / "a.png") for seed in (0, 1)
    )
    assert list(one) != list(other)
    clip = [Tagger(golden.backbone("vit"), LABELS, method="clip", seed=s)(folder / "a.png") for s in (0, 1)]
    assert list(clip[0]) == list(clip[1])


def test_one_bad_image_raises_alone_and_is_reported_in_a_list(tagger, folder):
    bad = folder / "bad.jpg"
    bad.write_text("no image")
    with pytest.raises(ImageError, match=r"bad\.jpg"):
        tagger(bad)
    answers = tagger([folder / "a.png", bad, folder / "b.png"])
    assert [tags.error is None for tags in answers] == [True, False, True]
    assert list(answers[1]) == []
    assert "bad.jpg" in answers[1].error


def test_top_k_and_threshold_choose_from_the_answer(tagger):
    tags = tagger(photo(3))
    assert tags.top(2) == tags[:2]
    cut = tags[1]["score"]
    assert tags.top(threshold=cut) == tags[:2]


def test_untrained_weights_never_tag_a_photo():
    backbone = load_backbone("RN50", random_weights=True)
    with pytest.raises(WeightsError, match="random weights"):
        Tagger(backbone, LABELS)


def test_a_merge_over_the_whole_dataset_is_refused_for_tagging():
    with pytest.raises(ConfigError, match="minmax"):
        Tagger(golden.backbone("vit"), LABELS, "ml-tta", preset="released")
    Tagger(golden.backbone("vit"), LABELS, "ml-tta", preset="released", merge="sum", views=4)


@pytest.mark.parametrize("labels", [[], ["dog", " "], "missing.txt"])
def test_bad_label_lists_are_refused(labels):
    with pytest.raises(LabelError):
        Tagger(golden.backbone("vit"), labels)


@pytest.mark.parametrize(("method", "options"), [("auto", {}), ("ml-tta", {"views": 4})])
def test_labels_in_any_language_and_captions_from_a_file_work(tmp_path, method, options):
    (tmp_path / "captions.txt").write_text("A dog on a sofa.\nUn chien et un canapé.\n", encoding="utf-8")
    tagger = Tagger(
        golden.backbone("vit"),
        ["chien", "犬", "canapé"],
        method,
        captions=tmp_path / "captions.txt",
        **options,
    )
    assert {item["label"] for item in tagger(photo(0))} == {"chien", "犬", "canapé"}


def test_the_picture_shows_photo_and_bars():
    from mltta.output.picture import annotate

    image = photo(1, (300, 200))
    picture = annotate(image, Tagger(golden.backbone("vit"), LABELS, "ml-tta", threshold=0)(image))
    assert picture.height == 480
    assert picture.width == 720 + 380
    panel = np.asarray(picture)[:, 720:]
    assert (panel == np.array([15, 118, 110])).all(-1).sum() > 1000  # bars of the labels shown


def test_a_generator_without_an_end_is_asked_for_no_more_than_is_worked_on_soon(tagger):
    asked: list[int] = []

    def album():
        for i in count():
            asked.append(i)
            yield photo(i)

    stream = tagger.stream(album())
    first = [list(next(stream)) for _ in range(3)]
    stream.close()
    assert len(asked) < 40
    assert first == [list(tagger(photo(i))) for i in range(3)]
    assert [list(tags) for tags in tagger(photo(i) for i in range(3))] == first


def test_a_used_tagger_pickles_and_gives_the_same_scores(tagger):
    want = list(tagger(photo(0)))
    assert list(pickle.loads(pickle.dumps(tagger))(photo(0))) == want


def tags_of(tagger: Tagger, seed: int) -> list[dict]:
    return list(tagger(photo(seed)))


def test_a_used_tagger_gives_the_same_scores_in_a_spawned_process():
    tagger = Tagger(golden.backbone("vit"), LABELS, "ml-tta")
    want = list(tagger(photo(0)))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(tags_of, tagger, 0).result(timeout=120) == want


FORK = """
import os, sys
import torch
from mltta import MlttaError, Tagger
from tests import golden_data as golden
from tests.test_tagger import LABELS, photo

if sys.argv[1] == "compiler":  # it announces a GPU that may not be there, and gradients then have threads for it
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
taggers = [Tagger(golden.backbone("vit"), LABELS, name) for name in ("ml-tta", "clip")]
want = [list(tagger(photo(0))) for tagger in taggers]
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
for tagger, expected in zip(taggers, want):
    try:
        print(list(tagger(photo(0))) == expected, flush=True)
    except MlttaError as error:
        print(error, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    ("before", "tuned"), [("nothing", "True"), ("compiler", "this process was forked after")]
)
def test_a_fork_gives_the_same_scores_or_says_why_not(before, tuned):
    done = subprocess.run(
        [sys.executable, "-c", FORK, before],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    tuning, plain = done.stdout.splitlines()
    assert (tuning.startswith(tuned), plain) == (True, "True"), done.stdout + done.stderr


def test_a_presence_that_is_no_rule_is_refused_when_the_tagger_is_made():
    with pytest.raises(ConfigError, match=r"presence = 0\.3 .* share, enough, least"):
        Tagger(golden.backbone("vit"), LABELS, presence=0.3)
    with pytest.raises(ConfigError, match=r"unknown option 'treshold'; this method has effort"):
        Tagger(golden.backbone("vit"), LABELS, treshold=0.3)


def test_the_readmes_python_passes_the_strictest_type_check(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet,) = (part for part in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "tagger(" in part)
    several = (
        "\nfor one in tagger(['a.jpg', 'b.jpg']):\n    print(one.present, one.error)\nreveal_type(tags)\n"
    )
    (tmp_path / "snippet.py").write_text(snippet + several, encoding="utf-8")
    line = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        ROOT / ".mypy_cache",
    ]
    env = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*line, tmp_path / "snippet.py"], capture_output=True, text=True, check=False, env=env, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "mltta.tagger.tagger.Tags"' in done.stdout


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_path_is_not_the_working_directory(empty, monkeypatch):
    monkeypatch.chdir(ROOT / "examples" / "photos")
    with pytest.raises(ImageError, match="expected a photo, got an empty path"):
        Tagger(golden.backbone("vit"), LABELS, "clip")(empty)
