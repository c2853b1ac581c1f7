"""Renders tables as Markdown, CSV, JSON, LaTeX, HTML and plain text."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Literal

from rich.cells import cell_len

from mltta.errors import ConfigError
from mltta.storage.reading import no_formula
from mltta.tables.cells import Cell, Grid, GridCell, Row, Table, heading, lay_out

__all__ = ["FORMATS", "Cell", "Format", "Row", "Table", "render"]

Format = Literal["markdown", "csv", "json", "latex", "html", "text"]

#: formats of the best number, the text in brackets and the footnote letter
_MD = ("**{}**", " ({})", "<sup>{}</sup>")
_TEX = (r"\textbf{{{}}}", " ({})", "$^{{{}}}$")
_HTML = ("<b>{}</b>", " <small>({})</small>", "<sup>{}</sup>")
_TEXT = ("{}*", " ({})", " [{}]")


def render(table: Table, format: Format = "text") -> str:
    """Render a table as a string that ends with a newline.

    CSV and JSON contain every number at full precision. The other formats print the paper's and our numbers side by
    side, ours with the difference and the interval, and our best number in bold.
    """
    if format not in FORMATS:
        raise ConfigError(f"Unknown table format {format!r}; choose one of {', '.join(FORMATS)}.")
    return FORMATS[format](table)


def _csv(table: Table) -> str:
    """One line per cell, for pivoting in a spreadsheet or data frame."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["group", "row", "column", "paper", "ours", "difference", "low", "high", "note"])
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            numbers = (cell.paper, cell.ours, cell.difference, cell.low, cell.high)
            plain = ("" if number is None else f"{number:.10g}" for number in numbers)
            group, name, under, note = map(no_formula, (row.group, row.name, column, cell.note))
            writer.writerow([group, name, under, *plain, note])
    return out.getvalue()


def _markdown(table: Table) -> str:
    grid = lay_out(table)
    names = [_md(" ".join(name)) for name in _flat_heads(grid)]
    lines = [f"**{_md(heading(table))}**", ""]
    lines += [_md_line(["", *names]), "|" + " --- |" + " ---: |" * grid.width]
    for group, rows in grid.groups:
        if group:
            lines.append(_md_line([f"*{_md(group)}*", *[""] * grid.width]))
        lines += [_md_line([_md(name), *(_said(cell, *_MD) for cell in row)]) for name, row in rows]
    if grid.remarks:
        lines.append("")
    lines += [f"- {f'<sup>{letter}</sup> ' if letter else ''}{_md(text)}" for letter, text in grid.remarks]
    return "\n".join(lines) + "\n"


def _md_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _md(text: str) -> str:
    """Escape text for GitHub Markdown: one line, without markup."""
    return re.sub(r"([\\`*_\[\]<>|~]|&(?=#?\w+;))", r"\\\1", " ".join(text.split()))


_NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
_LATEX = str.maketrans(
    {char: rf"\text{name}{{}}" for char, name in _NAMES.items()}
    | {char: "\\" + char for char in "&%$#_{}"}
    | {"−": "$-$", "±": r"$\pm$"}
)


def _tex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)


def _said(cell: GridCell, best: str, aside: str, footnote: str, escape: Callable[[str], str] = str) -> str:
    """A cell's number with its additions, each in its format."""
    said = (best if cell.best else "{}").format(escape(cell.number))
    said += aside.format(escape(cell.aside)) if cell.aside else ""
    return (said + (footnote.format(cell.footnote) if cell.footnote else "")).strip()


