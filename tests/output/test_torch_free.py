"""Reading and converting outputs, the gallery, keywords and tables do without torch, which takes seconds to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: what is done, after all modules of these packages were imported
WORK = {
    "converts an output to every format": """
from mltta.output.tags_file import Output
formats = ["csv", "json", "jsonl", "table", "coco"]
with Output({Path(f"{name}.out"): name for name in formats}) as sink:
    sink.begin({}, ["dog"])
    sink.add({"image": "a.png", "present": ["dog"], "labels": [{"label": "dog", "score": 0.5}]}, None)
    sink.finish(["a.png"])
assert all(Path(f"{name}.out").stat().st_size for name in formats)
""",
    "makes a gallery": """
from mltta.output.gallery import for_gallery, write_gallery
from mltta.output.formats import Page
record = {"image": "a.png", "present": ["dog"], "labels": [{"label": "dog", "score": 0.5}]}
write_gallery(Path("t.html"), [record | for_gallery(Path("a.png"), {})], Page(Path("t.html"), 1, ["dog"]))
""",
    "writes keywords and takes them back": """
from mltta.cli import main
from mltta.output.keywords.write import write_sidecar
write_sidecar(Path("a.png"), ["dog"])
sys.argv = ["mltta", "keywords", "undo", "a.png"]
with contextlib.suppress(SystemExit):
    main()
assert not Path("a.png.xmp").exists()
""",
    "draws a picture": """
from mltta.output.picture import annotate
from types import SimpleNamespace
tags = SimpleNamespace(present=["dog"], shown=[{"label": "dog", "score": 0.5}], where={})
annotate(Image.open("a.png"), tags)
""",
    "renders a table": """
from mltta.tables import Cell, Row, Table, render
render(Table("t", ("a",), (Row("r", (Cell(ours=1.0),)),)), "html")
""",
    "imports every module of output, tables and storage, and the run": """
import importlib.util, pkgutil
import mltta.output, mltta.storage, mltta.tables
for package in (mltta.output, mltta.storage, mltta.tables):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # plots need matplotlib, which the light install has not
            if not error.name.startswith("matplotlib") or importlib.util.find_spec("matplotlib"):
                raise
import mltta.cli.tagging, mltta.cli.on_ray
""",
}


@pytest.mark.parametrize("work", WORK)
def test_torch_is_not_imported_by_what(work, tmp_path):
    head = "import contextlib, sys\nfrom pathlib import Path\nfrom PIL import Image\n"
    head += "Image.new('RGB', (9, 9)).save('a.png')\n"
    code = f"{head}\n{WORK[work]}\nassert 'torch' not in sys.modules, 'torch'"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
