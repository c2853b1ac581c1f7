"""The callable shaped as transformers' zero-shot image classification: its call and its answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import mltta
from mltta.errors import ConfigError, ImageError
from mltta.storage.folders import MINI

PHOTOS = Path(__file__).parents[1] / "examples" / "photos"
LABELS = ["car", "dog", "grass"]


@pytest.fixture(scope="module")
def pipe():
    return mltta.ZeroShotPipeline("mini", effort="fast")


@pytest.fixture(scope="module")
def theirs():
    """transformers' own pipeline, around a CLIP of random weights."""
    transformers = pytest.importorskip("transformers")
    layers = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    words = transformers.AutoTokenizer.from_pretrained(MINI)
    config = transformers.CLIPConfig(
        text_config={
            **layers,
            "vocab_size": len(words),
            "max_position_embeddings": 40,
            "eos_token_id": len(words) - 1,
        },
        vision_config={**layers, "image_size": 32, "patch_size": 16},
        projection_dim=8,
    )
    side = {"height": 32, "width": 32}
    eyes = transformers.CLIPImageProcessor(size=side, crop_size=side)
    task = mltta.ZeroShotPipeline.task
    return transformers.pipeline(
        task, model=transformers.CLIPModel(config), tokenizer=words, image_processor=eyes, device="cpu"
    )


def test_one_image_gives_the_scores_of_its_tagger_under_the_names_of_transformers(pipe):
    tags = mltta.Tagger(pipe.backbone, LABELS, effort="fast")(PHOTOS / "dogs.jpg")
    answer = pipe(str(PHOTOS / "dogs.jpg"), candidate_labels=LABELS)
    assert answer == [{"score": item["score"], "label": item["label"]} for item in tags]
    assert answer[0]["label"] == "dog"
    assert answer[-1]["label"] == "car"


def test_call_and_answer_have_the_shape_of_transformers_own(pipe, theirs):
    photo = Image.open(PHOTOS / "dogs.jpg").convert("RGB")
    for given in (photo, [photo, photo], str(PHOTOS / "dogs.jpg")):
        for more in ({}, {"hypothesis_template": "A picture of {}."}):
            ours = pipe(given, candidate_labels=LABELS, **more)
            other = theirs(given, candidate_labels=LABELS, **more)
            assert shape(ours) == shape(other)
            assert len(ours) == len(other)


def shape(answer):
    """Lists, and what their entries hold: names in order, kinds, labels, and that the best comes first."""
    if isinstance(answer[0], list):
        return [shape(part) for part in answer]
    assert [item["score"] for item in answer] == sorted((item["score"] for item in answer), reverse=True)
    kinds = [[(key, type(value)) for key, value in item.items()] for item in answer]
    return kinds, sorted(item["label"] for item in answer)


def test_scores_do_not_share_one_whole(pipe):
    """transformers' scores add up to one whatever the photo shows."""
    there = pipe(PHOTOS / "officer.jpg", candidate_labels="person, hat, uniform")
    absent = pipe(PHOTOS / "officer.jpg", candidate_labels=["zebra", "pizza", "boat"])
    assert sum(item["score"] for item in absent) < 0.2 < 0.5 < sum(item["score"] for item in there)


def test_the_tagger_of_a_list_is_kept_and_only_a_few_are(pipe):
    first = pipe._tagger(("dog", "cat"), None)
    assert pipe._tagger(("dog", "cat"), None) is first
    for number in range(9):
        pipe._tagger((f"thing {number}",), None)
    assert len(pipe._taggers) == 8
    assert pipe._tagger(("dog", "cat"), None) is not first


def test_what_is_wrong_is_said(pipe, tmp_path):
    with pytest.raises(ConfigError, match="candidate_labels is empty"):
        pipe(PHOTOS / "dogs.jpg", candidate_labels=[])
    with pytest.raises(ConfigError, match="candidate_labels="):
        mltta.ZeroShotPipeline(pipe.backbone, labels=["dog"])
    with pytest.raises(ImageError, match=r"none\.jpg"):
        pipe([PHOTOS / "dogs.jpg", tmp_path / "none.jpg"], ["dog"])
