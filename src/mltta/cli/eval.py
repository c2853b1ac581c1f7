"""`mltta eval` and `mltta compare`: methods measured on a dataset, and results side by side."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltta.cli import on_ray as cluster
from mltta.cli import options
from mltta.cli import settings as written
from mltta.cli.options import TableFormat
from mltta.cli.progress import bar_on_terminal

if TYPE_CHECKING:
    from mltta.data import Dataset
    from mltta.evaluation.evaluate import Evaluation
    from mltta.evaluation.results import Result

EVAL_HELP = """Measure methods on a dataset: mAP with intervals, F1 of the label sets, time.

**Examples**

`mltta eval voc2012 --data VOCdevkit --method clip --method ml-tta`

`mltta eval coco2017 --data coco --model ViT-B/16 --method tpt --method ml-tta --set views=32`

`mltta eval folder --data photos --annotations labels.csv --method ml-tta`

DATASET is voc2007, voc2012, coco2014, coco2017, nuswide, objects365, folder (your own images with a CSV or JSON
Lines file of labels) or hf (a Hugging Face dataset).

The views of an image are encoded once for all methods and kept (`mltta cache list`), so a second method or another
setting costs no encoding. Stopped or killed, the same command goes on where it stopped. Results are written to
`--out`, one folder a method; `mltta compare` reads them.

**Exit code**: 0 all images measured, 1 some could not be read (they are named), 2 wrong usage.
"""

COMPARE_HELP = """Results of `mltta eval` side by side, with differences paired image by image.

**Examples**

`mltta compare results/`

`mltta compare results/voc2012-val/*clip* results/voc2012-val/*ml-tta* --html page.html`

