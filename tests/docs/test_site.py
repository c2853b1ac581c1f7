"""The built site in a browser: no error, no request to another host, and search without a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGES = ("index", "tagging", "idea", "commands")
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def site():
    """The site as `make docs` builds it."""
    pytest.importorskip("zensical", reason="pip install 'mltta[docs]'")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], check=True, cwd=ROOT)
    return ROOT / "site"


@pytest.fixture(scope="module")
def browser():
    """The machine's own Chromium; none is ever fetched."""
    if BROWSER is None:
        pytest.skip("there is no Chromium here")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def tab(browser, request):
    """A tab that notes every complaint and every request that leaves the disk."""
    width, height = SIZES[getattr(request, "param", "desktop")]
    opened = browser.new_page(viewport={"width": width, "height": height})
    opened.complaints, opened.strangers = [], []
    opened.on("console", lambda said: said.type == "error" and opened.complaints.append(said.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on(
        "request",
        lambda asked: (
            not asked.url.startswith(("file:", "data:", "blob:", "about:"))
            and opened.strangers.append(asked.url)
        ),
    )
    yield opened
    opened.close()


@pytest.mark.parametrize("tab", SIZES, indirect=True)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_from_the_disk_without_an_error_or_a_request_to_another_host(site, tab, page, request):
    tab.goto((site / f"{page}.html").as_uri())
    tab.wait_for_load_state("networkidle")
    assert tab.locator("article h1").first.inner_text().strip()
    widths = tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1], "the page is wider than the screen"
    broken = "[...document.images].filter(i => i.loading !== 'lazy' && !i.naturalWidth).map(i => i.src)"
    assert tab.evaluate(broken) == []
    shots = os.environ.get("MLTTA_SCREENSHOTS")
    if shots:
        tab.screenshot(path=f"{shots}/{page}-{request.node.callspec.params['tab']}.png")
    assert tab.complaints == []
    assert tab.strangers == []


def test_search_finds_a_page_without_a_server(site, tab):
    tab.goto((site / "index.html").as_uri())
    tab.locator(".md-search__button").first.click()
    tab.keyboard.type("keywords sidecar")
    tab.locator("a[href*='tagging.html']", has_text="writes labels").first.wait_for(timeout=20_000)
    assert tab.complaints == []
    assert tab.strangers == []


def test_the_figure_of_the_idea_answers_its_sliders(site, tab):
    tab.goto((site / "idea.html").as_uri())
    table = tab.locator("#bound-entropy table")
    pushes = "[...document.querySelectorAll('#bound-entropy .be-number')].map(e => Number(e.textContent))"
    plain, bound = tab.evaluate(pushes)[0::2], tab.evaluate(pushes)[1::2]
    assert plain[0] > 0 > plain[1], "entropy raises the first label alone"
    assert bound[0] == bound[1] > 0, "bound entropy raises both alike"
    tab.locator("#be-k").fill("1")
    assert tab.evaluate(pushes)[0::2] == tab.evaluate(pushes)[1::2], "with k = 1 nothing is bound"
    assert "dog (bound)" in table.inner_text()
    assert tab.complaints == []
