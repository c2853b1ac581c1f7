"""Figures for reports, each a function from plain numbers to an SVG string."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from PIL import Image

from mltta.errors import ConfigError
from mltta.tables.svg import MARKERS, PALETTE, Drawing, colours, drawing, to_svg

Numbers = Sequence[float | None]

_WIDTH = 7.0  # inches; a narrower page scales it down
_TRUE, _OTHER = "#0072B2", "#A6A6A6"
_BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7}


def lines(title: str, x: Sequence[float], series: Mapping[str, Numbers], xlabel: str, ylabel: str) -> Drawing:
    """Line plot over x values that are powers of two, one line per method; None is a gap."""
    _same_lengths(title, series, len(x), "x")
    with _chart(title, 4.0, xlabel, ylabel, series) as (axes, colour, made):
        for index, (name, values) in enumerate(series.items()):
            style: dict[str, Any] = {"color": colour[name], "marker": MARKERS[index % len(MARKERS)]}
            axes.plot(x, _numbers(values), label=name, markersize=5, linewidth=1.8, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(x), [f"{value:g}" for value in x])
        axes.xaxis.set_minor_locator(NullLocator())
    return made[0]


def bars_by_group(title: str, groups: Sequence[str], series: Mapping[str, Numbers], ylabel: str) -> Drawing:
    """Grouped bars, such as the gain over CLIP by number of labels."""
    _same_lengths(title, series, len(groups), "groups")
    width = 0.8 / max(len(series), 1)
    letters = max(5, int(72 / max(len(groups), 1)))  # characters that fit below a group
    with _chart(title, 4.0, "", ylabel, series) as (axes, colour, made):
        for index, (name, values) in enumerate(series.items()):
            at = [group - 0.4 + (index + 0.5) * width for group in range(len(groups))]
            hatch = "///" if index >= len(PALETTE) else None  # when colours repeat
            bars = axes.bar(at, _numbers(values), width * 0.92, label=name, color=colour[name], hatch=hatch)
            if width * _WIDTH / len(groups) > 0.28:  # enough space for a number above the bar
                texts = ["" if value is None else f"{value:.1f}".replace("-", "−") for value in values]
                axes.bar_label(bars, texts, fontsize=7, padding=1)
        axes.axhline(0, color=axes.spines["bottom"].get_edgecolor(), linewidth=0.8)
        axes.set_xticks(range(len(groups)), [fill(group, letters) for group in groups])
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.08)
    return made[0]


def pareto(title: str, points: Mapping[str, tuple[float, float]], xlabel: str, ylabel: str) -> Drawing:
    """Named points with their cost; a line connects the Pareto-optimal ones, whose names are bold."""
    front: list[str] = []
    for name in sorted(points, key=lambda name: (points[name][0], -points[name][1])):
        if not front or points[name][1] > points[front[-1]][1]:
            front.append(name)
    apart = _apart(points)
    with _chart(title, 5.4, xlabel, ylabel) as (axes, _, made):
        for name, (x, y) in points.items():
            on = name in front
            axes.plot([x], [y], "o", color=_TRUE if on else _OTHER, markersize=6 if on else 4.5, zorder=3)
            style = {**_BESIDE, "fontsize": 6.5, "fontweight": "bold" if on else "normal"}
            axes.annotate(_short(name, 40), (x, apart[name]), (5, 0), **style)
        steps = [points[name] for name in front]
        axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color=_TRUE, linewidth=1.2)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.margins(x=0.16, y=0.08)
    return made[0]


def per_class(
    title: str, labels: Sequence[str], series: Mapping[str, Numbers], xlabel: str = "average precision"
) -> Drawing:
    """One line per label with a dot per series, sorted by the first series; height grows with the labels."""
    _same_lengths(title, series, len(labels), "labels")
    first = next(iter(series.values()), ())
    keys = [-math.inf if value is None else value for value in first] or [0.0] * len(labels)
    order = sorted(range(len(labels)), key=lambda index: (keys[index], labels[index]))
    with _chart(title, 1.4 + 0.185 * len(labels), xlabel, "", series) as (axes, colour, made):
        for row, index in enumerate(order):
            known = [value for values in series.values() if (value := values[index]) is not None]
            if known:
                axes.hlines(row, min(known), max(known), color="#888888", alpha=0.6, linewidth=1.4)
        for position, (name, values) in enumerate(series.items()):
            marker = MARKERS[position % len(MARKERS)]
            x = _numbers([values[index] for index in order])
            axes.plot(x, range(len(order)), marker, label=name, color=colour[name], markersize=5.5, alpha=0.9)
        axes.set_yticks(range(len(order)), [_short(labels[index], 36) for index in order], fontsize=8)
        axes.set_ylim(-0.7, len(order) - 0.3)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", top=len(order) > 30, labeltop=len(order) > 30)
    return made[0]


def label_logits(
    title: str,
    image: Image.Image,
    labels: Sequence[str],
    scores: Mapping[str, Sequence[float]],
    truth: Collection[str],
    top: int = 8,
    xlabel: str = "logit",
) -> Drawing:
    """An image and the scores of each method for the same labels: the true ones and the first method's top ones.

    The first method is the reference: other panels mark where its bar ended, and print the change.
    """
    _same_lengths(title, scores, len(labels), "labels")
    if not scores or not labels:
        raise ConfigError(f"The figure {title!r} needs at least one method and one label.")
    start = next(iter(scores.values()))
    ranked = sorted(range(len(labels)), key=lambda index: -start[index])
    true = [index for index in ranked if labels[index] in truth]
    others = [index for index in ranked if labels[index] not in truth][: max(top - len(true), 0)]
    shown = sorted({*true, *others}, key=lambda index: start[index])
    with drawing():
        size = 3.2 + 2.1 * len(scores), max(3.4, 1.3 + 0.26 * len(shown))
        figure = Figure(figsize=size, layout="constrained")
        frame, *bars = figure.subplots(1, len(scores) + 1, width_ratios=[1.5, *[1.4] * len(scores)])
        frame.set_axis_off()
        limits = _limits([values[index] for values in scores.values() for index in shown])
        for position, (axes, (name, values)) in enumerate(zip(bars, scores.items(), strict=True)):
            _panel(axes, [values[i] for i in shown], [labels[i] in truth for i in shown], limits)
            names = ["" if position else _short(labels[i], 22) for i in shown]
            axes.set_yticks(range(len(shown)), names, fontsize=8)
            for text, index in zip(axes.get_yticklabels(), shown, strict=True):
                text.set_fontweight("bold" if labels[index] in truth else "normal")
            ink = axes.spines["bottom"].get_edgecolor()
            for row, index in enumerate(shown if position else ()):  # the reference's bar end, and the change
                old, value = start[index], values[index]
                axes.plot([old, old], [row - 0.36, row + 0.36], color=ink, linewidth=1.3)
                change = f"{value - old:+.2f}".replace("-", "−")
                axes.annotate(change, (max(value, old), row), (3, 0), **_BESIDE)
            axes.set_title(fill(name, 22))
            axes.set_xlabel(xlabel)
        figure.suptitle(fill(title, 30 * (len(scores) + 1)))
        kinds = {"true label": _TRUE, "other label": _OTHER}
        keys: list[Artist] = [Patch(color=colour, label=kind) for kind, colour in kinds.items()]
        if len(scores) > 1:
            was = f"{next(iter(scores))} was here"
            keys.append(Line2D([], [], color=ink, marker="|", markersize=9, linestyle="", label=was))
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))
        return to_svg(figure, title, {frame: image})


def _panel(axes: Axes, values: Sequence[float], true: Sequence[bool], limits: tuple[float, float]) -> None:
    colour, low = [_TRUE if flag else _OTHER for flag in true], limits[0]
    axes.barh(range(len(values)), [value - low for value in values], 0.72, left=low, color=colour)
    axes.set_xlim(limits)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_ylim(-0.6, len(values) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Axis limits: from zero for percentages; otherwise from below the minimum, because logits have no zero."""
    low, high = min(values), max(values)
    start = 0.0 if low >= 0 and high <= 1 else low - 0.15 * (high - low or 1)
    return start, high + 0.36 * (high - start)