def _latex(table: Table) -> str:
    """A floating table for documents that use booktabs."""
    grid = lay_out(table)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_tex(heading(table))}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * grid.width}}}", r"\toprule", *_latex_heads(grid)]
    for group, rows in grid.groups:
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{grid.width + 1}}}{{l}}{{\textit{{{_tex(group)}}}}} \\")
        for name, row in rows:
            lines.append(" & ".join([_tex(name), *(_said(cell, *_TEX, _tex) for cell in row)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    for letter, text in grid.remarks:
        lines.append(rf"\par\footnotesize {f'$^{{{letter}}}$ ' if letter else ''}{_tex(text)}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_heads(grid: Grid) -> list[str]:
    if not grid.split:
        return [" & ".join(["", *(_tex(name) for name, _ in grid.heads)]) + r" \\"]
    names, rules, sources = [""], "", [""]
    for name, shown in grid.heads:
        names.append(rf"\multicolumn{{{len(shown)}}}{{c}}{{{_tex(name)}}}")
        rules += rf"\cmidrule(lr){{{len(sources) + 1}-{len(sources) + len(shown)}}}"
        sources += shown
    return [" & ".join(names) + r" \\", rules, " & ".join(sources) + r" \\"]


def _html(table: Table) -> str:
    """A figure with a table that scrolls horizontally if the page styles ``scroll``."""
    grid = lay_out(table)
    lines = ['<figure class="table">', f"<figcaption>{html.escape(heading(table))}</figcaption>"]
    lines += ['<div class="scroll"><table>', "<thead>", *_html_heads(grid), "</thead>"]
    for group, rows in grid.groups:
        lines.append("<tbody>")
        if group:
            head = f'<th class="group" colspan="{grid.width + 1}" scope="rowgroup">'
            lines.append(f"<tr>{head}{html.escape(group)}</th></tr>")
        for name, row in rows:
            numbers = "".join(f"<td>{_said(cell, *_HTML)}</td>" for cell in row)
            lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{numbers}</tr>')
        lines.append("</tbody>")
    lines.append("</table></div>")
    return "\n".join([*lines, *html_notes(grid.remarks), "</figure>"]) + "\n"


def html_notes(remarks: Sequence[tuple[str, str]]) -> list[str]:
    """A list of notes, each with its letter if it has one; empty if there are none."""
    notes = (f"<li>{f'<sup>{mark}</sup> ' if mark else ''}{html.escape(text)}</li>" for mark, text in remarks)
    return [f'<ul class="notes">{"".join(notes)}</ul>'] if remarks else []


def _html_heads(grid: Grid) -> list[str]:
    if not grid.split:
        names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name, _ in grid.heads)
        return [f"<tr><td></td>{names}</tr>"]
    heads = ((len(sources), html.escape(name)) for name, sources in grid.heads)
    names = "".join(f'<th colspan="{width}" scope="colgroup">{name}</th>' for width, name in heads)
    shown = "".join(f'<th scope="col">{source}</th>' for _, sources in grid.heads for source in sources)
    return [f'<tr><td rowspan="2"></td>{names}</tr>', f"<tr>{shown}</tr>"]


def _text(table: Table) -> str:
    """Aligned columns for a terminal; our best number is starred."""
    grid = lay_out(table)
    heads = _flat_heads(grid)
    lines: list[list[str]] = [["", *(name for name, *_ in heads)]]
    if grid.split:
        lines.append(["", *(" ".join(source) for _, *source in heads)])
    above = len(lines)
    for group, rows in grid.groups:
        lines += [[group]] if group else []
        for name, row in rows:
            lines.append([f"  {name}" if group else name, *(_said(cell, *_TEXT) for cell in row)])
    widths = [max(map(cell_len, column)) for column in zip_longest(*lines, fillvalue="")]
    body = []
    for (
        first,
        *rest,
    ) in lines:  # names left, numbers right-aligned; widths in terminal cells
        cells = zip(rest, widths[1:], strict=False)
        named = first + " " * (widths[0] - cell_len(first))
        body.append("  ".join([named, *(" " * (w - cell_len(cell)) + cell for cell, w in cells)]).rstrip())
    rule = "─" * (sum(widths) + 2 * grid.width)
    remarks = [f"{f'[{letter}] ' if letter else ''}{text}" for letter, text in grid.remarks]
    if any(cell.best for _, rows in grid.groups for _, row in rows for cell in row):
        remarks.append("*: our best.")
    return "\n".join([heading(table), rule, *body[:above], rule, *body[above:], rule, *remarks]) + "\n"


def _flat_heads(grid: Grid) -> list[list[str]]:
    """One entry per position: [column] or, if sources are labelled, [column, source]."""
    return [[name, source] if grid.split else [name] for name, sources in grid.heads for source in sources]


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": _markdown, "csv": _csv}
FORMATS |= {"json": lambda table: table.to_json() + "\n", "latex": _latex, "html": _html, "text": _text}
