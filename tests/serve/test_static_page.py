"""The page without a server: tags in a browser are those of `mltta tag`, and nothing is asked of another host."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import mltta
from mltta.errors import ConfigError
from mltta.serve.static_page import PACKAGES, WHEELS, write_page
from tests.serve.browser import PHOTOS, Visit, chromium, missing

#: what `mltta page` downloads, for instance the engine/ folder of a page
VENDOR = os.environ.get("MLTTA_VENDOR", "")
LABELS = "cat, dog, flower, bicycle, person"


def test_files_that_are_missing_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"has no pyodide\.mjs"):
        write_page(tmp_path / "site", tmp_path)


def test_everything_but_the_libraries_comes_from_this_package(tmp_path):
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    for _, _, names in PACKAGES.values():
        for name in names:
            (vendor / Path(name).name).write_bytes(b"{}")
    wheels = {name: {"file_name": f"{name}.whl"} for name in WHEELS}
    (vendor / "pyodide-lock.json").write_text(json.dumps({"packages": wheels}))
    for name in WHEELS:
        (vendor / f"{name}.whl").write_bytes(b"")
    write_page(tmp_path / "site", vendor)
    engine = tmp_path / "site" / "engine"
    assert json.loads((engine / "archives.json").read_text()) == [
        *(f"{name}.whl" for name in WHEELS),
        "mltta.zip",
    ]
    shutil.unpack_archive(engine / "mltta.zip", tmp_path / "python")
    python = tmp_path / "python"
    assert (python / "mltta" / "assets" / "mini" / "image.onnx").is_file()
    assert not (python / "mltta" / "cli").exists()
    assert (python / "array_api_compat" / "__init__.py").is_file()
    html = (tmp_path / "site" / "index.html").read_text()
    assert 'src="page/page.js"' in html
    assert '"/page' not in html


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    if why := missing():
        pytest.skip(why)
    if not VENDOR:
        pytest.skip("MLTTA_VENDOR is not set: a folder with the files that `mltta page` downloads")
    folder = tmp_path_factory.mktemp("site")
    write_page(folder, Path(VENDOR))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_photos_are_tagged_in_the_browser_as_on_the_command_line(address, tmp_path):
    photos = [PHOTOS / name for name in ("cat.jpg", "bee.jpg", "avenue.jpg")]
    wanted = mltta.Tagger(labels=LABELS.split(", "), engine="onnx", where=True)(photos)
    with chromium() as browser:
        visit = Visit(browser, address, token="")
        visit.page.wait_for_selector("#list option", state="attached", timeout=300_000)
        assert "stay on this device" in visit.page.inner_text("#privacy")
        visit.add(*photos)
        visit.type_labels(LABELS)
        visit.page.click("#run")
        visit.page.locator("#progress", has_text="Tagged").wait_for(timeout=300_000)
        found = json.loads(visit.download("json", tmp_path).read_text())
        for own, tags in zip(found, wanted, strict=True):
            assert own["present"] == tags.present
            scores = [one["score"] for one in own["labels"]]
            # another build of the JPEG decoder rounds some pixels by a level
            assert scores == pytest.approx([one["score"] for one in tags.shown], abs=5e-3)
        visit.tile("cat.jpg").click()
        visit.page.locator("#bars button").first.click()
        assert max(visit.heat()[3::4]) > 0
        assert visit.strangers() == []
        assert visit.complaints == []
