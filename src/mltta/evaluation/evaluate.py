"""Stream a dataset through one or many methods: every image encoded once, results written as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.captions.labelled import label_captions
from mltta.captions.store import CaptionBase, default_captions
from mltta.data import Dataset
from mltta.errors import ConfigError
from mltta.evaluation.recipes import Recipe, Setting
from mltta.evaluation.results import Result, ResultWriter, run_name
from mltta.methods import method_class
from mltta.methods.base import Method, OnlineMethod
from mltta.model.backbone import Backbone, load_backbone
from mltta.model.prompts import DEFAULT_TEMPLATE, DescriptionSource, TemplateSource, load_descriptions
from mltta.model.threads import side_by_side
from mltta.pipeline.cache import FeatureCache
from mltta.pipeline.encode import union
from mltta.pipeline.execution import Execution
from mltta.pipeline.scoring import Judge, Run, Scorer
from mltta.pipeline.stream import Counts, feature_stream


@dataclass
class Evaluation:
    """What came out: one result a recipe, in their order, and where the time went."""

    results: list[Result]
    counts: Counts
    #: the whole call, and what each recipe took of it beyond encoding
    seconds: float = 0.0
    adapt_seconds: dict[str, float] = field(default_factory=dict)
    #: images that were finished before this call, by recipe
    resumed: dict[str, int] = field(default_factory=dict)


def evaluate(
    dataset: Dataset,
    backbone: Backbone,
    recipes: Sequence[Recipe | str],
    *,
    out: str | Path,
    captions: CaptionBase | None = None,
    template: TemplateSource = DEFAULT_TEMPLATE,
    descriptions: DescriptionSource | None = None,
    teacher: Backbone | str | None = None,
    seed: int = 0,
    cache: bool | str | Path = True,
    batch_size: int | None = None,
    workers: int | None = None,
    compile: bool | None = None,
    jacobian: bool | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure methods on a dataset.

    Images that a recipe finished in an earlier, perhaps killed, call are not done again; features are encoded once
    for all recipes and kept. On the CPU every image is adapted alone, so the scores of episodic methods never
    depend, to the last bit, on batch size, workers or the order of the images.

    Args:
        recipes: methods with their settings; a plain name takes the paper's.
        out: folder of results; each recipe gets its own inside.
        captions: a caption base of this backbone, by default the one that ships.
        template: one prompt template, several, or the name of a set ("openai", "simple").
        descriptions: sentences by label, or a JSON file with them; the label's feature is the mean of all its prompts.
        teacher: a second model for the methods that ask one, or "self".
        cache: keep features in the user's cache folder, in the folder given, or not at all.
        batch_size: images at once; what a kill can lose. This and the next three are chosen if not given.
        workers: processes that decode images and make views.
        compile: compile the image tower first.
        jacobian: take first-step gradients from a kept Jacobian.
        fresh: forget earlier results of these recipes.
        progress: called with images done and images to do.
    """
    start = time.perf_counter()
    chosen = [Recipe(recipe) if isinstance(recipe, str) else recipe for recipe in recipes]
    if not chosen:
        raise ConfigError("give at least one method")
    if not len(dataset):
        raise ConfigError(f"{dataset.name} has no images")
    base = captions if captions is not None else default_captions(backbone)
    labelled = label_captions(dataset.labels, backbone, base)
    said = None if descriptions is None else load_descriptions(descriptions, dataset.labels)
    if (
        isinstance(teacher, str)
        and teacher != "self"
        and any(method_class(r.method).uses_teacher for r in chosen)
    ):
        teacher = load_backbone(teacher, device=backbone.device)  # once for all recipes
    setting = Setting(dataset, backbone, base, template, said, teacher, seed)
    methods = [
        setting.method(recipe, labelled) for recipe in chosen
    ]  # wrong settings end here, before any work
    execution = Execution(batch_size, workers, compile, jacobian)
    for method in methods:
        execution.apply(method)
    with ExitStack() as stack:
        runs: dict[Path, Run] = {}
        folders = []
        for recipe, method in zip(chosen, methods, strict=True):
            about = setting.describe(recipe, method)
            folder = Path(out) / dataset.name / f"{_slug(about)}-{run_name(about)}"
            folders.append(folder)
            if folder not in runs:  # two recipes may come to the same settings
                runs[folder] = _open(folder, about, setting, recipe, method, fresh)
                stack.callback(runs[folder].writer.close)
        pool = side_by_side() if backbone.device.type == "cpu" else None
        scorer = Scorer(setting, Judge(labelled, backbone.logit_scale), pool)
        done = Evaluation([], Counts(), resumed={run.recipe.key: run.writer.resumed for run in runs.values()})
        for group in _passes(list(runs.values())):
            _pass(scorer, group, cache, execution, done, progress)
    done.results = [Result(folder) for folder in folders]
    done.seconds = time.perf_counter() - start
    return done


