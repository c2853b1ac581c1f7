"""The pipeline for datasets: many methods measured on one encoding, results written as they come."""

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
from mltta.decision import Decision
from mltta.errors import ConfigError
from mltta.evaluation.recipes import Recipe, Setting
from mltta.evaluation.records import Record
from mltta.evaluation.results import Result, run_name
from mltta.evaluation.writing import ResultWriter
from mltta.methods import method_class
from mltta.methods.base import Method, OnlineMethod, State
from mltta.model.backbone import Backbone
from mltta.model.load import load_backbone
from mltta.model.prompts import DescriptionSource, TemplateSource, load_descriptions
from mltta.pipeline.cache import FeatureCache
from mltta.pipeline.execution import Execution
from mltta.pipeline.features import Counts, Features, Pipeline
from mltta.pipeline.overlap import overlapped
from mltta.pipeline.prepare import Photo
from mltta.pipeline.score import Begun, Scored, Scorer

# An online method's memory is kept this often; a kill costs at most so many images, whose features are kept.
IMAGES_A_STATE = 256


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


@dataclass
class _Run:
    """A recipe under way: its method, where its records go, and what an online one remembers from before."""

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
    captions: CaptionBase | None = None,
    template: TemplateSource | None = None,
    descriptions: DescriptionSource | None = None,
    teacher: Backbone | str | None = None,
    seed: int = 0,
    cache: bool | str | Path = True,
    execution: Execution | None = None,
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
        template: one prompt template, several, or the name of a set ("openai", "simple"); by default each method's own.
        descriptions: sentences by label, or a JSON file with them; the label's feature is the mean of all its prompts.
        teacher: a second model for the methods that ask one, or "self".
        cache: keep features in the user's cache folder, in the folder given, or not at all.
        execution: images at once, processes, compiling.
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
    said = None if descriptions is None else load_descriptions(descriptions, dataset.labels)
    asked = any(method_class(recipe.method).uses_teacher for recipe in chosen)
    if isinstance(teacher, str) and teacher != "self" and asked:
        teacher = load_backbone(teacher, device=backbone.device)  # once for all recipes
    setting = Setting(dataset, backbone, base, template, said, teacher, seed)
    # wrong settings end here, before any work
    methods = [setting.method(recipe) for recipe in chosen]
    with ExitStack() as stack:
        runs: dict[Path, _Run] = {}
        folders = []
        for recipe, method in zip(chosen, methods, strict=True):
            about = setting.describe(recipe, method)
            folder = Path(out) / dataset.name / f"{_slug(about)}-{run_name(about)}"
            folders.append(folder)
            if folder not in runs:  # two recipes may come to the same settings
                runs[folder] = _open(folder, about, setting, recipe, method, fresh)
                stack.callback(runs[folder].writer.close)
        done = Evaluation([], Counts(), resumed={run.recipe.key: run.writer.resumed for run in runs.values()})
        heard = any(method.emits != "odds" for method in methods)
        labelled = label_captions(dataset.labels, backbone, base) if heard else None
        decision = Decision(labelled, backbone.logit_scale)
        for group in _passes(list(runs.values())):
            _pass(setting, decision, group, cache, execution or Execution(), done, progress)
    done.results = [Result(folder) for folder in folders]
    done.seconds = time.perf_counter() - start
    return done


def _open(
    folder: Path, about: dict[str, Any], setting: Setting, recipe: Recipe, method: Method, fresh: bool
) -> _Run:
    """A recipe with the records of an earlier call that it can go on from."""
    writer = ResultWriter(folder, about, setting.dataset.targets, len(method.branch_names), fresh)
    run = _Run(recipe, method, writer)
    if method.transductive:
        writer.all_or_nothing()
    elif not isinstance(method, OnlineMethod):
        writer.retry_failed()  # a file may be mended by now; an online method has passed its place
    else:
        start = method.start()
        kept = run.writer.load_state()
        run.state = start if kept is None else {k: v.to(start[k].device) for k, v in kept.items()}
    return run


