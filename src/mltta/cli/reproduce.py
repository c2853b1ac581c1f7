"""`mltta reproduce`: the paper's tables and figures on the data and weights there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from mltta.cli.eval import cut
from mltta.cli.groups import METHOD, DatasetRunOptions, DeviceOptions, open_backbone
from mltta.cli.options import TableFormat, option, write_text
from mltta.cli.progress import counted
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.data import Dataset
    from mltta.model.backbone import Backbone
    from mltta.model.learned_prompts import AnyPrompts
    from mltta.reproduction.rerun import Bench, Reproduction
    from mltta.tables.cells import Table
    from mltta.tables.page import Plot, Section

#: how a table is written, and the ending of its file
FORMATS: dict[TableFormat, str] = {"markdown": "md", "csv": "csv", "json": "json", "latex": "tex"}
#: the methods that figures show
SHOWN = ("clip", "tpt", "rlcf", "ml-tta")


class ReproduceOptions(DatasetRunOptions, DeviceOptions):
    """Reproduce the tables and figures of the ML-TTA paper on your data and weights.

    **Examples**

    - `mltta reproduce --table 1 --model RN50 --model ViT-B/16 --data voc2007=VOCdevkit --data coco2014=coco`
    - `mltta reproduce --table 5 --table 6 --table 7 --figure views --model mini --data voc2012=VOCdevkit`
    - `mltta reproduce --table 2 --model mini --prompts prompts.safetensors --data voc2012=VOCdevkit`
    - `mltta reproduce --frontier --model mini --data voc2012=VOCdevkit`
    - `mltta reproduce` without data prints the paper's numbers only.

    `--frontier` measures all methods instead: scores, cost in views, milliseconds and memory, next to published
    figures and their protocols.

    The paper's numbers and ours are shown side by side; cells that were not run stay empty. Models or images that the
    paper does not use (`mini`, a part of a dataset) get tables of their own. Everything is written to `--out`: each
    table as Markdown, CSV, JSON and LaTeX, and one self-contained page, report.html. Views are encoded once for all
    tables and cached, so a second table needs no encoding.
    """

    table: tuple[int, ...] = option((), "1 to 7 (default: all). May be repeated.", "-t", min=1, max=7)
    figure: tuple[Literal["views", "label-count", "logits"], ...] = option(
        (), "Ours only: the paper's figures print no numbers."
    )
    frontier: bool = option(False, "Measure what every method scores and costs.")
    method: tuple[str, ...] = option((), "With --frontier: only these methods.")
    data: tuple[str, ...] = option((), "A dataset, e.g. voc2012=VOCdevkit.", "-d", metavar="NAME[:SPLIT]=DIR")
    model: tuple[str, ...] = option((), "One or several (default: mini).", "-m")
    prompts: tuple[str, ...] = option(
        (), "Learned prompts for Table 2: CoOp's, MaPLe's, or both.", metavar="FILE"
    )
    teacher: str = option("self", "Second model for rlcf; self: the model itself.", panel=METHOD)
    orders: int = option(3, "Online methods: number of image orders.", min=1, panel=METHOD)
    seed: int = option(0, "Random seed for the views.", panel=METHOD)
    out: Path = option(Path("reproduction"), "Folder for the report and the results.", "-o")
    format: TableFormat = option("text", "Output format.", "-f")


def reproduce(options: ReproduceOptions) -> None:
    from mltta.reproduction.paper import claims
    from mltta.reproduction.rerun import Reproduction, paper_tables
    from mltta.tables.page import Section, html_page

    numbers = options.table or (() if options.figure or options.frontier else tuple(range(1, 8)))
    unfit: dict[str, str] = {}
    places = list(places_of(options, unfit))
    teacher = "self" if options.teacher == "self" else open_backbone(options, options.teacher)
    done = Reproduction(options.out / "results", teacher, options.orders, skipped=unfit)
    for place in places:
        with run_options(options, place) as done.options:
            done.measure(place, settings(options, numbers))
    sections = list(frontier_sections(options, places, teacher)) if options.frontier else []
    for number in numbers:
        made = paper_tables(number, places, done)
        sections.append(Section(f"Table {number}", tables=tuple(made)))
        for stem, one in zip((f"table-{number}", f"table-{number}-ours"), made, strict=False):
            show(stem, one, options)
    sections += [section for place in places for section in figure_sections(options, place, done)]
    said = [f"{claim.claim} ({claim.where}; the paper's own numbers: {claim.in_paper})" for claim in claims()]
    sections.append(Section("What the paper claims in its text", notes=tuple(said)))
    if notes := tuple(f"{what}: {why}" for what, why in done.skipped.items()):
        typer.echo("\n".join(f"not run: {note}" for note in notes), err=True)
        sections.append(Section("Not run", notes=notes))
    write_text(options.out / "report.html", html_page("Tables and figures of ML-TTA", sections))
    typer.echo(f"wrote {options.out / 'report.html'} and each table beside it", err=True)


@contextmanager
def run_options(options: ReproduceOptions, place: Bench) -> Iterator[dict[str, Any]]:
    """How a place is measured, below a bar."""
    with counted(place.title, len(place.dataset)) as moved:
        yield {"execution": options.execution, "seed": options.seed, "progress": moved}


def places_of(options: ReproduceOptions, unfit: dict[str, str]) -> Iterator[Bench]:
    """Every model on every dataset, with the learned prompts that fit; what does not fit goes into ``unfit``."""
    from mltta.model.maple import with_prompts
    from mltta.reproduction.rerun import Bench

    learned, seen = load_several(options.prompts), set()
    for name in options.model or (("mini",) if options.data else ()):
        backbone = open_backbone(options, name)
        prompted: dict[str, Backbone] = {}
        for kind, found in learned.items():
            try:
                prompted[kind] = with_prompts(backbone, found)
            except ConfigError as error:
                unfit[f"{found.title} prompts on {name}"] = str(error)
        for given in options.data:
            key, dataset, own = dataset_of(given, options)
            place = Bench(paper_model(name), key, backbone, dataset, own, prompted)
            if (place.model, place.key) in seen:
                raise ConfigError(f"--data {given}: {place.key} is given twice")
            seen.add((place.model, place.key))
            yield place


def dataset_of(given: str, options: ReproduceOptions) -> tuple[str, Dataset, bool]:
    """A dataset as it was named: its key, its images, and whether they are those of the paper."""
    from mltta.data import named_dataset

    dataset = named_dataset(given)
    typer.echo(dataset.summary(), err=True)
    name, _, split = given.partition("=")[0].partition(":")
    key = "".join(filter(str.isalnum, name.lower()))
    return key, cut(dataset, options, options.seed), not split and options.corrupt is None


def settings(options: ReproduceOptions, numbers: tuple[int, ...]) -> list[Any]:
    """What the tables and figures need measured at each place."""
    from mltta.reproduction.paper import Setting
    from mltta.reproduction.rerun import settings_of, view_settings

    found = [setting for number in numbers for setting in settings_of(number)]
    found += view_settings() if "views" in options.figure else []
    plotted = {"label-count", "logits"}.intersection(options.figure)
    return found + [Setting.of("", method, "") for method in (SHOWN if plotted else ())]


def figure_sections(options: ReproduceOptions, place: Bench, done: Reproduction) -> Iterator[Section]:
    """The figures of a place, which are written too, and its results side by side."""
    from mltta.evaluation.comparison import comparison_section, example_section, gain_by_label_count
    from mltta.reproduction.rerun import view_figure
    from mltta.tables.page import Section

    end = f"{place.model.replace('/', '-')}-{place.key}"
    if "views" in options.figure:
        plot, numbers = view_figure(place, done)
        show(f"views-{end}", numbers, options)
        figures = draw({f"views-{end}": plot}, options)
        yield Section(f"Number of views, {place.title}", tables=(numbers,), figures=figures)
    if "label-count" in options.figure:
        figures = draw({f"label-count-{end}": gain_by_label_count(done.lines(place, SHOWN))}, options)
        yield Section(f"Gain by label count, {place.title}", figures=figures)
    if whole := done.lines(place):
        yield comparison_section(whole)
    if "logits" in options.figure:
        yield example_section(whole, place.dataset)


def frontier_sections(options: ReproduceOptions, places: list[Bench], teacher: Any) -> Iterator[Section]:
    """Every method at every place, as tables and plots, and what was published."""
    from mltta.reproduction import frontier
    from mltta.tables.page import Section

    wanted, how = frontier.entries(options.method), {"teacher": teacher, "orders": options.orders}
    for place in places:
        with run_options(options, place) as run:
            found = frontier.measure(place, wanted, options.out / "results", **how, **run)
        table, stem = frontier.frontier_table(found), f"frontier-{place.model}-{place.key}".replace("/", "-")
        show(stem, table, options)
        plots = {f"{stem}-{scoring}": frontier.frontier_plot(found, scoring) for scoring in frontier.MAP}
        yield Section(f"The frontier, {place.title}", tables=(table,), figures=draw(plots, options))
    table = frontier.published_table()
    show("frontier-published", table, options)
    yield Section("What was published", tables=(table,))


def show(stem: str, table: Table, options: ReproduceOptions) -> None:
    """Print a table and write it in every format."""
    from mltta.tables.render import render

    typer.echo(render(table, options.format))
    for kind, ending in FORMATS.items():
        write_text(options.out / f"{stem}.{ending}", render(table, kind))


def draw(plots: dict[str, str], options: ReproduceOptions) -> tuple[Plot, ...]:
    """Write plots to files of their names, and give them as a page takes them."""
    from mltta.tables.page import Plot

    for stem, plot in plots.items():
        write_text(options.out / f"{stem}.svg", plot)
    return tuple(map(Plot, plots.values()))


def load_several(files: Iterable[str]) -> dict[str, AnyPrompts]:
    """Learned prompts by their kind; a table has room for one of each."""
    from mltta.model.learned_prompts import load_prompts

    found: dict[str, AnyPrompts] = {}
    for file in files:
        one = load_prompts(file)
        if found.setdefault(one.kind, one) is not one:
            raise ConfigError(f"--prompts {file}: {one.title} prompts are given twice")
    return found


def paper_model(name: str) -> str:
    """A model as the paper calls it: ViT-B-16:openai is ViT-B/16; any other keeps its name."""
    from mltta.model.names import PAPER_MODELS

    plain = name.removesuffix(":openai")
    return next((paper for paper, own in PAPER_MODELS.items() if plain in (paper, own)), plain)
