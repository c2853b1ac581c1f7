"""Tables in every format: what a reader sees, and what a program reads back."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest

from mltta.errors import ConfigError
from mltta.tables import Cell, Row, Table, render
from mltta.tables.render import FORMATS

SIDE_BY_SIDE = Table(
    "Main",
    ("COCO", "VOC"),
    (
        Row("CLIP", (Cell(paper=47.53, ours=47.5), Cell(paper=75.91)), "RN50"),
        Row("ML-TTA", (Cell(51.58, 51.404, 50.93, 51.88), Cell(78.62, note="no images")), "RN50"),
    ),
    notes=("Half of COCO.",),
)
OURS = Table("Ours", ("VOC",), (Row("CLIP", (Cell(ours=74.82, low=73.5, high=76.1),)), Row("TPT", (Cell(),))))
NASTY = Table(
    "50% of a_b & <c> | d",
    ("x|y", "$z$"),
    (Row("a & b", (Cell(ours=1), Cell(ours=-2))), Row("<b>#1\n{~^\\}</b>", (Cell(ours=3), Cell(ours=-1)))),
)


def test_markdown_puts_the_paper_beside_ours():
    assert (
        render(SIDE_BY_SIDE, "markdown")
        == """\
**Main, mAP**

|  | COCO paper | COCO ours | VOC paper |
| --- | ---: | ---: | ---: |
| *RN50* |  |  |  |
| CLIP | 47.53 | 47.50 (−0.03) | 75.91 |
| ML-TTA | 51.58 | **51.40** (−0.18, −0.6 to +0.3) | 78.62<sup>a</sup> |

- <sup>a</sup> no images
- In brackets: ours minus the paper's, and its 95% interval over images.
- Half of COCO.
"""
    )


def test_text_is_aligned_for_a_terminal():
    assert (
        render(SIDE_BY_SIDE)
        == """\
Main, mAP
────────────────────────────────────────────────────────
           COCO                          COCO        VOC
          paper                          ours      paper
────────────────────────────────────────────────────────
RN50
  CLIP    47.53                 47.50 (−0.03)      75.91
  ML-TTA  51.58  51.40* (−0.18, −0.6 to +0.3)  78.62 [a]
────────────────────────────────────────────────────────
[a] no images
In brackets: ours minus the paper's, and its 95% interval over images.
Half of COCO.
*: our best.
"""
    )


def test_latex_spans_the_two_sources_with_booktabs():
    assert (
        render(SIDE_BY_SIDE, "latex")
        == r"""\begin{table}
\centering
\caption{Main, mAP}
\begin{tabular}{lrrr}
\toprule
 & \multicolumn{2}{c}{COCO} & \multicolumn{1}{c}{VOC} \\
\cmidrule(lr){2-3}\cmidrule(lr){4-4}
 & paper & ours & paper \\
\midrule
\multicolumn{4}{l}{\textit{RN50}} \\
CLIP & 47.53 & 47.50 ($-$0.03) & 75.91 \\
ML-TTA & 51.58 & \textbf{51.40} ($-$0.18, $-$0.6 to +0.3) & 78.62$^{a}$ \\
\bottomrule
\end{tabular}
\par\footnotesize $^{a}$ no images
\par\footnotesize In brackets: ours minus the paper's, and its 95\% interval over images.
\par\footnotesize Half of COCO.
\end{table}
"""
    )


def test_html_names_rows_columns_and_groups():
    assert (
        render(SIDE_BY_SIDE, "html") == """\
<figure class="table">
<figcaption>Main, mAP</figcaption>
<div class="scroll"><table>
<thead>
<tr><td rowspan="2"></td><th colspan="2" scope="colgroup">COCO</th><th colspan="1" scope="colgroup">VOC</th></tr>
<tr><th scope="col">paper</th><th scope="col">ours</th><th scope="col">paper</th></tr>
</thead>
<tbody>
<tr><th class="group" colspan="4" scope="rowgroup">RN50</th></tr>
<tr><th scope="row">CLIP</th><td>47.53</td><td>47.50 <small>(−0.03)</small></td><td>75.91</td></tr>
<tr><th scope="row">ML-TTA</th><td>51.58</td><td><b>51.40</b> <small>(−0.18, −0.6 to +0.3)</small></td>"""
        """<td>78.62<sup>a</sup></td></tr>