def _passes(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Runs that can share a pass over the images: those that want them in the same order."""
    orders: dict[int | None, list[_Run]] = {}
    for run in runs:
        orders.setdefault(run.recipe.order if run.method.online else None, []).append(run)
    yield from orders.values()


def _pass(
    setting: Setting,
    decision: Decision,
    runs: Sequence[_Run],
    cache: bool | str | Path,
    execution: Execution,
    done: Evaluation,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Bring every run of a group to its end, encoding each image at most once."""
    dataset, backbone, seed = setting.dataset, setting.backbone, setting.seed
    order = next((run.recipe.order for run in runs if run.method.online), None)
    places: NDArray[np.int64] = np.arange(len(dataset))
    if order is not None:
        places = np.random.default_rng(order).permutation(len(dataset))
    finished = np.logical_and.reduce([run.writer.done for run in runs])
    todo = places[~finished[places]]
    folder = None if isinstance(cache, bool) else Path(cache)
    execution.prepare(backbone, len(todo))
    pipeline = Pipeline(
        backbone,
        (spec for run in runs for spec in run.method.needs),
        seed=seed,
        execution=execution,
        cache=None if cache is False else lambda spec: FeatureCache(backbone, spec, seed, folder),
        fetch=_Photos(dataset),
    )
    pipeline.counts = done.counts
    scorers = [Scorer(run.method, decision, pipeline, run.state) for run in runs]
    ready = len(dataset) - len(todo)

    def begin(photos: list[Features]) -> list[tuple[_Run, Scorer, Begun]]:
        own = [[item for item in photos if not run.writer.done[item.photo.index]] for run in runs]
        return [
            (run, scorer, scorer.begin(some))
            for run, scorer, some in zip(runs, scorers, own, strict=True)
            if some
        ]

    def finish(begun: tuple[int, list[tuple[_Run, Scorer, Begun]]]) -> int:
        for run, scorer, answers in begun[1]:
            seconds = _write(run, scorer, scorer.finish(answers), dataset)
            done.adapt_seconds[run.recipe.key] = done.adapt_seconds.get(run.recipe.key, 0.0) + seconds
        return begun[0]

    behind = backbone.device.type != "cpu"
    batches = pipeline(map(int, todo))
    for photos in overlapped(batches, lambda batch: (len(batch), begin(batch)), finish, behind):
        ready += photos
        if progress is not None:
            progress(ready, len(dataset))
    for run, scorer in zip(runs, scorers, strict=True):
        answers = scorer.at_end()
        if answers:
            done.adapt_seconds[run.recipe.key] = _write(run, scorer, answers, dataset)
        if scorer.state is not None:
            run.writer.save_state(scorer.state)


def _write(run: _Run, scorer: Scorer, scored: Sequence[Scored], dataset: Dataset) -> float:
    """Append one record for each image; the seconds that scoring took."""
    if not scored:
        return 0.0
    before = run.writer.count
    run.writer.write([_record(one, dataset.ids[one.photo.index]) for one in scored])
    if scorer.state is not None and run.writer.count // IMAGES_A_STATE > before // IMAGES_A_STATE:
        run.writer.save_state(scorer.state)
    return sum(one.ms for one in scored) / 1000


def _record(scored: Scored, id: str) -> Record:
    if scored.branches is None or scored.score is None or scored.present is None:
        return Record(scored.photo.index, id, error=scored.error)
    shown = tuple(scored.present.nonzero().flatten().tolist())
    return Record(scored.photo.index, id, scored.branches.numpy(), scored.score.numpy(), shown, scored.ms)


class _Photos:
    """The photo at a place of a dataset; sent to a worker once."""

    def __init__(self, dataset: Dataset):
        self.ids, self.images = dataset.ids, dataset.images

    def __call__(self, index: int) -> Photo:
        return Photo(index, self.ids[index], self.images[index], self.ids[index])


def _slug(about: Mapping[str, Any]) -> str:
    """A folder name that people can read: model, method, settings."""
    order = [] if about["order"] is None else [f"order {about['order']}"]
    words = [about["model"], about["method"], *(f"{k} {v}" for k, v in about["settings"].items()), *order]
    return "-".join("".join(c if c.isalnum() else " " for c in " ".join(words)).split()).lower()[:80]
