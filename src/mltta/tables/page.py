"""One HTML file that holds a whole report: no scripts, no requests, readable on a phone and at night."""

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
# The browser itself refuses whatever a figure might try to load.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Plot:
    """A figure as SVG, from ``mltta.tables.plots``, and the words below it."""

    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page: words first, then tables, figures and remarks. All text is plain, nothing is markup."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()


def html_page(title: str, sections: Sequence[Section]) -> str:
    """The whole report as one HTML document."""
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
    """The picture, if it is one: a whole SVG element without scripts or outside references."""
    try:
        tree = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ConfigError(f"A figure of the page is not valid SVG: {error}.") from error
    if not tree.tag.endswith("svg"):
        raise ConfigError(f"A figure of the page is a <{tree.tag}> element; give an <svg> element.")
    for element in tree.iter():
        if not isinstance(element.tag, str) or re.search(r"script$|foreignObject$", element.tag):
            raise ConfigError(f"A figure of the page holds {element.tag!r}; give a picture without scripts.")
        for name, value in element.attrib.items():
            outside = name.endswith("href") and not value.startswith(("#", "data:image/"))
            if outside or name.startswith("on"):
                said = f"A figure of the page has {name}={value[:60]!r}, which a page on its own cannot use."
                raise ConfigError(said)
    return svg.strip()
