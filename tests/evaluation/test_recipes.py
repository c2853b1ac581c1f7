"""One result for one thing measured: recipes that come to the same share it, all others never do."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from mltta.captions.store import CaptionBase
from mltta.evaluation.comparison import lines
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.recipes import Recipe
from mltta.model.maple import with_prompts
from mltta.model.prompts import DEFAULT_TEMPLATE, list_templates
from mltta.session.execution import Execution
from tests import golden_data as golden
from tests.evaluation import scene
from tests.evaluation.scene import LABELS, make_dataset, run
from tests.model.prompted import coop


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("photos"), 2)


SAME = [
    [Recipe("tpt"), Recipe("tpt", {"lr": 5e-3}), Recipe("tpt", title="another title")],
    [Recipe("tpt", preset="released"), Recipe("tpt", {"augmix": True})],
    [Recipe("clip"), Recipe("clip", preset="released"), Recipe("clip", order=7)],
]


@pytest.mark.parametrize("recipes", SAME, ids=["a default said aloud", "a preset", "nothing to set"])
def test_recipes_that_come_to_the_same_settings_share_a_result_and_a_line(photos, tmp_path, recipes):
    done = run(photos, recipes, tmp_path)
    assert len({result.folder for result in done.results}) == 1
    assert len(done.results) == len(recipes)
    assert len(list((tmp_path / "toy").iterdir())) == 1
    (line,) = lines(done.results, draws=5)
    assert len(line.summaries) == 1


def other_teacher(by: float):
    """A model of the same name with one other weight."""
    changed = copy.deepcopy(golden.backbone("vit"))
    changed.__dict__.pop("image_fingerprint", None)
    next(iter(changed.model.visual.parameters())).data.view(-1)[0] += by
    return changed


def sharper():
    changed = copy.copy(golden.backbone("vit"))
    changed.logit_scale *= 2
    return changed


def squashing():
    changed = copy.copy(golden.backbone("vit"))
    changed.preprocess = replace(changed.preprocess, resize_mode="squash")
    return changed


def captions(*added: str) -> CaptionBase:
    return CaptionBase.build([*scene.captions().texts, *added], golden.backbone("vit"))


def rounded(base: CaptionBase) -> CaptionBase:
    return CaptionBase(
        base.texts, base.embeddings.astype("float16").astype("float32"), base.fingerprint, base.model
    )


def labels(**changes) -> dict:
    return {"labels": replace(LABELS, **changes)}


FEW = {"views": 2}
CHANGES = {
    "template": {"template": "a picture of a {}."},
    "learned prompts": {"backbone": with_prompts(golden.backbone("vit"), coop(torch.zeros(4, 64)))},
    "other learned prompts": {"backbone": with_prompts(golden.backbone("vit"), coop(torch.ones(4, 64)))},
    "captions": {"captions": captions("A dog on a sofa.")},
    "embeddings of the same captions": {"captions": rounded(captions())},
    "seed": {"seed": 1},
    "a teacher": {"teacher": golden.backbone("rn")},
    "temperature": {"backbone": sharper()},
    "preprocessing": {"backbone": squashing()},
    "label texts": {"dataset": labels(texts=("hound", *LABELS.texts[1:]))},
    "label names": {"dataset": labels(names=("hound", *LABELS.names[1:]))},
    "synonyms": {"dataset": labels(synonyms=(("woofer",), *LABELS.synonyms[1:]))},
    "the truth": {"dataset": {"targets": np.array([[1, 1, 1, 1, 0]] * 2, np.int8)}},
    "the ids": {"dataset": {"ids": ("a", "b")}},
    "the dataset's name": {"dataset": {"name": "other"}},
    "a setting": {"recipe": Recipe("rlcf", FEW | {"sample_k": 2})},
    "the method": {"recipe": Recipe("tpt", FEW)},
}


@pytest.fixture(scope="module")
def plain(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    return out, run(photos, [Recipe("rlcf", FEW)], out).results[0]


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_that_differs_in_anything_has_a_result_of_its_own(photos, plain, what):
    out, before = plain
    change = dict(CHANGES[what])
    dataset = replace(photos, **change.pop("dataset", {}))
    backbone, recipe = (
        change.pop("backbone", golden.backbone("vit")),
        change.pop("recipe", Recipe("rlcf", FEW)),
    )
    options = {
        "captions": scene.captions(),
        "teacher": "self",
        "cache": False,
        "execution": Execution(workers=0),
        **change,
    }
    done = scene.evaluate(dataset, backbone, [recipe], out=out, **options)
    assert done.results[0].folder != before.folder
    assert done.resumed[recipe.key] == 0
    (again,) = scene.evaluate(dataset, backbone, [recipe], out=out, **options).resumed.values()
    assert again == 2, "and finds it again"


def test_the_number_of_views_and_the_order_have_results_of_their_own(photos, tmp_path):
    recipes = [Recipe("tpt", {"views": n}) for n in (2, 3)] + [Recipe("tda", order=n) for n in (None, 0, 1)]
    assert len({result.folder for result in run(photos, recipes, tmp_path).results}) == 5


def test_the_folder_of_a_result_says_what_it_is(photos, plain):
    _, result = plain
    assert result.folder.parent.name == "toy"
    assert result.folder.name.startswith("vit-vit-safetensors-rlcf-views-2-")


def test_run_json_says_all_that_was_run(plain):
    said = json.loads((plain[1].folder / "run.json").read_text(encoding="utf-8"))
    assert said["method"] == "rlcf"
    assert said["settings"] == FEW
    assert said["config"]["sample_k"] == 3
    assert said["labels"] == list(LABELS.names)
    assert (said["teacher"], said["seed"], said["template"]) == ("self", 0, ["a photo of a {}."])
    assert (said["images"], said["shape"]) == (2, [1, 5])
    assert plain[1].title == "rlcf (self-taught, views=2)"


def test_a_teacher_is_no_part_of_what_a_method_without_one_measures(photos, tmp_path):
    self_taught = run(photos, ["clip"], tmp_path).results[0]
    other = run(photos, ["clip"], tmp_path, teacher=golden.backbone("rn")).results[0]
    assert self_taught.folder == other.folder


def test_teachers_of_one_name_and_other_weights_are_not_mistaken(photos, tmp_path):
    teachers = [other_teacher(1e-3), other_teacher(2e-3)]
    results = [
        run(photos, [Recipe("rlcf", FEW)], tmp_path, teacher=teacher).results[0] for teacher in teachers
    ]
    assert results[0].run["teacher"] == results[1].run["teacher"] == "vit:vit.safetensors"
    assert results[0].folder != results[1].folder


def test_results_that_differ_in_more_than_the_order_are_lines_of_their_own_and_say_why(photos, tmp_path):
    results = [
        run(photos, ["clip"], tmp_path, **change).results[0]
        for change in ({}, {"seed": 1}, {"template": "a picture of a {}."})
    ]
    titles = [line.title for line in lines(results, draws=5)]
    assert titles == [
        "clip [template a photo of a {}., seed 0]",
        "clip [template a photo of a {}., seed 1]",
        "clip [template a picture of a {}., seed 0]",
    ]


@pytest.mark.parametrize(("method", "prompts", "template"), [
    ("auto", None, "simple"),
    ("clip", None, DEFAULT_TEMPLATE),
    ("clip", coop(torch.zeros(4, 64)), DEFAULT_TEMPLATE),
    ("auto", coop(torch.zeros(4, 64)), DEFAULT_TEMPLATE),
])  # fmt: skip
def test_the_template_recorded_is_the_one_that_was_used(photos, tmp_path, method, prompts, template):
    backbone = golden.backbone("vit") if prompts is None else with_prompts(golden.backbone("vit"), prompts)
    done = evaluate(
        photos, backbone, [method], out=tmp_path, captions=False if method == "auto" else None, cache=False
    )
    assert done.results[0].run["template"] == list(list_templates(template))
