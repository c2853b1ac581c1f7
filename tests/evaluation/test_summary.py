"""Figures: what comes out of a result is what the metrics say about what the methods say."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from mltta import create_method, metrics
from mltta.decision import Decision
from mltta.errors import MlttaError
from mltta.evaluation.comparison import by_dataset, comparison, lines
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.results import Result
from mltta.evaluation.summary import Summary
from mltta.methods.base import OnlineMethod
from tests import golden_data as golden
from tests.evaluation.scene import LABELS, encoded, labelled, make_dataset, run

RECIPES = (
    Recipe("clip"),
    Recipe("tpt", {"views": 4}),
    Recipe("ml-tta", {"views": 4}),
    Recipe("ml-tta", {"views": 4}, preset="released"),
    Recipe("tda"),
    Recipe("dmn", {"views": 4}),
    Recipe("dmn", {"views": 4}, preset="released"),
)
NAMES = [recipe.name for recipe in RECIPES]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Some pairs are left out of the metrics."""
    plain = make_dataset(tmp_path_factory.mktemp("photos"), 12)
    targets = plain.targets.copy()
    targets[1, 2] = targets[5, 0] = -1
    return replace(plain, targets=targets)


@pytest.fixture(scope="module")
def results(photos, tmp_path_factory) -> dict[str, Result]:
    done = run(photos, RECIPES, tmp_path_factory.mktemp("results"))
    return dict(zip(NAMES, done.results, strict=True))


class Direct:
    """The same without the evaluator: one method, the images one by one, its own merge over all of them."""

    def __init__(self, recipe: Recipe, dataset):
        captions = labelled()
        method = create_method(
            recipe.method,
            golden.backbone("vit"),
            LABELS,
            captions=captions,
            preset=recipe.preset,
            **recipe.options,
        )
        decision, spec = Decision(), method.needs[0]
        state = method.start() if isinstance(method, OnlineMethod) else {}
        branches, present, shown = [], [], []
        for image in encoded(dataset, spec):
            if isinstance(method, OnlineMethod):
                said, state = method.step(state, image)
            else:
                said = method.branches(image)
            heard = captions.votes(image.features(spec), 16, golden.backbone("vit").logit_scale)
            stacked = torch.stack([said[name] for name in method.branch_names], dim=1).numpy()
            score = decision.scores(stacked, heard.mean(1).numpy(), method.emits)
            present.append(decision.shown(score))
            shown.append(score)
            branches.append(said)
        whole = {name: torch.cat([said[name] for said in branches]) for name in method.branch_names}
        self.emits = method.emits
        self.raw = method.merge(whole).numpy()
        self.softmax = method.probabilities(whole).numpy()
        self.present = np.concatenate(present)
        self.shown = np.concatenate(shown)
        # how many standard deviations above the mean of the image's labels
        self.z_score = (self.raw - self.raw.mean(1, keepdims=True)) / self.raw.std(1, keepdims=True, ddof=1)