def _apart(points: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Vertical position of each name: beside its point, or shifted up to avoid names of points with similar cost."""
    heights = [y for _, y in points.values()]
    gap = 0.026 * (max(heights, default=0.0) - min(heights, default=0.0))
    found: dict[str, float] = {}
    free: dict[int, float] = {}
    for name, (x, y) in sorted(points.items(), key=lambda point: point[1][1]):
        column = round(math.log2(x)) if x > 0 else 0
        found[name] = max(y, free.get(column, y))
        free[column] = found[name] + gap
    return found


@contextmanager
def _chart(
    title: str, height: float, xlabel: str, ylabel: str, series: Mapping[str, Numbers] | None = None
) -> Iterator[tuple[Axes, dict[str, str], list[Drawing]]]:
    """Yield axes to draw on and a colour per series; afterwards the list holds the SVG, with its legend below."""
    made: list[Drawing] = []
    with drawing():
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.subplots()
        yield axes, colours(list(series or ())), made
        axes.set_title(fill(title, 76))
        axes.set_xlabel(fill(xlabel, 76))
        axes.set_ylabel(fill(ylabel, 40))
        handles, names = axes.get_legend_handles_labels()
        if len(series or ()) > 1:
            columns = max(1, min(len(names), 70 // (max(map(len, names)) + 8)))
            figure.legend(handles, names, loc="outside lower center", ncols=columns)
        made.append(to_svg(figure, title))


def _numbers(values: Numbers) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _same_lengths(title: str, series: Mapping[str, Sequence[object]], count: int, what: str) -> None:
    for name, values in series.items():
        if len(values) != count:
            raise ConfigError(f"{name!r} of figure {title!r} has {len(values)} values for {count} {what}.")
