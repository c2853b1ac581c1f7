"""auto: its rule against a loop written from docs/auto.md, and what it promises whatever the list."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from PIL import Image

from mltta import LabelSet, Tagger, create_method, encode_images, load_backbone
from mltta.captions.nouns import label_matches
from mltta.captions.store import default_captions
from mltta.errors import ConfigError
from mltta.images.geometry import cover
from mltta.labels import each_alone
from mltta.labels.tree import Tree, everyday_tree
from mltta.methods import words as words_
from mltta.methods.auto import LOOKS, Auto, AutoConfig, Constants
from mltta.methods.calibration import KNEE, Calibration
from mltta.methods.words import APART, label_words
from mltta.model.backbone import Backbone
from mltta.model.vocabulary import rivals

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


def naive(label: str, image: int, c: Constants) -> float:
    """The log-odds of a label of one photo, window by window and word by word, without the labels below it."""
    backbone, fixed = mini(), rivals()
    given = each_alone(LabelSet.of([label]))
    columns = [*zip(fixed.texts, fixed.synonyms, strict=True), (given.texts[0], given.synonyms[0])]
    s = backbone.logit_scale
    base = default_captions(backbone)
    vectors = base.embeddings.astype(np.float64)
    mentions = [
        a + [len(fixed)] * bool(b)
        for a, b in zip(
            label_matches(base.texts, fixed, apart=True),
            label_matches(base.texts, given, apart=True),
            strict=True,
        )
    ]
    kept = backbone.vocabulary("simple")
    features = []
    for column, (text, synonyms) in enumerate(columns):
        total = sum(
            (vectors[i] for i, own in enumerate(mentions) if column in own), np.zeros(vectors.shape[1])
        )
        concept = total / max(np.linalg.norm(total), 1e-12)
        own = [kept.features[kept.rows[word]].double().numpy() for word in (text, *synonyms[:8])]
        features.append([(t + c.concepts * concept) / np.linalg.norm(t + c.concepts * concept) for t in own])
    coco, tree = LabelSet.load("coco").texts, everyday_tree()
    weight = [1.0 if text in coco else c.background for text in fixed.texts]
    weight.append(1.0 if label in coco else c.background)
    means = {label, given.texts[0], *given.synonyms[0]} | tree.below(label) | set(tree.above(label))
    name = kept.features[kept.rows[given.texts[0]]]
    same = [
        i
        for i, (text, synonyms) in enumerate(columns[:-1])
        if text in means
        or label in synonyms
        or s * (1 - float(kept.features[kept.rows[text]] @ name)) < APART
    ]

    def masses(view: np.ndarray) -> np.ndarray:
        found = []
        for words in features:
            each = [math.exp(s * (view @ word)) for word in words]
            found.append(0.5 * each[0] + 0.5 * np.mean(each[1:]) if len(each) > 1 else each[0])
        return np.array(found) * weight

    mean = best = 0.0
    for spec, (_, counts) in zip(AutoConfig().specs(224), LOOKS["best"], strict=True):
        shares, surest = [], []
        for view in photos().features(spec)[image, 5:].double().numpy():
            *others, own = masses(view)
            rest = sum(others) - sum(others[i] for i in same)
            shares.append(own / (own + rest))
            surest.append((max(others) / sum(others)) ** c.sureness)
        mean += counts * float(np.dot(surest, shares) / sum(surest))
        best += counts * max(shares)
    heard = 0.0
    named = np.array([len(fixed) in own for own in mentions])
    for i, view in enumerate(photos().features(AutoConfig().specs(224)[1])[image, :5].double().numpy()):
        like = np.exp(s * (vectors @ view - (vectors @ view).max()))
        heard += (0.5 if i == 0 else 0.125) * like[named].sum() / like.sum()
    log_mean, log_best = math.log(mean), math.log(best)
    fitted = Calibration.of(backbone)
    seen = fitted.mean * log_mean + fitted.best * log_best
    seen += fitted.bend * max((log_mean + log_best) / 2 - KNEE, 0)
    own = fitted.labels.get(label, 0.0) + (0.0 if label in coco else fitted.rare)
    return seen + fitted.votes * math.log(heard + c.least_vote) + fitted.base + own


@pytest.mark.parametrize(("label", "image"), [("cat", 0), ("flag", 1)])
def test_the_rule_is_the_loop_of_its_page(monkeypatch, label, image):
    few = LabelSet.of("dog, cat, flag, person, helmet, fox, lynx, animal")
    monkeypatch.setattr("mltta.methods.words.rivals", lambda: few)
    monkeypatch.setattr(f"{__name__}.rivals", lambda: few)
    words_._meanings.cache_clear()
    tree = Tree({"cat": "animal", "dog": "animal"}, dict.fromkeys(few.texts, "things"), frozenset(), {})
    monkeypatch.setattr("mltta.methods.words.everyday_tree", lambda: tree)
    monkeypatch.setattr(f"{__name__}.everyday_tree", lambda: tree)
    try:
        got = make(label).branches(photos())["view"][image, 0]
    finally:
        words_._meanings.cache_clear()
    assert float(got) == pytest.approx(naive(label, image, Constants()), abs=0.02)


def test_one_pass_is_cheaper_and_its_views_are_among_those_of_three():
    fast, best = make("cat, dog", effort="fast"), make("cat, dog")
    assert [round(sum(spec.price(224) for spec in m.needs), 2) for m in (fast, best)] == [2.04, 8.27]
    assert set(fast.needs) < set(best.needs)


def test_a_label_typed_by_hand_scores_as_the_one_of_a_built_in_list():
    voc = LabelSet.load("voc")
    by_name, typed = make("voc"), make(", ".join(voc.names))
    assert torch.equal(by_name.branches(photos())["view"], typed.branches(photos())["view"])


def test_a_score_depends_on_the_photo_and_the_label_alone():
    alone = make("cat").branches(photos())["view"]
    among = make("zorblewock, kitten, cat, animal, pet | dog, guitar").branches(photos())["view"]
    assert torch.equal(alone[:, 0], among[:, 2])
    assert alone[0, 0].sigmoid() > 0.5
    assert alone[1, 0].sigmoid() < 0.2


def test_a_label_scores_at_least_as_high_as_those_below_it():
    method = make("animal, cat, dog, poodle, vehicle, car, sports car, person, woman, child, boy")
    score = dict(zip(method.problem.labels.names, method.branches(photos())["view"].T, strict=True))
    for word, parent in everyday_tree().parents.items():
        if word in score and parent in score:
            assert (score[parent] >= score[word]).all()
    assert torch.equal(make("animal").branches(photos())["view"][:, 0], score["animal"])


def test_without_captions_it_still_finds_the_cat():
    scores = make("cat, dog, car", captions=False).branches(photos())["view"][0]
    assert scores.argmax() == 0
    assert Tagger(labels="cat, dog, car", captions=False)(PHOTOS[0]).present[:1] == ["cat"]


def test_a_label_does_not_compete_with_words_that_mean_the_same_or_are_on_its_branch():
    words = label_words(mini(), LabelSet.of("sofa, dog, zorblewock"), "simple")
    texts = rivals().texts
    same = [
        {texts[i] for c, i in zip(words.column.tolist(), words.same.tolist(), strict=True) if c == own}
        for own in words.own.tolist()
    ]
    assert "couch" in same[0]
    assert {"dog", "poodle", "animal"} <= same[1]
    assert not {"cat", "person", "tree"} & same[1]
    assert len(same[2]) < 20
    assert words.called[words.own[0]] == "couch"
    torch.testing.assert_close(
        torch.zeros(len(words.called)).index_add(0, words.owner, words.share), torch.ones(len(words.called))
    )


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
        {"background": 2.0},
        {"least_vote": 0.0},
        {"unheard": 1.5},
    ],
)
def test_constants_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError):
        Constants(**bad)


def test_only_the_effort_can_be_set():
    with pytest.raises(ConfigError, match="choose from fast, best"):
        AutoConfig(effort="slow")
    with pytest.raises(ConfigError, match="unknown option 'sureness'; this method has effort"):
        make("cat", sureness=0.5)


def test_a_method_that_cannot_tell_where_is_refused_before_any_photo():
    with pytest.raises(ConfigError, match="auto"):
        Tagger(labels="cat", method="clip", where=True)
