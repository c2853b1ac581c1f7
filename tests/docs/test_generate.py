"""The pages show the stored figures, and every stored run names its command and machine."""

from __future__ import annotations

import json
import re

import pytest

from docs.generate.__main__ import MEASURED, PAGES, ROOT, filled
from docs.generate.measure import RUNS, by_best

STORED = json.loads(MEASURED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_stored_figures(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text, STORED) == text, f"{page.relative_to(ROOT)} is out of date: python -m docs.generate"
    assert not re.search(r"^\s*<!--=", text, re.MULTILINE), (
        "a line that starts with a comment is HTML, not Markdown"
    )


def test_every_run_names_its_command_and_machine():
    assert set(STORED) == set(RUNS)
    for run in STORED.values():
        assert run["machine"]
        assert "mltta" in run["command"] or "benchmarks." in run["command"]
        assert run.get("figures") or run.get("tables")


def test_the_figures_are_used():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for run in STORED:
        assert f"<!--={run};" in pages or f"<!--table {run};" in pages, f"no page shows {run}"


def test_figures_and_tables_are_filled():
    stored = {
        "a": {
            "figures": {"mAP": 85.64, "pair": [0.5, -0.25]},
            "tables": {"t": {"columns": ["x"], "rows": [["r", "1"]]}},
        }
    }
    page = "mAP <!--=a;mAP;.1f-->?<!--/-->, <!--=a;pair[1];.2f-->?<!--/-->\n<!--table a;t-->\nold\n<!--/table-->\n"
    shown = filled(page, stored)
    assert "-->85.6<!--/-->" in shown
    assert "-->−0.25<!--/-->" in shown
    assert "| | x |\n|---|---|\n| r | 1 |" in shown
    assert "old" not in shown
    assert filled(shown, stored) == shown


def test_an_unknown_figure_is_an_error():
    with pytest.raises(KeyError):
        filled("<!--=a;nothing;.1f-->1<!--/-->", {"a": {"figures": {}}})


def test_the_frontier_is_sorted_by_the_best_scoring():
    cells = [[{"ours": 70.0}, {"ours": 71.0, "note": "± 0.10"}, {"ours": 60.0}], [{"ours": 80.0}, {}, {}]]
    cells[1] = [{"ours": 80.0}, {"ours": 79.0}, {"ours": 60.0}]
    table = {
        "columns": ["mAP", "mAP softmax", "mAP z-score", "F1 of sets", "views"],
        "rows": [
            {"name": "low", "cells": [*cells[0], {"ours": 50.0}, {"ours": 5.0}]},
            {"name": "high", "cells": [*cells[1], {"ours": 60.0}, {"ours": 8.27}]},
            {"name": "not run", "cells": [{}] * 5},
        ],
    }
    assert by_best(table)["rows"] == [
        ["high", "8.27", "**80.00**", "79.00", "60.00", "60.0"],
        ["low", "5", "70.00", "**71.00 ± 0.10**", "60.00", "50.0"],
    ]


def test_docstrings_are_prepared_for_the_site():
    prepared = pytest.importorskip("docs.generate.docstrings").prepared
    assert prepared("Args:\nmodel: a name.") == "Args:\n    model: a name."
    assert prepared("One line.\n\n>>> f(1)  # doctest: +SKIP\n2\n\nEnd.") == (
        "One line.\n\n```python\n>>> f(1)\n2\n```\n\nEnd."
    )
    assert prepared("One line.\n\nExample:\n    >>> f(1)") == "One line.\n\nExamples:\n    >>> f(1)"
