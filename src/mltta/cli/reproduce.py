"""`mltta reproduce`: the paper's tables and figures on the data and weights there are."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mltta.cli import options
from mltta.cli import settings as written
from mltta.cli.progress import bar_on_terminal
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.model.learned_prompts import AnyPrompts
    from mltta.reproduction.rerun import Bench
    from mltta.tables.cells import Table
    from mltta.tables.page import Section

HELP = """The paper's tables and figures, run on your data and weights.

**Examples**

`mltta reproduce --table 1 --model RN50 --model ViT-B/16 --data voc2007=VOCdevkit --data coco2014=coco`

`mltta reproduce --table 5 --table 6 --table 7 --figure views --model mini --data voc2012=VOCdevkit`

`mltta reproduce --table 2 --model mini --prompts prompts.safetensors --data voc2012=VOCdevkit`

`mltta reproduce --frontier --model mini --data voc2012=VOCdevkit`

`mltta reproduce` without data prints the paper's numbers alone.

`--frontier` measures every method there is instead: all scorings, the price in views, milliseconds, memory, and beside
them what was published, with its protocol in words.

The paper's number and ours stand side by side; cells that were not run stay empty. Models or images that the paper
does not have (`mini`, a part of a dataset) get tables of their own. Everything is written to `--out`: each table as
Markdown, CSV, JSON and LaTeX, and one self-contained page, report.html. The views of an image are encoded once for
all tables and kept, so a second table costs no encoding.
"""


#: how a table is written, and the ending of its file
FORMATS: tuple[tuple[Literal["markdown", "csv", "json", "latex"], str], ...] = (
    ("markdown", "md"),
    ("csv", "csv"),
    ("json", "json"),
    ("latex", "tex"),
)


class Figure(str, Enum):
    views = "views"
    label_count = "label-count"
    logits = "logits"


def reproduce(
    table: Annotated[
        list[int] | None, typer.Option("--table", "-t", min=1, max=7, help="1 to 7; all of them by default.")
    ] = None,
    figure: Annotated[
        list[Figure] | None, typer.Option("--figure", help="Ours only: the paper's figures print no numbers.")
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Every method there is, what it scores and what it costs.")
    ] = False,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="With --frontier: these methods only.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", "-d", metavar="NAME[:SPLIT]=DIR", help="A dataset, e.g. voc2012=VOCdevkit."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="One or several; mini when none is given.")
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Learned prompts for Table 2: CoOp's, MaPLe's, or both."),
    ] = None,
    teacher: Annotated[str, typer.Option(help="Second model for rlcf; self is the model itself.")] = "self",
    first: Annotated[int | None, typer.Option(min=1, help="Only the first images of each dataset.")] = None,
    corruption: Annotated[
        str | None,
        typer.Option("--corrupt", metavar="KIND[:SEVERITY]", help="Worsen the images, as `mltta eval` does."),
    ] = None,
    orders: Annotated[int, typer.Option(min=1, help="Orders of the images for online methods.")] = 3,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and the results.")] = Path(
        "reproduction"
    ),
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images at once.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode, in place of threads.")
    ] = None,
    format: Annotated[
        options.TableFormat, typer.Option("--format", "-f", help="How to print.")
    ] = options.TableFormat.text,
    device: options.Device = "auto",
    seed: options.Seed = 0,
) -> None:
    from mltta.data import load_dataset
    from mltta.data.corrupt import corrupt
    from mltta.evaluation.results_page import comparison_section, example_section, gain_by_label_count
    from mltta.model.maple import with_prompts
    from mltta.reproduction.paper import Setting, claims
    from mltta.reproduction.paper_tables import paper_tables, view_figure
    from mltta.reproduction.rerun import Bench, Reproduction, settings_of, view_settings
    from mltta.session.execution import Execution
    from mltta.tables.page import Plot, Section, html_page

    figures = {one.value for one in figure or []}
    numbers = table or ([] if figures or frontier else list(range(1, 8)))
    learned = load_several(prompts or [])
    unfit: dict[str, str] = {}
    places: list[Bench] = []
    for name in model or (["mini"] if data else []):
        backbone = options.open_backbone(name, None, device)
        prompted = {}
        for kind, found in learned.items():
            try:
                prompted[kind] = with_prompts(backbone, found)
            except ConfigError as error:
                unfit[f"{found.title} prompts on {name}"] = str(error)
        for given in data or []:
            what, equals, folder = given.partition("=")
            if not equals:
                raise ConfigError(
                    f"--data {given}: give a dataset's name and its folder, as voc2012=VOCdevkit"
                )
            dataset_name, _, split = what.partition(":")
            dataset = load_dataset(dataset_name, folder, split=split or None)
            typer.echo(dataset.summary(), err=True)
            if first is not None:
                dataset = dataset.select(slice(first))
            if corruption is not None:
                kind, _, severity = corruption.partition(":")
                dataset = corrupt(dataset, kind, written.whole_number(severity or "3", "--corrupt"), seed)
            own = not split and corruption is None
            plain = "".join(c for c in dataset_name.lower() if c.isalnum())
            place = Bench(paper_model(name), plain, backbone, dataset, own, prompted)
            if any((place.model, place.key) == (other.model, other.key) for other in places):
                raise ConfigError(f"--data {given}: {place.key} is given twice")
            places.append(place)
    judge = teacher if teacher == "self" else options.open_backbone(teacher, None, device)
    done = Reproduction(out / "results", judge, orders, skipped=unfit)
    for place in places:
        settings = [setting for number in numbers for setting in settings_of(number)]
        settings += view_settings() if "views" in figures else []
        if figures & {"label-count", "logits"}:
            settings += [Setting.of("", method, "") for method in ("clip", "tpt", "rlcf", "ml-tta")]
        with bar_on_terminal() as bar:
            task = bar.add_task(place.title, total=len(place.dataset))
            done.options = {
                "execution": Execution(batch_size, workers),
                "seed": seed,
                "progress": lambda ready, total, bar=bar, task=task: bar.update(
                    task, completed=ready, total=total
                ),
            }
            done.measure(place, settings)
    sections = []
    if frontier:
        say = partial(show, out=out, format=format)
        run = {"execution": Execution(batch_size, workers), "seed": seed}
        sections = frontier_sections(
            places, method or [], say, teacher=judge, orders=orders, out=out / "results", **run
        )
    for number in numbers:
        made = paper_tables(number, places, done)
        sections.append(Section(f"Table {number}", tables=tuple(made)))
        for stem, one in zip((f"table-{number}", f"table-{number}-ours"), made, strict=False):
            show(stem, one, out, format)
    for place in places:
        if "views" in figures:
            plot, numbers_ = view_figure(place, done)
            stem = f"views-{place.model.replace('/', '-')}-{place.key}"
            show(stem, numbers_, out, format)
            options.write_text(out / f"{stem}.svg", plot)
            sections.append(
                Section(f"Number of views, {place.title}", tables=(numbers_,), figures=(Plot(plot),))
            )
        if "label-count" in figures:
            plot = gain_by_label_count(done.lines(place, ("clip", "tpt", "rlcf", "ml-tta")))
            options.write_text(out / f"label-count-{place.model.replace('/', '-')}-{place.key}.svg", plot)
            sections.append(Section(f"Gain by label count, {place.title}", figures=(Plot(plot),)))
        whole = done.lines(place)
        if whole:
            sections.append(comparison_section(whole))
        if "logits" in figures:
            sections.append(example_section(whole, place.dataset))
    said = tuple(
        f"{claim.claim} ({claim.where}; the paper's own numbers: {claim.in_paper})" for claim in claims()
    )
    sections.append(Section("What the paper claims in its text", notes=said))
    for what, why in done.skipped.items():
        typer.echo(f"not run: {what}: {why}", err=True)
    if done.skipped:
        notes = tuple(f"{what}: {why}" for what, why in done.skipped.items())
        sections.append(Section("Not run", notes=notes))
    options.write_text(out / "report.html", html_page("Tables and figures of ML-TTA", sections))
    typer.echo(f"wrote {out / 'report.html'} and each table beside it", err=True)


def show(stem: str, table: Table, out: Path, format: options.TableFormat) -> None:
    """Print a table and write it in every format."""
    from mltta.tables.render import render

    typer.echo(render(table, format.value))
    for kind, ending in FORMATS:
        options.write_text(out / f"{stem}.{ending}", render(table, kind))


def frontier_sections(
    places: list[Bench], methods: list[str], say: Callable[[str, Table], None], **run: Any
) -> list[Section]:
    """Every method at every place, as tables and plots, and what was published."""
    from mltta.reproduction import frontier
    from mltta.tables.page import Plot, Section

    sections = []
    for place in places:
        with bar_on_terminal() as bar:
            task = bar.add_task(place.title, total=len(place.dataset))
            found = frontier.measure(
                place,
                frontier.entries(methods),
                progress=lambda ready, total, bar=bar, task=task: bar.update(
                    task, completed=ready, total=total
                ),
                **run,
            )
        table, stem = frontier.frontier_table(found), f"frontier-{place.model}-{place.key}".replace("/", "-")
        say(stem, table)
        plots = []
        for scoring in frontier.MAP:
            plots.append(Plot(frontier.frontier_plot(found, scoring)))
            options.write_text(run["out"].parent / f"{stem}-{scoring}.svg", plots[-1].svg)
        sections.append(Section(f"The frontier, {place.title}", tables=(table,), figures=tuple(plots)))
    table = frontier.published_table()
    say("frontier-published", table)
    return [*sections, Section("What was published", tables=(table,))]


def load_several(files: list[str]) -> dict[str, AnyPrompts]:
    """Learned prompts by their kind; a table has room for one of each."""
    from mltta.model.learned_prompts import load_prompts

    found: dict[str, AnyPrompts] = {}
    for file in files:
        one = load_prompts(file)
        if one.kind in found:
            raise ConfigError(f"--prompts {file}: {one.title} prompts are given twice")
        found[one.kind] = one
    return found


def paper_model(name: str) -> str:
    """A model as the paper calls it: ViT-B-16:openai is ViT-B/16; any other keeps its name."""
    from mltta.model.names import PAPER_MODELS

    plain = name.removesuffix(":openai")
    return next((paper for paper, own in PAPER_MODELS.items() if plain in (paper, own)), plain)
