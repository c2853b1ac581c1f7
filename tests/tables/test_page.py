"""The page is one file: everything inside, nothing fetched, nothing taken for markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from mltta.errors import ConfigError
from mltta.tables import Cell, Plot, Row, Section, Table, html_page, plots

TABLE = Table("a & b", ("<i>",), (Row("<script>alert(1)</script>", (Cell(ours=1.0, note="x < y"),)),))
FIGURE = plots.lines("<b>title</b>", [1, 2], {"a & b": [1, 2], "<s>": [2, 1]}, "x", "y")
PAGE = html_page(
    "Report <1> & more",
    [
        Section("First & <b>", ("Words with <script>.",), (TABLE,), (), ("Note <x>.",)),
        Section("Second", figures=(Plot(FIGURE, "Caption & <em>"),)),
    ],
)
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Reader(HTMLParser):
    """Collects the elements, their attributes, and the text; insists on proper nesting."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data.strip())


def test_the_page_asks_for_nothing_from_outside():
    page = Reader(PAGE)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", PAGE)
    assert not [value for name, value in page.attributes if name in {"src", "href"} and value[0] != "#"]
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "default-src &#x27;none&#x27;" in PAGE


def test_words_of_users_are_shown_as_they_are():
    shown = Reader(PAGE).text
    for words in (
        "Report <1> & more",
        "First & <b>",
        "Words with <script>.",
        "Note <x>.",
        "<script>alert(1)</script>",
        "x < y",
        "<i>",
        "Caption & <em>",
        "<s>",
        "<b>title</b>",
    ):
        assert words in shown


def test_contents_lead_to_every_section():
    page = Reader(PAGE)
    links = [value for name, value in page.attributes if name == "href" and value.startswith("#s")]
    ids = [value for name, value in page.attributes if name == "id"]
    assert links == ["#s1", "#s2"]
    assert {"s1", "s2"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_ids_stay_distinct_when_figures_share_a_page():
    other = plots.lines("other", [1, 2], {"a": [3, 4]}, "x", "y")
    page = Reader(html_page("t", [Section("s", figures=(Plot(FIGURE), Plot(other)))]))
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 3


def test_tables_scroll_and_colours_follow_the_reader():
    assert '<div class="scroll"><table>' in PAGE
    assert ".scroll { overflow-x: auto }" in PAGE
    assert "prefers-color-scheme: dark" in PAGE


def test_a_single_section_needs_no_contents():
    assert "<nav" not in html_page("t", [Section("only")])


@pytest.mark.parametrize(
    ("svg", "why"),
    [
        ("<svg><g></svg>", "not valid SVG"),
        ("<p>words</p>", "is a <p> element"),
        ("<svg><script>1</script></svg>", "scripts are not allowed"),
        ('<svg onload="x()"/>', "onload="),
        ('<svg><image href="https://example.org/x.png"/></svg>', "example.org"),
    ],
)
def test_figures_that_are_not_plain_pictures_are_refused(svg, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        html_page("t", [Section("s", figures=(Plot(svg),))])