def _open(
    folder: Path, about: dict[str, Any], setting: Setting, recipe: Recipe, method: Method, fresh: bool
) -> Run:
    """A recipe with the records of an earlier call that it can go on from."""
    writer = ResultWriter(folder, about, setting.dataset.targets, len(method.prompts), fresh)
    run = Run(recipe, method, writer)
    if not isinstance(method, OnlineMethod):
        writer.retry_failed()  # a file may be mended by now; an online method has passed its place
    else:
        start = method.start()
        kept = run.writer.load_state()
        run.state = start if kept is None else {k: v.to(start[k].device) for k, v in kept.items()}
    return run


def _passes(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Runs that can share a pass over the images: those that want them in the same order."""
    orders: dict[int | None, list[Run]] = {}
    for run in runs:
        orders.setdefault(run.recipe.order if run.method.online else None, []).append(run)
    yield from orders.values()


def _pass(
    scorer: Scorer,
    runs: Sequence[Run],
    cache: bool | str | Path,
    execution: Execution,
    done: Evaluation,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Bring every run of a group to its end, encoding each image at most once."""
    dataset, backbone, seed = scorer.setting.dataset, scorer.setting.backbone, scorer.setting.seed
    order = next((run.recipe.order for run in runs if run.method.online), None)
    places: NDArray[np.int64] = np.arange(len(dataset))
    if order is not None:
        places = np.random.default_rng(order).permutation(len(dataset))
    finished = np.logical_and.reduce([run.writer.done for run in runs])
    todo = places[~finished[places]]
    folder = None if isinstance(cache, bool) else Path(cache)
    specs = union(spec for run in runs for spec in run.method.needs)
    execution.prepare(backbone, len(todo))
    ready = len(dataset) - len(todo)
    for items in feature_stream(
        dataset,
        todo,
        backbone,
        [FeatureCache(backbone, spec, seed, folder, keep=cache is not False) for spec in specs],
        seed=seed,
        batch_size=execution.images_at_once(backbone),
        workers=execution.processes(backbone),
        counts=done.counts,
    ):
        scorer.count_votes(runs, items)
        for run in runs:
            own = [item for item in items if not run.writer.done[item.index]]
            if own:
                seconds = scorer.score(run, own)
                done.adapt_seconds[run.recipe.key] = done.adapt_seconds.get(run.recipe.key, 0.0) + seconds
        ready += len(items)
        if progress is not None:
            progress(ready, len(dataset))
    for run in runs:
        if run.state is not None:
            run.writer.save_state(run.state)


def _slug(about: Mapping[str, Any]) -> str:
    """A folder name that people can read: model, method, settings."""
    order = [] if about["order"] is None else [f"order {about['order']}"]
    words = [about["model"], about["method"], *(f"{k} {v}" for k, v in about["settings"].items()), *order]
    return "-".join("".join(c if c.isalnum() else " " for c in " ".join(words)).split()).lower()[:80]