Differences are to the first result given. Results of different datasets or models become tables of their own.
"""


class Difficult(str, Enum):
    negative = "negative"
    ignore = "ignore"


class Unlabelled(str, Enum):
    keep = "keep"
    drop = "drop"


def eval_(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="voc2007, voc2012, coco2014, … or folder, hf.")
    ],
    data: Annotated[
        str, typer.Option("--data", "-d", help="Folder of the dataset; for hf its name on the hub.")
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="Give several to share one encoding; `mltta methods`, or my_method.py."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Another split than the published one, e.g. train2017.")
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(help="For folder: the CSV or JSON Lines file; for objects365: the JSON file."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", "-l", help="For folder and hf: the label list, if not all labels seen."),
    ] = None,
    config_name: Annotated[
        str | None,
        typer.Option("--hf-config", help="For hf: the configuration, where a dataset has several."),
    ] = None,
    image_column: Annotated[str | None, typer.Option(help="For hf: the column of images.")] = None,
    label_column: Annotated[str | None, typer.Option(help="For hf: the column of labels.")] = None,
    difficult: Annotated[
        Difficult, typer.Option(help="VOC: pairs with difficult objects only count as absent, or not at all.")
    ] = Difficult.negative,
    unlabelled: Annotated[
        Unlabelled | None, typer.Option(help="Images without any label; by default as the papers count them.")
    ] = None,
    corruption: Annotated[
        str | None,
        typer.Option(
            "--corrupt",
            metavar="KIND[:SEVERITY]",
            help="fog, motion-blur, noise, low-contrast or jpeg; 1 to 3.",
        ),
    ] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Only the first images.")] = None,
    model: options.Model = None,
    weights: options.Weights = None,
    preset: options.Preset = "paper",
    option: options.EverySettings = None,
    config: options.ConfigFile = None,
    captions: options.Captions = None,
    synonyms: options.Synonyms = None,
    wordnet: options.Wordnet = False,
    template: options.Template = None,
    prompts: options.Prompts = None,
    descriptions: options.DescriptionFile = None,
    teacher: options.Teacher = None,
    orders: Annotated[
        int, typer.Option(min=1, help="Online methods: how many orders of the images to measure.")
    ] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of results.")] = Path("results"),
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no features.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results of these methods.")] = False,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images at once.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode, in place of threads.")
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Bootstrap samples behind the intervals.")] = 1000,
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="How to print.")] = TableFormat.text,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    compile: options.Compile = None,
    accelerate: options.Accelerate = None,
    seed: options.Seed = 0,
    quick_gelu: options.QuickGelu = None,
    allow_torchscript: options.AllowTorchscript = False,
    allow_remote_code: options.AllowRemoteCode = False,
    verbose: options.Verbose = False,
    ray: cluster.Ray = None,
    ray_workers: cluster.Workers = None,
    ray_threads: cluster.Threads = None,
) -> None:
    from dataclasses import replace

    from mltta.captions.open import open_captions
    from mltta.data import load_dataset
    from mltta.data.corrupt import corrupt
    from mltta.evaluation.comparison import comparison, lines
    from mltta.evaluation.evaluate import evaluate
    from mltta.evaluation.recipes import Recipe
    from mltta.methods import method_class
    from mltta.session.execution import Execution
    from mltta.tables.render import render

    # a method from a file goes by the name that it registers
    names = [method_class(name).name for name in method or ["clip", "ml-tta"]]
    chosen = written.settings_of(names, option or [], config)
    recipes = []
    for name in names:
        online = method_class(name).online
        for order in range(orders) if online and orders > 1 else (None,):
            recipes.append(Recipe(name, chosen[name], preset, order=order))
    images = load_dataset(
        dataset,
        data,
        split=split,
        annotations=annotations,
        labels=labels,
        config=config_name,
        image_column=image_column,
        label_column=label_column,
        difficult=difficult.value,
        unlabelled=None if unlabelled is None else unlabelled.value,
    )
    if synonyms is not None or wordnet:
        images = replace(images, labels=options.with_synonyms(images.labels, synonyms, wordnet))
    typer.echo(images.summary(), err=True)
    if first is not None:
        images = images.select(slice(first))
        typer.echo(f"the first {len(images):,} of them are measured", err=True)
    if corruption is not None:
        kind, _, severity = corruption.partition(":")
        images = corrupt(images, kind, written.whole_number(severity or "3", "--corrupt"), seed)
    backbone = options.open_backbone(
        model,
        weights,
        "cpu" if ray else device,
        quick_gelu,
        allow_torchscript,
        prompts,
        dtype,
        accelerate,
        allow_remote_code,
    )
    base = None if captions is None else open_captions(captions, backbone)
    with cluster.spread_by(ray, ray_workers, ray_threads) as spread, bar_on_terminal() as bar:
        task = bar.add_task("evaluating", total=len(images))
        done = evaluate(
            images,
            backbone,
            recipes,
            out=out,
            captions=base,
            template=template,
            descriptions=descriptions,
            teacher=teacher,
            seed=seed,
            cache=not no_cache,
            execution=Execution(batch_size, workers, compile),
            fresh=fresh,
            progress=lambda ready, total: bar.update(task, completed=ready, total=total),
            spread=spread,
        )
    if not any(len(result.scored) for result in done.results):  # there is no table to print
        fail(done.results, images)
    found = lines(done.results, draws=draws)
    for line in found:
        for summary in line.summaries:
            summary.save()
    typer.echo(render(comparison(found), format.value))
    for line_ in tell(done):
        typer.echo(line_, err=True)
    fail(done.results, images)


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT…", help="Folders that `mltta eval` wrote, or that hold some."),
    ],
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="How to print.")] = TableFormat.text,
    html: Annotated[
        Path | None, typer.Option(help="Also write one self-contained page with plots here.")
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Bootstrap samples behind the intervals.")] = 1000,
) -> None:
    from mltta.evaluation.comparison import by_dataset, comparison, lines
    from mltta.evaluation.results import find_results
    from mltta.evaluation.results_page import comparison_page
    from mltta.tables.render import render

    given = find_results(results)
    whole = [result for result in given if result.complete and len(result.scored)]
    for result in given:
        if whole and result not in whole:
            typer.echo(
                f"left out: {result.folder} is not finished; run its `mltta eval` command again", err=True
            )
    groups = [lines(group, draws=draws) for group in by_dataset(whole or given)]
    tables = [comparison(found) for found in groups]
    if format is TableFormat.json and len(tables) > 1:
        typer.echo("[" + ",\n".join(render(table, "json").strip() for table in tables) + "]")
    else:
        for table in tables:
            typer.echo(render(table, format.value))
    if html is not None:
        options.write_text(html, comparison_page(groups))
        typer.echo(f"wrote {html}", err=True)


def tell(done: Evaluation) -> list[str]:
    """Where the time went and what was not done again, in sentences."""
    counts = done.counts
    said = [
        f"{counts.encoded:,} images encoded in {counts.encode_seconds:.1f} s, {counts.cached:,} read from the cache; "
        f"{done.seconds:.1f} s in all"
    ]
    said += [f"  {name}: {seconds:.1f} s beyond encoding" for name, seconds in done.adapt_seconds.items()]
    said += [f"  {name}: {n:,} images were done before" for name, n in done.resumed.items() if n]
    return said + [
        f"results in {folder}" for folder in dict.fromkeys(str(r.folder.parent) for r in done.results)
    ]


def fail(results: list[Result], dataset: Dataset) -> None:
    """Name the images that could not be read, and leave with code 1 if there are any."""
    failed = {id: why for result in results for id, why in result.failed.items()}
    if not failed:
        return
    typer.echo(f"{len(failed):,} of {len(dataset):,} images could not be read:", err=True)
    for id, why in list(failed.items())[:20]:
        typer.echo(f"  {id}: {why}", err=True)
    if len(failed) > 20:
        typer.echo(f"  and {len(failed) - 20:,} more, in summary.json", err=True)
    raise typer.Exit(1)
