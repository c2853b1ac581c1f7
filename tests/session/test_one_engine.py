"""Tagger, evaluator, server and cluster worker are one engine: any typed label list scores alike, to the last bit."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltta import Recipe, Tagger
from mltta.data import Dataset
from mltta.decision import Decision
from mltta.labels import LabelSet
from mltta.serve.engine import Engine, Taggers
from mltta.serve.offer import Limits, Offer
from mltta.session.execution import Execution
from mltta.session.prepare import Photo
from tests import golden_data as golden
from tests.evaluation.scene import captions, make_dataset, run

PHOTOS = 3
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "clip": {},
    "tpt": {"views": 4},
    "ml-tta": {"views": 4},
    "tda": {},
}
THINGS = (
    "dog",
    "cat",
    "person",
    "bicycle",
    "sofa",
    "potted plant",
    "tvmonitor",
    "bus",
    "lighthouse",
    "kitty",
)
FORMS = (
    "{}",
    "{}s",
    "two {}s",
    "the {}",
    "A {}",
    "my  {} ",
    "red {}",
    "{} | puppy",
    "{}|settee|couch",
    "some_{}",
)
#: what people type: plurals, articles, counts, colours, synonyms, capitals and things named twice
TYPED = st.lists(
    st.builds(lambda form, thing: form.format(thing), st.sampled_from(FORMS), st.sampled_from(THINGS)),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("photos"), PHOTOS)


def by_tagger(photos: Dataset, typed: list[str], method: str, base: Any) -> np.ndarray:
    tagger = Tagger(golden.backbone("vit"), typed, method, captions=base, **METHODS[method])
    found = [{item["label"]: item["score"] for item in tags} for tags in tagger(list(photos.images))]
    return np.array([[one[name] for name in tagger.labels.names] for one in found], np.float32)


def by_evaluator(photos: Dataset, typed: list[str], method: str, base: Any) -> np.ndarray:
    labels = LabelSet.of(typed)
    targets = np.zeros((PHOTOS, len(labels)), np.int8)
    data = Dataset("typed", labels, photos.ids, photos.images, targets)
    with tempfile.TemporaryDirectory() as out:
        done = run(data, [Recipe(method, METHODS[method])], Path(out), captions=base, batch_size=2, workers=0)
        return np.array(done.results[0].shown())


def by_server(photos: Dataset, typed: list[str], method: str, base: Any) -> np.ndarray:
    class Own(Taggers):
        """A server whose operator has chosen the captions."""

        def get(self, choice: Any) -> Future[Tagger]:
            made: Future[Tagger] = Future()
            settings = dict(choice.settings)
            made.set_result(
                Tagger(self._models["vit"], choice.labels, choice.method, captions=base, **settings)
            )
            return made

    offer = Offer({"vit": golden.backbone("vit")}, [method], {}, Limits())
    choice = offer.choice(labels=typed, settings=METHODS[method])
    engine = Engine(Own(offer.models, 4))
    try:
        images = [Photo(i, str(i), Path(path).read_bytes()) for i, path in enumerate(photos.images)]
        answers = engine.submit(choice, images).answer.result(timeout=60)
    finally:
        engine.close()
    found = [{item["label"]: item["score"] for item in answer.tags} for answer in answers]
    return np.array([[one[name] for name in choice.labels.names] for one in found], np.float32)


def by_worker(photos: Dataset, typed: list[str], method: str, base: Any) -> np.ndarray:
    from mltta.distributed.measure_shards import Measurer
    from mltta.evaluation.measure import Measure
    from mltta.session.question import Question

    labels = LabelSet.of(typed)
    data = Dataset("typed", labels, photos.ids, photos.images, np.zeros((PHOTOS, len(labels)), np.int8))
    question = Question(golden.backbone("vit"), labels, captions=base)
    made = [question.method(method, **METHODS[method])]
    measurer = Measurer.__new__(Measurer)  # as an actor has it once Ray has handed over the measure
    measurer.measure = Measure(question, data, made, execution=Execution(1, threads=1))
    (records,) = measurer(range(PHOTOS)).records.values()
    return np.array([record.scores for record in records])


@given(typed=TYPED, method=st.sampled_from(sorted(METHODS)), own=st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_typed_label_list_scores_alike_through_every_interface(photos, typed, method, own):
    base = captions() if own or method != "auto" else False
    want = by_tagger(photos, typed, method, base)
    for other in (by_evaluator, by_server, by_worker):
        np.testing.assert_array_equal(other(photos, typed, method, base), want, err_msg=other.__name__)
    assert want.shape[1] < 3 or len(np.unique(want, axis=0)) == PHOTOS, "no two photos are alike"


def test_plurals_articles_and_counts_are_read_alike_by_tag_and_eval(photos):
    typed = ["cats", "two dogs", "the sofa", "tvmonitor", "people"]
    want = by_tagger(photos, typed, "clip", captions())
    np.testing.assert_array_equal(by_evaluator(photos, typed, "clip", captions()), want)


@given(
    typed=TYPED,
    threshold=st.none() | st.floats(0, 1),
    top_k=st.none() | st.integers(1, 9),
    method=st.sampled_from(["clip", "auto"]),
)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_record_holds_what_a_plain_reading_of_the_scores_shows(photos, typed, threshold, top_k, method):
    tagger = Tagger(
        golden.backbone("vit"), typed, method, captions=captions(), threshold=threshold, top_k=top_k
    )
    for tags, own in zip(tagger(list(photos.images)), photos.images, strict=True):
        least = threshold if threshold is not None else 0.0 if top_k is not None else 0.3
        kept = [item for item in tags if np.float32(item["score"]) >= np.float32(least)][:top_k]
        record = tags.record()
        assert record["labels"] == tags.shown == kept
        assert record["present"] == tags.present == [item["label"] for item in kept]
        assert record["image"] == str(own)


def test_a_photo_may_bring_a_decision_of_its_own(photos):
    tagger = Tagger(golden.backbone("vit"), ["dog", "cat", "sofa"], "clip", captions=captions())
    asked = [Photo(0, "a", photos.images[0]), Photo(1, "b", photos.images[0], decision=Decision(top_k=1))]
    plain, own = tagger(asked)
    assert [item["score"] for item in plain] == [item["score"] for item in own]
    assert own.present == [own[0]["label"]]


def test_a_first_run_scores_as_the_next_does(photos, tmp_path, monkeypatch):
    """The first tagger of a model encodes the vocabulary, the next one looks it up."""
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path))
    fresh = golden.backbone.__wrapped__("vit")
    first, second = (
        [
            [item["score"] for item in tags]
            for tags in Tagger(fresh, ["dog"], captions=False)(list(photos.images))
        ]
        for _ in range(2)
    )
    assert first == second
