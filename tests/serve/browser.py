"""A visitor: Chromium, driven through the page of a real server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
#: the server wants it, so that one server is enough to see the page ask for it
TOKEN = "speak-friend-and-enter"
#: nothing but the page may use the network, and a container has no rights for the sandbox
QUIETLY = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def missing() -> str:
    """Why there can be no visit here, or nothing."""
    if CHROMIUM is None:
        return "there is no Chromium here: apt install chromium"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "Playwright is not installed: pip install playwright"
    try:
        import fastapi  # noqa: F401
    except ImportError:
        return "the server is not installed: pip install 'mltta[serve]'"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        yield browser
        browser.close()


class Visit:
    """A page that was opened, and all that it complained about or asked others for."""

    def __init__(self, browser: Any, url: str, token: str = TOKEN, **context: Any):
        self.url, self.complaints, self.requests = url, [], []  # type: ignore[var-annotated]
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 820}} | context)
        if token:
            self.context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def strangers(self) -> list[str]:
        """Requests to another host than the server's."""
        hosts = [url for url in self.requests if urlsplit(url).scheme not in ("blob", "data")]
        return [url for url in hosts if not url.startswith(f"{self.url}/")]

    def add(self, *photos: Path) -> None:
        self.page.set_input_files("#files", [str(photo) for photo in photos])

    def type_labels(self, labels: str) -> None:
        self.page.select_option("#list", label="My own labels")
        self.page.fill("#labels", labels)

    def tag(self, method: str, **settings: int) -> None:
        """Choose a method and its settings, press the button, and wait for the last answer."""
        self.disclose("#advanced")
        self.page.select_option("#method", method)
        for name, value in settings.items():
            self.page.fill(f"#setting-{name}", str(value))
        self.page.click("#run")
        self.page.locator("#progress", has_text="Tagged").wait_for()

    def disclose(self, details: str) -> None:
        """Open a disclosure, unless it is open."""
        if self.page.locator(details).get_attribute("open") is None:
            self.page.click(f"{details} > summary")

    def download(self, kind: str, folder: Path) -> Path:
        self.page.select_option("#format", kind)
        with self.page.expect_download() as download:
            self.page.click("#download")
        file = folder / download.value.suggested_filename
        download.value.save_as(file)
        return file

    def tile(self, name: str) -> Any:
        return self.page.locator(".tile", has=self.page.locator(".file", has_text=name))

    def bars(self) -> dict[str, tuple[str, str]]:
        """By label, the number of the method and that of plain CLIP, once both are there."""
        self.disclose("#more")
        self.page.locator("#bars .beside").first.wait_for()
        rows = self.page.locator("#bars button").all()
        return {
            str(row.get_attribute("data-label")): (
                row.locator("small").first.inner_text(),
                row.locator(".beside").inner_text(),
            )
            for row in rows
        }

    def heat(self) -> list[int]:
        """The pixels of the heat on the photo, 0 to 255, four a location; none where none is to be seen."""
        if not self.page.locator("#heat").is_visible():
            return []
        read = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
        return list(self.page.locator("#heat").evaluate(read))

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))
