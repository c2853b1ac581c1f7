"""Fill the generated parts of README.md and the pages: figures, tables and the command reference.

    python -m docs.generate [--check]

Figures come from docs/measured.json, which docs.generate.measure writes. A page marks what is generated:

    <!--=RUN;FIGURE;FORMAT-->85.6<!--/-->      one figure; FIGURE[1] is the second value of a list
    <!--table RUN;NAME--> … <!--/table-->      a table
    <!--commands--> … <!--/commands-->         every command, from the command line itself
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from docs.generate.commands import commands

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measured.json"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FIGURE = re.compile(r"(<!--=([^;]+);([^;\[]+)(?:\[(\d+)\])?;([^;]+?)-->).*?(<!--/-->)", re.DOTALL)
TABLE = re.compile(r"(<!--table ([^;]+);(.+?)-->\n).*?(<!--/table-->)", re.DOTALL)
COMMANDS = re.compile(r"(<!--commands-->\n).*?(<!--/commands-->)", re.DOTALL)


def filled(page: str, measured: dict[str, Any]) -> str:
    """A page with its marked parts filled from the measured figures."""

    def figure(found: re.Match[str]) -> str:
        value = measured[found[2]]["figures"][found[3]]
        value = value if found[4] is None else value[int(found[4])]
        # halves round up, as a reader rounds 46.65; in binary it is a little less
        shown = format(value + 1e-9 if isinstance(value, float) else value, found[5])
        return f"{found[1]}{shown.replace('-', '−')}{found[6]}"

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{markdown(measured[found[2]]['tables'][found[3]])}\n\n{found[4]}"

    page = TABLE.sub(table, FIGURE.sub(figure, page))
    return COMMANDS.sub(lambda found: found[1] + "\n".join(["", *commands(), found[2]]), page)


def markdown(table: dict[str, Any]) -> str:
    """A table in Markdown; the best value of each column is bold if the table says so."""
    columns, rows = table["columns"], table["rows"]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check = parser.parse_args().check
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (now := filled(text, measured)) != text:
            stale.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(now, encoding="utf-8")
    print(f"{'out of date' if check else 'updated'}: {', '.join(stale) or 'none'}")
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
