"""`mltta reproduce`: the paper's tables and figures on the data and weights there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from mltta.cli import groups
from mltta.cli.options import TableFormat, option, write_text
from mltta.cli.places import PlaceOptions, places_of
from mltta.cli.progress import counted
from mltta.cli.settings import settings_of
from mltta.errors import ConfigError, MlttaError
from mltta.storage import atomic

if TYPE_CHECKING:
    from mltta.reproduction.paper import Setting
    from mltta.reproduction.rerun import Bench, Reproduction
    from mltta.tables.cells import Table
    from mltta.tables.page import Plot, Section
    from mltta.tables.svg import Drawing

#: how a table is written, and the ending of its file
FORMATS: dict[TableFormat, str] = {"markdown": "md", "csv": "csv", "json": "json", "latex": "tex"}
FIGURES = ("1a", "1b", "2", "3")
#: where the paper draws them, and the methods whose single images are drawn
DRAWN, SHOWN = ("ViT-B/16", "coco2014"), ("CLIP", "TPT", "DiffTPT", "RLCF", "ML-TTA")


class ReproduceOptions(PlaceOptions, panel=None):
    """Reproduce the tables and figures of the ML-TTA paper on your data and weights.

    **Examples**

    - `mltta reproduce --plan --model RN50 --model ViT-B/16 --data coco2014=coco --captions coco=coco.txt`
    - `mltta reproduce --table all --model ViT-B/16 --weights ViT-B-16.pt --allow-torchscript --data coco2014=coco`
    - `mltta reproduce --table 5 --figure 3 --model mini --data voc2012=VOCdevkit`
    - `mltta reproduce --table 1 --model RN50 --data voc2007=VOCdevkit --preset released --set rlcf.steps=1`
    - `mltta reproduce --frontier --model mini --data voc2012=VOCdevkit`
    - `mltta reproduce` without data prints the paper's numbers only.

    `--plan` shows what a run needs, checks what is there, and runs nothing. `--table all` runs all tables and figures:
    the paper's cells for its models and images, and everything for others. Runs are resumable: rerun the command.

    The paper's numbers and ours are shown side by side; cells that were not run stay empty. Models or images that the
    paper does not use (`mini`, a part of a dataset) get tables of their own. Below each table are its conditions, and
    what is not as in the paper. Everything is written to `--out`: each table as Markdown, CSV, JSON and LaTeX, each
    figure as SVG and PNG, and one self-contained page, report.html. Views are encoded once for all tables and cached.

    `--frontier` measures all methods instead: scores, cost in forward passes, milliseconds and memory. Published
    figures and their protocols are listed next to them.
    """

    table: tuple[Literal["all", "1", "2", "3", "4", "5", "6", "7"], ...] = option(
        (), "1 to 7, or all tables and figures (default: 1 to 7). May be repeated.", "-t"
    )
    figure: tuple[Literal["all", "1a", "1b", "2", "3"], ...] = option(
        (), "1a, 1b, 2, 3 or all. Ours only: the paper prints no numbers for its figures. May be repeated."
    )
    plan: bool = option(False, "Show what is needed, what is there and what is missing; run nothing.")
    frontier: bool = option(False, "Measure accuracy and cost of every method.")
    method: tuple[str, ...] = option((), "With --frontier: only these methods.")
    teacher: str | None = option(
        "self", "Second model for rlcf; self: the model itself.", panel=groups.METHOD
    )
    orders: int = option(3, "Online methods: number of image orders.", min=1, panel=groups.METHOD)
    out: Path = option(Path("reproduction"), "Folder for the report and the results.", "-o")
    format: TableFormat = option("text", "Output format.", "-f")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The tables that are asked for."""
        if "all" in self.table or not (self.table or self.figure or self.frontier):
            return tuple(range(1, 8))
        return tuple(sorted({int(one) for one in self.table}))

    def figures(self, place: Bench) -> list[str]:
        """The figures of a place: under "all", of a place of the paper only if the paper draws it."""
        own = not place.printed or (place.model, place.key) == DRAWN
        every = own and "all" in (*self.table, *self.figure)
        return [one for one in FIGURES if every or one in self.figure]