</tbody>
</table></div>
<ul class="notes"><li><sup>a</sup> no images</li>"""
        """<li>In brackets: ours minus the paper&#x27;s, and its 95% interval over images.</li>"""
        """<li>Half of COCO.</li></ul>
</figure>
"""
    )


def test_csv_has_one_line_a_cell_with_full_numbers():
    assert render(SIDE_BY_SIDE, "csv") == (
        "group,row,column,paper,ours,difference,low,high,note\n"
        "RN50,CLIP,COCO,47.53,47.5,-0.03,,,\n"
        "RN50,CLIP,VOC,75.91,,,,,\n"
        "RN50,ML-TTA,COCO,51.58,51.404,-0.176,50.93,51.88,\n"
        "RN50,ML-TTA,VOC,78.62,,,,,no images\n"
    )


def test_json_holds_only_what_is_set():
    data = json.loads(render(OURS, "json"))
    assert data["rows"] == [
        {"group": "", "name": "CLIP", "cells": [{"ours": 74.82, "low": 73.5, "high": 76.1}]},
        {"group": "", "name": "TPT", "cells": [{}]},
    ]


@pytest.mark.parametrize("table", [SIDE_BY_SIDE, OURS, NASTY], ids=lambda table: table.title)
def test_json_reads_back_as_the_same_table(table):
    assert Table.from_json(render(table, "json")) == table


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{"name": "x"}]}', '{"rows": 3}'])
def test_other_json_is_refused(text):
    with pytest.raises(ConfigError, match="Not a table"):
        Table.from_json(text)


def test_without_the_paper_only_our_numbers_and_intervals_are_shown():
    assert render(OURS, "markdown").splitlines()[2:] == [
        "|  | VOC |",
        "| --- | ---: |",
        "| CLIP | 74.82 (73.5 to 76.1) |",
        "| TPT |  |",
    ]


def test_without_our_numbers_the_table_says_whose_they_are():
    table = Table("t", ("VOC",), (Row("CLIP", (Cell(paper=75.91),)),))
    assert "| CLIP | 75.91 |" in render(table, "markdown")
    assert render(table, "markdown").endswith("- All numbers are the paper's.\n")


def test_the_difference_is_the_one_between_the_printed_numbers():
    rows = (Row("r", (Cell(paper=50.0, ours=50.0949),)), Row("s", (Cell(50.0, 50.001),)))
    table = Table("t", ("c",), rows, best="")
    assert "50.09 (+0.09)" in render(table)
    assert "50.00 (0.00)" in render(table)
    assert Cell(50.0, 50.0949).difference == pytest.approx(0.0949)


def test_best_is_ours_within_a_group_ties_and_all():
    rows = (
        Row("a", (Cell(paper=99, ours=1.001),), "g"),
        Row("b", (Cell(ours=1.004),), "g"),
        Row("c", (Cell(ours=0.5),), "g"),
        Row("d", (Cell(ours=0.1),), "alone"),
    )
    text = render(Table("t", ("x",), rows), "markdown")
    assert re.findall(r"\*\*([\d.]+)\*\*", text) == ["1.00", "1.00"]
    assert "**0.10**" not in text
    assert "**1.00**" not in render(Table("t", ("x",), rows, best=""), "markdown")


def test_the_lowest_is_best_in_the_columns_that_say_so():
    rows = (Row("a", (Cell(ours=1), Cell(ours=5))), Row("b", (Cell(ours=2), Cell(ours=9))))
    table = Table("t", ("mAP", "ms"), rows, lower_is_better=("ms",))
    assert "| a | 1.00 | **5.00** |\n| b | **2.00** | 9.00 |" in render(table, "markdown")
    assert Table.from_json(table.to_json()) == table


def test_best_of_a_row_where_the_columns_are_compared():
    table = Table(
        "t", ("1", "2"), (Row("r", (Cell(ours=1), Cell(ours=2))), Row("s", (Cell(ours=9), Cell(ours=3))))
    )
    in_rows = Table(table.title, table.columns, table.rows, best="row")
    assert re.findall(r"\*\*([\d.]+)\*\*", render(in_rows, "markdown")) == ["2.00", "9.00"]


