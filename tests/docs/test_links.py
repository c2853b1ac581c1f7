"""Links between our pages, and into them, lead somewhere: files and headings are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/*.md",
        "examples/**/*.md",
        "training/*.md",
        ".github/**/*.md",
        "src/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def headings(page: Path) -> set[str]:
    """Anchors as the site and GitHub make them."""
    found = set()
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        found.add(re.sub(r"\s+", "-", plain.strip()))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    place = (ROOT / page).parent
    for link in LINK.findall(without_code((ROOT / page).read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = place / file if file else ROOT / page
        assert target.exists(), f"{page} links to {link}, and there is no {file}"
        made_when_built = target.name in ("commands.md", "api.md")
        if anchor and not made_when_built:
            assert anchor in headings(target), (
                f"{page} links to {link}, and {target.name} has no such heading"
            )


def test_every_page_of_the_site_is_in_its_navigation():
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    named = set(re.findall(r"(\S+\.md)$", listed, re.MULTILINE))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")}