def reproduce(options: ReproduceOptions) -> None:
    from mltta.cli.needs import print_plan
    from mltta.reproduction.filled import paper_tables
    from mltta.reproduction.paper import claims
    from mltta.reproduction.rerun import TITLES, Reproduction
    from mltta.tables.page import Section, html_page

    if options.plan:
        return print_plan(options)
    if options.frontier and (options.set or options.settings or options.preset != "paper"):
        raise ConfigError("--frontier uses every method's own settings: remove --set and --preset")
    unfit: dict[str, str] = {}
    places = list(places_of(options, unfit))
    teacher = "self" if options.teacher in (None, "self") else groups.open_backbone(options, options.teacher)
    changed = settings_of(list(TITLES), options.set, options.settings)
    words = {name.replace("_", " "): word for name, word in options.wording(options.preset).items()}
    how = teacher, options.orders, options.preset, changed, words
    done = Reproduction(options.out / "results", *how, skipped=unfit)
    for place in places:
        with run_options(options, place) as done.options:
            done.measure(place, settings_at(options, place))
    sections = list(frontier_sections(options, places, teacher)) if options.frontier else []
    for number in options.numbers:
        made = paper_tables(number, places, done, "all" not in options.table)
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
    typer.echo(f"wrote {options.out / 'report.html'} and each table and figure beside it", err=True)


@contextmanager
def run_options(options: ReproduceOptions, place: Bench) -> Iterator[dict[str, Any]]:
    """How a place is measured, below a bar."""
    asked = {**options.chosen("execution", "seed"), "descriptions": options.descriptions}
    if not options.frontier:
        asked["template"] = options.template
    with counted(place.title, len(place.dataset)) as moved:
        yield asked | {"progress": moved}


def settings_at(options: ReproduceOptions, place: Bench) -> list[Setting]:
    """What the tables and figures need measured at a place."""
    from mltta.reproduction import filled
    from mltta.reproduction.paper import Setting
    from mltta.reproduction.rerun import TITLES

    figures, every = options.figures(place), "all" not in options.table
    found = [one for number in options.numbers for one in filled.settings_at(place, number, every)]
    found += filled.view_settings() if "3" in figures else []
    return found + [Setting.of("", method, "") for method in (TITLES if {"1a", "1b"} & set(figures) else ())]


def figure_sections(options: ReproduceOptions, place: Bench, done: Reproduction) -> Iterator[Section]:
    """The figures of a place, which are written too, and its results side by side."""
    from mltta.evaluation.comparison import comparison_section, example_section, gain_by_label_count
    from mltta.reproduction.filled import view_figure
    from mltta.reproduction.label_change import change_figure
    from mltta.reproduction.overview import overview
    from mltta.reproduction.paper import Setting
    from mltta.tables.page import Section
    from mltta.tables.svg import Drawing

    end, figures = f"{place.model.replace('/', '-')}-{place.key}", options.figures(place)
    whole = done.lines(place)
    single = [line for line in whole if line.title in SHOWN]

    def section(figure: str, what: str, plot: Drawing, *tables: Table) -> Section:
        for table in tables:
            show(f"figure-{figure}-{end}", table, options)
        drawn = draw({f"figure-{figure}-{end}": plot}, options)
        return Section(f"Figure {figure}: {what}, {place.title}", tables=tables, figures=drawn)

    if "1a" in figures and len(whole) > 1:
        yield section("1a", "images with two labels or more", *change_figure(whole, place.title))
        examples = example_section(single, place.dataset)
        each = enumerate(examples.figures, start=1)
        draw({f"figure-1a-{end}-{i}": one.svg for i, one in each if isinstance(one.svg, Drawing)}, options)
        yield examples
    if "1b" in figures and len(single) > 1:
        yield section("1b", "gain by label count", gain_by_label_count(single))
    if "2" in figures:
        try:
            recipe = done.recipe(place, Setting.of("", "ml-tta", ""))
            yield section("2", "one image", overview(place, recipe, done.options))
        except MlttaError as error:
            done.skipped[f"Figure 2, {place.title}"] = str(error)
    if "3" in figures:
        yield section("3", "number of views", *view_figure(place, done))
    if whole:
        yield comparison_section(whole)


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


def draw(plots: Mapping[str, Drawing], options: ReproduceOptions) -> tuple[Plot, ...]:
    """Write plots to files of their names, as SVG and PNG, and give them as a page takes them."""
    from mltta.tables.page import Plot

    for stem, plot in plots.items():
        write_text(options.out / f"{stem}.svg", plot)
        with atomic.writing(file := options.out / f"{stem}.png"):
            atomic.write(file, plot.png(), durable=False)
    return tuple(map(Plot, plots.values()))