@pytest.fixture(scope="module")
def direct(photos) -> dict[str, Direct]:
    return {recipe.name: Direct(recipe, photos) for recipe in RECIPES}


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_label_sets_are_those_of_the_method_itself(results, direct, name):
    np.testing.assert_array_equal(results[name].scores(), direct[name].raw)
    # read back by NumPy, whose exponential may round the last bit another way
    np.testing.assert_allclose(results[name].scores("softmax"), direct[name].softmax, rtol=1e-6)
    np.testing.assert_array_equal(results[name].present(), direct[name].present)
    np.testing.assert_array_equal(results[name].shown(), direct[name].shown)
    np.testing.assert_allclose(results[name].scores("z-score"), direct[name].z_score, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_those_of_the_metrics(results, direct, photos, name):
    summary, want, truth = Summary(results[name], draws=50), direct[name], photos.targets
    assert summary.map == metrics.mean_average_precision(want.raw, truth)
    assert summary.map_released == metrics.mean_average_precision(want.raw, truth, ties="released")
    assert summary.map_softmax == metrics.mean_average_precision(want.softmax, truth)
    assert summary.map_z_score == metrics.mean_average_precision(results[name].scores("z-score"), truth)
    assert summary.interval == metrics.interval(want.raw, truth, draws=50)[1:]
    assert summary.interval_softmax == metrics.interval(want.softmax, truth, draws=50)[1:]
    np.testing.assert_array_equal(summary.per_class, 100 * metrics.average_precision(want.raw, truth))
    np.testing.assert_equal(
        {name: asdict(one) for name, one in summary.by_count.items()},
        {name: asdict(one) for name, one in metrics.by_label_count(want.raw, truth).items()},
    )
    assert summary.sets.f1 == metrics.set_metrics(want.present, truth).f1
    assert summary.calibration == metrics.calibration_error(want.shown, truth)


def test_the_released_merge_is_over_the_whole_dataset(results, direct):
    """Each branch by its own extremes over all images; image by image it would be something else."""
    released = results["ml-tta (released, views=4)"]
    branches = released.branches().astype(np.float64)
    low, high = branches.min(axis=(0, 2), keepdims=True), branches.max(axis=(0, 2), keepdims=True)
    np.testing.assert_allclose(released.scores(), ((branches - low) / (high - low)).mean(axis=1), atol=1e-6)
    assert released.run["merge"] == "minmax"


def test_the_released_dmn_emits_probabilities_and_they_are_taken_for_such(results):
    released, ours = results["dmn (released, views=4)"], results["dmn (views=4)"]
    assert (released.run["emits"], ours.run["emits"]) == ("probabilities", "logits")
    np.testing.assert_allclose(released.branches().sum(axis=2), 1, atol=1e-5)
    np.testing.assert_allclose(released.scores("softmax"), released.branches().mean(axis=1), atol=1e-6)
    assert ours.branches().max() > 2


def test_the_labels_called_present_differ_between_images_or_f1_would_say_nothing(direct):
    assert any(one.present.any() and not one.present.all() for one in direct.values())


def test_the_table_shows_the_figures(results, photos, direct):
    clip, tpt, mltta = (results[name] for name in NAMES[:3])
    table = comparison(lines([clip, tpt, mltta], draws=50))
    summary = Summary(tpt, draws=50)
    row = table.rows[1]
    gap = metrics.paired_difference(direct[NAMES[1]].raw, direct[NAMES[0]].raw, photos.targets, draws=50)
    assert row.name == "tpt (views=4)"
    assert (row.cells[0].ours, row.cells[0].low, row.cells[0].high) == (summary.map, *summary.interval)
    assert row.cells[1].ours == pytest.approx(gap.difference)
    assert (row.cells[1].low, row.cells[1].high) == (gap.low, gap.high)
    assert row.cells[2].ours == summary.map_softmax
    assert row.cells[4].ours == summary.map_z_score
    assert row.cells[5].ours == 100 * summary.sets.f1
    assert row.cells[6].ours == tpt.ms > 0
    assert table.rows[0].cells[1].ours is None, "the first is compared with nothing"
    assert "toy, 12 images, 5 labels, vit:vit.safetensors." in table.notes


def strict(text: str):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_summary_on_disk_is_strict_json_with_null_for_what_does_not_exist(results):
    summary = Summary(results["clip"], draws=50)
    assert math.isnan(summary.by_count["8+"].mean_ap), "no image here has so many labels"
    summary.save()
    said = strict((results["clip"].folder / "summary.json").read_text(encoding="utf-8"))
    assert said["by_label_count"]["8+"] == {"images": 0, "labels": 0, "mean_ap": None}
    assert said["mAP"] == summary.map
    assert said["mAP_interval"] == list(summary.interval)
    assert said["present"]["f1"] == summary.sets.f1
    assert list(said["AP"]) == list(LABELS.names)
    assert said["failed"] == {}


def test_a_dataset_without_a_single_label_has_a_strict_summary_too(photos, tmp_path):
    empty = replace(photos, targets=np.zeros_like(photos.targets))
    summary = Summary(run(empty, ["clip"], tmp_path).results[0], draws=20)
    summary.save()
    said = strict((summary.result.folder / "summary.json").read_text())
    assert said["mAP"] == 0.0


def test_other_images_are_not_compared(results, photos, tmp_path):
    other = run(photos.select(slice(8)), ["tpt"], tmp_path).results[0]
    with pytest.raises(MlttaError, match=r"has other images than .*: compare results of the same dataset"):
        comparison(lines([results["clip"], other], draws=5))
    (named_alike,) = run(replace(photos, name="other"), ["clip"], tmp_path / "alike").results
    with pytest.raises(MlttaError, match="has other images"):
        comparison(lines([results["clip"], named_alike], draws=5))
    assert [len(group) for group in by_dataset([results["clip"], other, results["tda"]])] == [2, 1]


def test_a_result_that_is_not_finished_is_not_compared_with_one_that_is(results, photos, tmp_path):
    def stop(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(photos, ["tda"], tmp_path, batch_size=2, progress=stop)
    half = Result(next((tmp_path / "toy").iterdir()))
    assert not half.complete
    with pytest.raises(MlttaError, match=r"has scores for other images than .*: complete both"):
        comparison(lines([results["clip"], half], draws=5))
    table = comparison(lines([half], draws=5))
    assert "Incomplete: the dataset has 12 images." in table.notes
    assert "toy, 4 images, 5 labels, vit:vit.safetensors." in table.notes
