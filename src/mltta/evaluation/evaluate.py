"""Evaluation on datasets: many methods share one encoding, and results are saved as they arrive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.errors import ConfigError
from mltta.evaluation.measure import Measure, Spread
from mltta.evaluation.recipes import Recipe, dataset_digests, describe, with_variations
from mltta.evaluation.results import Result, run_name
from mltta.evaluation.writing import ResultWriter
from mltta.methods.base import Method, OnlineMethod, State
from mltta.model.prompts import DescriptionSource, TemplateSource
from mltta.session.execution import Execution
from mltta.session.features import Counts
from mltta.session.question import Question
from mltta.session.scorer import Scored
from mltta.session.session import Session

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

# How often an online method's state is saved: a kill loses at most this many images, whose features are cached.
IMAGES_PER_STATE = 256


@dataclass
class Evaluation:
    """The outcome: one result per recipe, in order, and the time spent."""

    results: list[Result]
    counts: Counts
    #: seconds of the whole call, and of each recipe without encoding
    seconds: float = 0.0
    adapt_seconds: dict[str, float] = field(default_factory=dict)
    #: images already done before this call, by recipe
    resumed: dict[str, int] = field(default_factory=dict)


@dataclass
class _Recording:
    """A recipe in progress: its method, its writer, and the saved state of an online method."""

    recipe: Recipe
    method: Method
    writer: ResultWriter
    state: State | None = None


def evaluate(
    dataset: Dataset,
    backbone: Backbone,
    recipes: Sequence[Recipe | str],
    *,
    out: str | Path,
    captions: CaptionBase | str | Path | Literal[False] | None = None,
    template: TemplateSource | None = None,
    descriptions: DescriptionSource | None = None,
    teacher: Backbone | str | None = None,
    generated: str | Path | None = None,
    seed: int = 0,
    cache: bool | str | Path = True,
    execution: Execution | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
    spread: Spread | None = None,
) -> Evaluation:
    """Evaluate methods on a dataset.

    Images that a recipe completed in an earlier call, even if killed, are skipped. Features are encoded once
    for all recipes and cached. On the CPU every image is adapted alone, so the scores of episodic methods are
    bit-identical for any batch size, number of workers and image order.

    Args:
        recipes: methods with their settings; a plain name uses the paper's.
        out: folder of results; each recipe gets a subfolder.
        captions: a caption base of this backbone, its path, or False for none (default: the built-in base).
        template: a prompt template, several, or a set ("openai", "simple") (default: each method's own).
        descriptions: sentences by label, or a JSON file of them; a label's feature is the mean of all its prompts.
        teacher: a second model for methods that need one, or "self".
        generated: folder of variations (`mltta variations`), of this dataset or of several, for difftpt.
        cache: True caches features in the user's cache folder, a path in that folder, False not at all.
        execution: batch size, processes, compilation.
        fresh: discard earlier results of these recipes.
        progress: called with the number of completed images and the total.
        spread: distributes the work, e.g. to workers of a cluster.
    """
    start = time.perf_counter()
    given = (Recipe(recipe) if isinstance(recipe, str) else recipe for recipe in recipes)
    chosen = [with_variations(recipe, dataset.name, generated) for recipe in given]
    if not chosen:
        raise ConfigError("no method given: pass at least one")
    if not len(dataset):
        raise ConfigError(f"{dataset.name} has no images")
    labels = dataset.labels
    question = Question(
        backbone, labels, template=template, descriptions=descriptions, captions=captions, teacher=teacher
    )
    # report invalid settings before any work
    methods = [question.method(recipe.method, recipe.preset, **recipe.options) for recipe in chosen]
    bound = next((method.name for method in methods if method.online or method.transductive), None)
    if spread is not None and bound is not None:
        why = "learns from all earlier images, in order: run it without --ray"
        raise ConfigError(f"{bound} {why}")
    digests = dataset_digests(dataset)
    with ExitStack() as stack:
        runs: dict[Path, _Recording] = {}
        folders = []
        for recipe, method in zip(chosen, methods, strict=True):
            session = Session(question, [method], seed=seed)
            about = describe(session, dataset, recipe, method) | digests
            folder = Path(out) / dataset.name / f"{_slug(about)}-{run_name(about)}"
            folders.append(folder)
            if folder not in runs:  # two recipes may have the same settings
                runs[folder] = _open(folder, about, dataset, recipe, method, fresh)
                stack.callback(runs[folder].writer.close)
        done = Evaluation([], Counts(), resumed={run.recipe.key: run.writer.resumed for run in runs.values()})
        # recipes with the same image order share a pass
        orders: dict[int | None, list[_Recording]] = {}
        for run in runs.values():
            orders.setdefault(run.recipe.order if run.method.online else None, []).append(run)
        make = partial(Measure, question, dataset, seed=seed, cache=cache, execution=execution or Execution())
        for order, group in orders.items():
            _pass(make, order, group, done, progress or (lambda *_: None), spread)
    done.results = [runs[folder].writer.result() for folder in folders]
    done.seconds = time.perf_counter() - start
    return done


def _open(
    folder: Path, about: dict[str, Any], dataset: Dataset, recipe: Recipe, method: Method, fresh: bool
) -> _Recording:
    """Open a recipe, with the records of an earlier call that it can resume."""
    writer = ResultWriter(folder, about, dataset.targets, len(method.branch_names), fresh)
    run = _Recording(recipe, method, writer)
    if method.transductive:
        writer.all_or_nothing()
    elif not isinstance(method, OnlineMethod):
        writer.retry_failed()  # a file may have been repaired; not for online methods, because order matters
    else:
        start = method.start()
        kept = run.writer.load_state()
        run.state = start if kept is None else {k: v.to(start[k].device) for k, v in kept.items()}
    return run


def _pass(
    make: Callable[..., Measure],
    order: int | None,
    runs: Sequence[_Recording],
    done: Evaluation,
    progress: Callable[[int, int], None],
    spread: Spread | None,
) -> None:
    """Finish every recipe of a group, encoding each image at most once."""
    wanted = ~np.stack([run.writer.done for run in runs])
    images = wanted.shape[1]
    places = np.arange(images) if order is None else np.random.default_rng(order).permutation(images)
    todo: list[int] = places[np.logical_or.reduce(wanted)[places]].tolist()
    ready = images - len(todo)
    if todo:
        methods, states = [run.method for run in runs], [run.state for run in runs]
        measure = make(methods=methods, states=states, wanted=wanted)
        measure.execution.prepare(measure.question.backbone, len(todo))
        for found in measure(todo) if spread is None else spread(measure, todo):
            for number, records in found.records.items():
                _write(runs[number], records, done, None if spread else measure.run.scorers[number].state)
            done.counts += found.counts
            ready += found.photos
            progress(ready, images)
        if spread is None:
            done.counts += measure.session.features.counts
            for number, records in measure.at_end().records.items():
                _write(runs[number], records, done)
            for run, scorer in zip(runs, measure.run.scorers, strict=True):
                if scorer.state is not None:
                    run.writer.save_state(scorer.state)
    else:
        progress(images, images)


def _write(run: _Recording, records: Sequence[Scored], done: Evaluation, state: State | None = None) -> None:
    """Append one record per image, and regularly save an online method's state."""
    before = run.writer.count
    run.writer.write(records)
    if state is not None and run.writer.count // IMAGES_PER_STATE > before // IMAGES_PER_STATE:
        run.writer.save_state(state)
    seconds = sum(record.ms for record in records) / 1000
    done.adapt_seconds[run.recipe.key] = done.adapt_seconds.get(run.recipe.key, 0.0) + seconds


def _slug(about: Mapping[str, Any]) -> str:
    """A readable folder name: model, method, settings."""
    order = [] if about["order"] is None else [f"order {about['order']}"]
    words = [about["model"], about["method"], *(f"{k} {v}" for k, v in about["settings"].items()), *order]
    return "-".join("".join(c if c.isalnum() else " " for c in " ".join(words)).split()).lower()[:80]
