"""Self-contained HTML reports: no scripts, no requests, for small screens and dark mode."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from mltta.errors import ConfigError
from mltta.tables.cells import Table
from mltta.tables.render import html_notes, render

_CSS = Path(__file__).parents[1] / "assets" / "report" / "style.css"
# The browser blocks anything that a figure might try to load.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Plot:
    """A figure as SVG, from ``mltta.tables.plots``, and its caption."""

    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a page: text, then tables, figures and notes. All text is plain and escaped."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()


def html_page(title: str, sections: Sequence[Section]) -> str:
    """Render the whole report as one HTML document."""
    heads = [html.escape(section.heading) for section in sections]
    entries = "\n".join(f'<li><a href="#s{i}">{head}</a></li>' for i, head in enumerate(heads, start=1))
    contents = f'<nav aria-label="Contents"><ol>\n{entries}\n</ol></nav>' if len(sections) > 1 else ""
    body = "\n".join(_section(number, section) for number, section in enumerate(sections, start=1))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">
<title>{html.escape(title)}</title>
<style>
{_CSS.read_text(encoding="utf-8")}</style>
</head>
<body>
<header><h1>{html.escape(title)}</h1></header>
{contents}
<main>
{body}
</main>
</body>
</html>
"""


def _section(number: int, section: Section) -> str:
    parts = [f'<section id="s{number}">', f"<h2>{html.escape(section.heading)}</h2>"]
    parts += [f"<p>{html.escape(text)}</p>" for text in section.paragraphs]
    parts += [render(table, "html").strip() for table in section.tables]
    for figure in section.figures:
        caption = f"<figcaption>{html.escape(figure.caption)}</figcaption>" if figure.caption else ""
        parts.append(f'<figure class="plot">\n{_checked(figure.svg)}\n{caption}</figure>')
    return "\n".join([*parts, *html_notes([("", note) for note in section.notes]), "</section>"])


def _checked(svg: str) -> str:
    """Validate a figure: a complete SVG element without scripts or external references."""
    try:
        tree = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ConfigError(f"A figure is not valid SVG: {error}.") from error
    if not tree.tag.endswith("svg"):
        raise ConfigError(f"A figure is a <{tree.tag}> element; expected <svg>.")
    for element in tree.iter():
        if not isinstance(element.tag, str) or re.search(r"script$|foreignObject$", element.tag):
            raise ConfigError(f"A figure contains {element.tag!r}; scripts are not allowed.")
        for name, value in element.attrib.items():
            outside = name.endswith("href") and not value.startswith(("#", "data:image/"))
            if outside or name.startswith("on"):
                said = f"A figure has {name}={value[:60]!r}, which does not work in a self-contained page."
                raise ConfigError(said)
    return svg.strip()
