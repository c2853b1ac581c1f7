"""Spoiled images and hostile label lists: a sentence each, no fault, no traceback, and the server serves on."""

from __future__ import annotations

import random

import httpx
import pytest

from mltta.serve.client import Client
from tests.fuzz.mutate import bytes_of
from tests.fuzz.targets import _pictures
from tests.serve.running import PHOTOS, serving

LETTERS = [
    *("dog", "é", "犬", "🐶", "\u202e", "\0", "\n", "|", ",", "'", '"', "<script>", "{}", "../", "%s"),
    *("\ud800", " ", "#", "a" * 300),
]


def images(count: int, seed: int):
    chance = random.Random(seed)
    whole = [*_pictures(), *(photo.read_bytes() for photo in PHOTOS[:4])]
    for number in range(count):
        yield f"{number}.jpg", bytes_of(chance.choice(whole), chance)


def lists(count: int, seed: int):
    chance = random.Random(seed)
    for _ in range(count):
        yield [
            "".join(chance.choices(LETTERS, k=chance.randrange(6))) for _ in range(chance.randrange(1, 40))
        ]


def attack(url: str, pictures: int, words: int) -> tuple[int, int]:
    """How many images and lists were answered, each with tags or with a sentence."""
    answered = said = 0
    with httpx.Client(base_url=url, timeout=120) as http:
        given = list(images(pictures, seed=5))
        for start in range(0, len(given), 8):
            part = given[start : start + 8]
            files = [("images", own) for own in part]
            answer = http.post("/v1/tag", files=files, data={"labels": "dog, cat", "method": "clip"})
            assert answer.status_code == 200, answer.text
            for entry in answer.json()["images"]:
                assert ("labels" in entry) != ("error" in entry)
                assert "Traceback" not in entry.get("error", "")
                answered += 1
        photo = PHOTOS[0].read_bytes()
        for labels in lists(words, seed=6):
            parts = [("images", ("a.jpg", photo)), ("method", (None, "clip"))]
            parts += [("labels", (None, label.encode("utf-8", "surrogatepass"))) for label in labels]
            answer = http.post("/v1/tag", files=parts)
            assert answer.status_code in (200, 400, 422), (labels, answer.text)
            assert "Traceback" not in answer.text
            said += 1
        assert http.get("/ready").status_code == 200
    with Client(url) as client:
        assert "labels" in client.tag([PHOTOS[0]], "dog, cat", method="clip")[0]
    return answered, said


def test_a_slice_of_spoiled_images_and_lists(url):
    assert attack(url, 64, 24) == (64, 24)


@pytest.mark.soak
def test_two_thousand_spoiled_images_and_five_hundred_lists():
    with serving(("clip",)) as url:
        assert attack(url, 2000, 500) == (2000, 500)
