"""The tagger and the evaluator are one pipeline: what a person is shown is what is measured, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from mltta import Execution, Tagger
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.results import Result
from tests import golden_data as golden
from tests.evaluation.scene import LABELS, captions, make_dataset, run

PHOTOS = 50
RECIPES = (
    Recipe("auto"),
    Recipe("clip"),
    Recipe("tpt", {"views": 8}),
    Recipe("ml-tta", {"views": 8}),
    Recipe("tda", {"positive_capacity": 1}),
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("photos"), PHOTOS)


@pytest.fixture(scope="module")
def measured(photos, tmp_path_factory) -> dict[str, Result]:
    """All methods together on one encoding, prepared by a process, in batches of seven, features kept."""
    results = run(photos, RECIPES, tmp_path_factory.mktemp("results"), batch_size=7, workers=1).results
    return {recipe.method: result for recipe, result in zip(RECIPES, results, strict=True)}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.method)
def test_a_tagger_shows_the_scores_and_labels_that_an_evaluation_measures(photos, measured, recipe):
    tagger = Tagger(
        golden.backbone("vit"),
        LABELS,
        recipe.method,
        captions=captions(),
        execution=Execution(batch_size=4, workers=0),
        **recipe.options,
    )
    tags = tagger(list(photos.images))
    result = measured[recipe.method]
    assert result.scored.tolist() == list(range(PHOTOS))
    by_label = [{item["label"]: item["score"] for item in one} for one in tags]
    scores = np.array([[one[name] for name in LABELS.names] for one in by_label], np.float32)
    np.testing.assert_array_equal(scores, result.shown())
    present = np.array([[name in one.present for name in LABELS.names] for one in tags])
    np.testing.assert_array_equal(present, result.present())
    assert len(np.unique(scores, axis=0)) == PHOTOS, "no two photos are alike, or this says little"
    if recipe.method != "auto":  # which finds nothing in pictures of nothing
        assert 0 < present.sum() < present.size