def test_one_cell_object_used_twice_is_marked_only_where_it_is_best():
    cell = Cell(ours=5)
    table = Table("t", ("x", "y"), (Row("a", (cell, cell)), Row("b", (Cell(ours=9), Cell(ours=1)))))
    assert "| a | 5.00 | **5.00** |" in render(table, "markdown")


def test_equal_notes_share_a_letter():
    cells = tuple(Cell(ours=i, note=note) for i, note in enumerate(["late", "early", "late"]))
    text = render(Table("t", ("x", "y", "z"), (Row("r", cells),)))
    assert "0.00 [a]  1.00 [b]  2.00 [a]" in text
    assert text.count("late") == 1


def test_digits_and_unit_are_the_tables():
    table = Table("Speed", ("ms",), (Row("r", (Cell(ours=1234.5),)),), unit="ms per image", digits=0)
    assert render(table, "markdown").startswith("**Speed, ms per image**")
    assert "| r | 1234 |" in render(table, "markdown")


def test_markdown_escapes_pipes_and_keeps_one_line_a_row():
    lines = render(NASTY, "markdown").splitlines()
    table = lines[2:]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {4}
    assert lines[0] == r"**50% of a\_b & \<c\> \| d, mAP**"
    assert table[3].startswith(r"| \<b\>#1 {\~^\\}\</b\> |")


def test_latex_escapes_specials_and_balances_braces():
    text = render(NASTY, "latex")
    assert r"50\% of a\_b \& \textless{}c\textgreater{} \textbar{} d" in text
    assert r"\#1 \{\textasciitilde{}\textasciicircum{}\textbackslash{}\}" in text
    assert r"\$z\$" in text
    assert "$-$2.00" in text
    for source in (text, render(SIDE_BY_SIDE, "latex")):
        bare = re.sub(r"\\[{}$&]", "", source)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert re.findall(r"\\begin\{(\w+)\}", source) == re.findall(r"\\end\{(\w+)\}", source)[::-1]
        body = source[source.index("\\midrule") : source.index("\\bottomrule")]
        columns = len(re.search(r"tabular\}\{(lr*)\}", source)[1])
        lines = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {columns}


def test_csv_parses_whatever_the_names_hold():
    records = list(csv.DictReader(io.StringIO(render(NASTY, "csv"))))
    assert [(r["row"], r["column"], float(r["ours"])) for r in records] == [
        ("a & b", "x|y", 1),
        ("a & b", "$z$", -2),
        ("<b>#1\n{~^\\}</b>", "x|y", 3),
        ("<b>#1\n{~^\\}</b>", "$z$", -1),
    ]


def test_html_shows_names_as_text_and_closes_what_it_opens():
    opened, shown = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            opened.append(tag)

        def handle_endtag(self, tag):
            assert tag in opened
            opened.remove(tag)

        def handle_data(self, data):
            shown.append(data)

    Reader().feed(render(NASTY, "html"))
    assert opened == []
    assert {"a & b", "<b>#1\n{~^\\}</b>", "x|y", "50% of a_b & <c> | d, mAP"} <= set(shown)


def test_text_counts_wide_letters_as_a_terminal_does():
    table = Table("t", ("x",), (Row("犬", (Cell(ours=1),)), Row("ab", (Cell(ours=2),))), best="")
    lines = render(table).splitlines()
    assert lines[4:6] == ["犬  1.00", "ab  2.00"]


def test_every_format_renders_a_table_without_rows():
    for format in FORMATS:
        assert render(Table("nothing yet", ("x",), ()), format).endswith("\n")


def test_an_unknown_format_names_the_choices():
    with pytest.raises(ConfigError, match="'pdf'; choose one of markdown, csv, json, latex, html, text"):
        render(OURS, "pdf")


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ConfigError, match="Row 'r' of table 't' has 1 cells for 2 columns"):
        Table("t", ("x", "y"), (Row("r", (Cell(),)),))


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="ours=nan; use None"):
        Cell(ours=float("nan"))
    with pytest.raises(ConfigError, match="both or neither"):
        Cell(ours=1, low=0)
