"""`mltta eval` and `mltta compare`: evaluate methods on a dataset and compare the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from mltta.cli import groups
from mltta.cli.options import Options, TableFormat, argument, option, write_text
from mltta.cli.progress import counted
from mltta.cli.settings import settings_of
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.data import Dataset
    from mltta.evaluation.evaluate import Evaluation
    from mltta.evaluation.recipes import Recipe
    from mltta.evaluation.results import Result

#: default methods: the baseline and the paper's method
DEFAULT_METHODS = ("clip", "ml-tta")


class WordingOptions(Options, panel="Dataset"):
    """What prompts and captions call the labels of a built-in set."""

    label_names: Literal["readable", "released"] | None = option(
        None, "VOC prompts: dining table or diningtable (default: by --preset)."
    )
    noun_words: Literal["full", "released"] | None = option(
        None, "Words that name a label in captions (default: by --preset)."
    )

    def wording(self, preset: str) -> dict[str, Any]:
        """Names and words as told, or as the preset has them."""
        released = preset == "released"
        return {
            "label_names": self.label_names or ("released" if released else "readable"),
            "noun_words": self.noun_words or ("released" if released else "full"),
        }


class DatasetOptions(WordingOptions, panel="Dataset"):
    """Which images of a dataset to evaluate, and how to read its labels."""

    labels: str | None = option(None, "folder, hf: label list (default: all labels found).", "-l")
    split: str | None = option(None, "Split, e.g. train2017 (default: the one used in publications).")
    annotations: Path | None = option(None, "folder: CSV or JSON Lines file; objects365: JSON file.")
    hf_config: str | None = option(None, "hf: configuration, if the dataset has several.")
    image_column: str | None = option(None, "hf: column with images.")
    label_column: str | None = option(None, "hf: column with labels.")
    difficult: Literal["negative", "ignore"] = option(
        "negative", "VOC: labels with only difficult objects count as absent, or are ignored."
    )
    unlabelled: Literal["keep", "drop"] | None = option(
        None, "Keep or drop images without labels (default: as in publications)."
    )


class EvalOptions(DatasetOptions, groups.AnswerOptions, groups.DatasetRunOptions, groups.SpreadOptions):
    """Evaluate methods on a dataset: mAP with confidence intervals, F1 and run time.

    **Examples**

    - `mltta eval voc2012 --data VOCdevkit --method clip --method ml-tta`
    - `mltta eval coco2017 --data coco --model ViT-B/16 --method tpt --method ml-tta --set views=32`
    - `mltta eval folder --data photos --annotations labels.csv --method ml-tta`

    DATASET is voc2007, voc2012, coco2014, coco2017, nuswide, objects365, folder (your own images with a CSV or JSON
    Lines file of labels) or hf (a Hugging Face dataset).

    Views are encoded once and cached (see `mltta cache list`), so further methods and settings are evaluated without
    encoding. Runs are resumable: rerun the command to continue. Results are written to `--out`, one folder per method;
    `mltta compare` reads them.

    **Exit code**: 0 all images evaluated, 1 some images could not be read (they are listed), 2 usage error.
    """

    dataset: str = argument("DATASET", "voc2007, voc2012, coco2014, … or folder, hf.")
    data: str = option(MISSING, "Dataset folder; for hf, the name on the Hub.", "-d")
    method: tuple[str, ...] = option(
        (),
        "Method name (see `mltta methods`) or path to a Python file (default: clip and ml-tta). May be repeated.",
    )
    orders: int = option(1, "Online methods: number of image orders to evaluate.", min=1, panel=groups.METHOD)
    variations: Path | None = option(
        None, "Generated images for difftpt (see `mltta variations`).", metavar="DIR", panel=groups.METHOD
    )
    out: Path = option(Path("results"), "Folder for results.", "-o")
    no_cache: bool = option(False, "Do not cache features.", panel=groups.PERFORMANCE)
    fresh: bool = option(False, "Discard earlier results of these methods and start over.")
    draws: int = option(1000, "Number of bootstrap samples for confidence intervals.", min=2)
    format: TableFormat = option("text", "Output format.", "-f")
    verbose: bool = option(False, "Also print the device, precision and batch size.", "-v")


class CompareOptions(Options):
    """Compare results of `mltta eval`, with paired differences and confidence intervals.

    **Examples**

    - `mltta compare results/`
    - `mltta compare results/voc2012-val/*clip* results/voc2012-val/*ml-tta* --html page.html`

    Differences are relative to the first result. Each combination of dataset and model gets its own table.
    """

    results: tuple[Path, ...] = argument("RESULT…", "Result folders, or folders that contain them.")
    format: TableFormat = option("text", "Output format.", "-f")
    html: Path | None = option(None, "Also write a self-contained HTML page with plots to this file.")
    draws: int = option(1000, "Number of bootstrap samples for confidence intervals.", min=2)


def eval_(options: EvalOptions) -> None:
    from mltta.cli.on_ray import spread_by
    from mltta.evaluation.comparison import comparison, lines
    from mltta.evaluation.evaluate import evaluate
    from mltta.tables.render import render

    recipes, images, backbone = recipes_of(options), dataset_of(options), groups.open_backbone(options)
    with spread_by(options) as spread, counted("evaluating", len(images)) as progress:
        how = groups.asked(options) | options.chosen("out", "fresh")
        how |= {"cache": not options.no_cache, "generated": options.variations}
        done = evaluate(images, backbone, recipes, progress=progress, spread=spread, **how)
    if not any(len(result.scored) for result in done.results):  # no table to print
        fail(done.results, images)
    found = lines(done.results, draws=options.draws)
    for summary in (summary for line in found for summary in line.summaries):
        summary.save()
    typer.echo(render(comparison(found), options.format))
    typer.echo("\n".join(tell(done)), err=True)
    fail(done.results, images)


def recipes_of(options: EvalOptions) -> list[Recipe]:
    """Return a recipe per method with its settings and, for online methods, per image order."""
    from mltta.evaluation.recipes import Recipe, uses_variations
    from mltta.methods import method_class

    # a method from a file is called by its registered name
    names = [method_class(name).name for name in options.method or DEFAULT_METHODS]
    if options.variations is not None and not any(map(uses_variations, names)):
        raise ConfigError(
            f"--variations: no method uses generated images: {', '.join(names)}. Add --method difftpt"
        )
    if not options.method:
        typer.echo(f"no --method given: running {' and '.join(names)}", err=True)
    chosen = settings_of(names, options.set, options.settings)
    several: Sequence[int | None] = range(options.orders) if options.orders > 1 else [None]
    runs = [(name, order) for name in names for order in (several if method_class(name).online else [None])]
    return [Recipe(name, chosen[name], options.preset, order=order) for name, order in runs]


def dataset_of(options: EvalOptions) -> Dataset:
    """Load the dataset, then apply --first and --corrupt."""
    from mltta.data import load_dataset

    named = options.chosen(*(one.name for one in fields(DatasetOptions)))
    named |= options.wording(options.preset)
    images = load_dataset(options.dataset, options.data, config=named.pop("hf_config"), **named)
    if options.synonyms is not None or options.wordnet:
        images = replace(images, labels=groups.with_synonyms(images.labels, options))
    typer.echo(images.summary(), err=True)
    if options.first is not None:
        typer.echo(f"evaluating only the first {min(options.first, len(images)):,} images", err=True)
    return cut(images, options, options.seed)


def cut(images: Dataset, options: groups.DatasetRunOptions, seed: int) -> Dataset:
    """Return the first images of a dataset, corrupted, if the options ask for it."""
    from mltta.data.corrupt import corrupt

    if options.first is not None:
        images = images.select(slice(options.first))
    if options.corrupt is None:
        return images
    kind, _, severity = options.corrupt.partition(":")
    if not (severity or "3").isdecimal():
        raise ConfigError(f"--corrupt: severity must be 1, 2 or 3, not {severity!r}")
    return corrupt(images, kind, int(severity or 3), seed)


def compare(options: CompareOptions) -> None:
    from mltta.evaluation.comparison import by_dataset, comparison, comparison_page, lines
    from mltta.evaluation.results import find_results
    from mltta.tables.render import render

    given = find_results(options.results)
    whole = [result for result in given if result.complete and len(result.scored)]
    for result in given:
        if whole and result not in whole:
            typer.echo(f"skipped: {result.folder} is not finished; rerun its `mltta eval` command", err=True)
    groups = [lines(group, draws=options.draws) for group in by_dataset(whole or given)]
    tables = [render(comparison(found), options.format) for found in groups]
    if options.format == "json" and len(tables) > 1:
        tables = ["[" + ",\n".join(table.strip() for table in tables) + "]"]
    typer.echo("\n".join(tables))
    if options.html is not None:
        write_text(options.html, comparison_page(groups))
        typer.echo(f"wrote {options.html}", err=True)


def tell(done: Evaluation) -> list[str]:
    """Return lines about run time and reused results."""
    counts = done.counts
    encoded = f"{counts.encoded:,} images encoded in {counts.encode_seconds:.1f} s"
    said = [f"{encoded}, {counts.cached:,} read from the cache; {done.seconds:.1f} s in total"]
    said += [f"  {name}: {seconds:.1f} s excluding encoding" for name, seconds in done.adapt_seconds.items()]
    said += [f"  {name}: {n:,} images were already done" for name, n in done.resumed.items() if n]
    return said + [f"results in {folder}" for folder in dict.fromkeys(r.folder.parent for r in done.results)]


def fail(results: list[Result], dataset: Dataset) -> None:
    """List the images that could not be read and exit with code 1, if there are any."""
    failed = {id: why for result in results for id, why in result.failed.items()}
    if failed:
        said = [f"{len(failed):,} of {len(dataset):,} images could not be read:"]
        said += [f"  {id}: {why}" for id, why in list(failed.items())[:20]]
        said += [f"  and {len(failed) - 20:,} more, see summary.json"] if len(failed) > 20 else []
        typer.echo("\n".join(said), err=True)
        raise typer.Exit(1)
