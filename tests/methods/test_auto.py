"""auto: its rule against a loop written from docs/auto.md, and what it promises whatever the list."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from PIL import Image

from mltta import LabelSet, Tagger, create_method, encode_images, load_backbone
from mltta.captions.labelled import label_captions
from mltta.captions.store import default_captions
from mltta.errors import ConfigError
from mltta.images.geometry import cover
from mltta.labels import with_known_words
from mltta.methods.auto import Auto, AutoConfig, Constants
from mltta.methods.create import APART, label_words
from mltta.model.backbone import Backbone
from mltta.model.vocabulary import background_words

PHOTOS = ["examples/photos/cat.jpg", "examples/photos/astronaut.jpg"]


@lru_cache(maxsize=1)
def mini() -> Backbone:
    return load_backbone("mini")


def make(labels: object, **options: object) -> Auto:
    method = create_method("auto", mini(), labels, **options)
    assert isinstance(method, Auto)
    return method


@lru_cache(maxsize=1)
def photos():
    return encode_images(mini(), [Image.open(photo) for photo in PHOTOS], make("cat, dog").needs)


def naive(labels: str, image: int, c: Constants) -> list[float]:
    """The log-odds of each label of one photo, window by window and word by word."""
    backbone, table = mini(), with_known_words(LabelSet.of(labels))
    s = backbone.logit_scale

    def feature(text: str) -> np.ndarray:
        one = LabelSet((text,), (text,), ((),))
        return backbone.encode_labels(one, "simple").features[0].double().numpy()

    names = [feature(text) for text in table.texts]
    synonyms = [[feature(word) for word in words[:8]] for words in table.synonyms]
    own = {word.casefold() for group in (table.texts, *table.synonyms) for word in group}
    background = []
    for word in background_words():
        t = feature(word)
        if word.casefold() not in own and all(s * (1 - t @ name) > APART for name in names):
            background.append(t)
    base = default_captions(backbone)
    captions = label_captions(table, backbone, base, apart=True)
    vectors = captions.embeddings.double().numpy()
    for label in range(len(names)):  # every word leans towards what captions say around the label
        total = sum(v for v, mentions in zip(vectors, captions.mentions, strict=True) if label in mentions)
        concept = total / np.linalg.norm(total)
        names[label], *synonyms[label] = (
            (t + c.concepts * concept) / np.linalg.norm(t + c.concepts * concept)
            for t in (names[label], *synonyms[label])
        )
    shares, bests = np.zeros(len(names)), np.zeros(len(names))
    specs = AutoConfig().specs(224)
    for spec, counts in zip(specs, (c.smaller, 1 - c.smaller - c.larger, c.larger), strict=True):
        total, weights, best = np.zeros(len(names)), 0.0, np.zeros(len(names))
        for view in photos().features(spec)[image, 5:].double().numpy():
            e = []
            for name, words in zip(names, synonyms, strict=True):
                mass = math.exp(s * (view @ name))
                if words:
                    mass = 0.5 * mass + 0.5 * np.mean([math.exp(s * (view @ word)) for word in words])
                e.append(mass)
            rest = sum(math.exp(s * (view @ word)) for word in background)
            p = np.array(e) / (sum(e) + c.background * rest)
            total += p.max() ** c.sureness * p
            weights += p.max() ** c.sureness
            best = np.maximum(best, p)
        shares += counts * total / weights
        bests += counts * best
    heard = np.zeros(len(names))
    for i, view in enumerate(photos().features(specs[1])[image, :5].double().numpy()):  # of the middle look
        like = np.exp(s * (vectors @ view - (vectors @ view).max()))
        for label in range(len(names)):
            named = np.array([label in mentions for mentions in captions.mentions])
            heard[label] += (0.5 if i == 0 else 0.125) * like[named].sum() / like.sum()
    found = []
    for label in range(len(names)):
        z = (1 - c.peak) * math.log(shares[label]) + c.peak * math.log(bests[label])
        many = len(names) > c.longest
        rivals = c.longest * (len(names) / c.longest) ** (1 / 6) if many else len(names)
        z += math.log(1 + rivals / c.length)
        z += c.votes * math.log(heard[label] + c.least_vote)
        z += min(0.0, math.log((heard.max() + c.least_vote) / c.silence))
        found.append(c.slope * z + c.bend * max(z - c.knee, 0) + c.offset)
    return found


@pytest.mark.parametrize(("image", "longest"), [(0, 100), (1, 100), (1, 2)])
def test_the_rule_is_the_loop_of_its_page(monkeypatch, image, longest):
    monkeypatch.setattr(Auto, "constants", Constants(longest=longest))
    labels = "cat, helmet, flag"
    got = make(labels).branches(photos())["view"][image].double()
    plain = naive(labels, image, Constants(longest=longest))
    torch.testing.assert_close(got, torch.tensor(plain, dtype=torch.float64), atol=2e-3, rtol=0)


def test_one_pass_is_cheaper_and_its_views_are_among_those_of_three():
    fast, best = make("cat, dog", effort="fast"), make("cat, dog")
    assert [round(sum(spec.price(224) for spec in m.needs), 2) for m in (fast, best)] == [2.04, 8.27]
    assert set(fast.needs) < set(best.needs)


def test_a_label_typed_by_hand_scores_as_the_one_of_a_built_in_list():
    voc = LabelSet.load("voc")
    by_name, typed = make("voc"), make(", ".join(voc.names))
    assert torch.equal(by_name.branches(photos())["view"], typed.branches(photos())["view"])


def test_a_score_hardly_depends_on_what_else_is_asked():
    alone = make("cat").branches(photos())["view"].sigmoid()
    among = make("cat, car, guitar, bridge, pizza").branches(photos())["view"].sigmoid()
    assert alone[0, 0] > 0.5
    assert among[0, 0] > 0.5
    assert alone[1, 0] < 0.2
    assert among[1, 0] < 0.2


def test_without_captions_it_still_finds_the_cat():
    scores = make("cat, dog, car", captions=False).branches(photos())["view"][0]
    assert scores.argmax() == 0
    assert Tagger(labels="cat, dog, car", captions=False)(PHOTOS[0]).present[:1] == ["cat"]


def test_words_of_the_background_mean_something_else_than_every_label():
    labels = with_known_words(LabelSet.of("couch, cat"))
    words = label_words(mini(), labels, "simple")
    kept = {tuple(row) for row in words.background.tolist()}
    for word in ("couch", "sofa", "cat"):
        one = LabelSet((word,), (word,), ((),))
        assert tuple(mini().encode_labels(one, "simple").features[0].tolist()) not in kept
    assert 0.8 * len(background_words()) < len(words.background) < len(background_words())
    torch.testing.assert_close(torch.zeros(2).index_add(0, words.owner, words.share), torch.ones(2))


def test_heat_is_high_where_a_label_is():
    # the flag stands at the left of the astronaut, the shuttle's model at the right
    heat = make("flag, cat").where(photos())[1, 0]
    assert heat.shape == (16, 16)
    assert heat[:, :8].mean() > 1.2 * heat[:, 8:].mean()


def test_cells_are_covered_as_far_as_intervals_reach():
    np.testing.assert_allclose(cover([0.0, 0.5], 0.375, 4), [[1, 0.5, 0, 0], [0, 0, 1, 0.5]])


@pytest.mark.parametrize(
    "bad",
    [
        {"background": -1.0},
        {"silence": 0.0},
        {"longest": 0},
        {"smaller": 0.5},
        {"peak": 2.0},
    ],
)
def test_constants_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError):
        Constants(**bad)


def test_only_the_effort_can_be_set():
    with pytest.raises(ConfigError, match="choose from fast, best"):
        AutoConfig(effort="slow")
    with pytest.raises(ConfigError, match="unknown option 'peak'; this method has effort"):
        make("cat", peak=0.5)


def test_a_method_that_cannot_tell_where_is_refused_before_any_photo():
    with pytest.raises(ConfigError, match="auto"):
        Tagger(labels="cat", method="clip", where=True)
