"""One HTML file that holds a whole report: no scripts, no requests, readable on a phone and at night."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from mltta.errors import ConfigError
from mltta.tables.cells import Table
from mltta.tables.render import render

_CSS = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #666; --line: #ccc; --wash: #f4f4f2;
  --link: #0059a8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181b; --soft: #a3a3a3; --line: #44474b;
  --wash: #202327; --link: #7db8f0 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.7rem; line-height: 1.25 } h2 { font-size: 1.25rem; margin-top: 2.5rem }
p { max-width: 46rem } a { color: var(--link) }
nav { padding: .75rem 1rem; background: var(--wash); border-radius: .4rem } nav ol { margin: 0; padding-left: 1.4rem }
figure { margin: 1.5rem 0 } figcaption { font-weight: 600; margin-bottom: .4rem; max-width: 46rem }
figure.plot figcaption { font-weight: 400; color: var(--soft); font-size: .9rem; margin: .4rem 0 0 }
.scroll { overflow-x: auto } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap }
th[scope=row], th.group { text-align: left; font-weight: 400 }
th[scope=row] { position: sticky; left: 0; background: var(--paper) }
th.group { font-style: italic; padding-top: .6rem }
thead th { border-bottom: 1px solid var(--line) } th[scope=colgroup] { text-align: center }
table { border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink) }
tbody + tbody { border-top: 1px solid var(--line) } tbody tr:hover { background: var(--wash) }
td small { color: var(--soft) }
.notes { color: var(--soft); font-size: .875rem; max-width: 46rem; padding-left: 1.2rem }
@media print { nav { display: none } .plot, tr { break-inside: avoid } table { font-size: .6rem }
  th, td { padding: .15rem .3rem; white-space: normal } }
"""

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
    entries = "\n".join(
        f'<li><a href="#s{number}">{html.escape(section.heading)}</a></li>'
        for number, section in enumerate(sections, start=1)
    )
    contents = f'<nav aria-label="Contents"><ol>\n{entries}\n</ol></nav>' if len(sections) > 1 else ""
    body = "\n".join(_section(number, section) for number, section in enumerate(sections, start=1))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">
<title>{html.escape(title)}</title>
<style>{_CSS}</style>
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
    parts += [_plot(figure) for figure in section.figures]
    if section.notes:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in section.notes)
        parts.append(f'<ul class="notes">{notes}</ul>')
    return "\n".join([*parts, "</section>"])


def _plot(figure: Plot) -> str:
    caption = f"<figcaption>{html.escape(figure.caption)}</figcaption>" if figure.caption else ""
    return f'<figure class="plot">\n{_checked(figure.svg)}\n{caption}</figure>'


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
                raise ConfigError(
                    f"A figure of the page has {name}={value[:60]!r}, which a page on its own cannot use."
                )
    return svg.strip()
