"""What the light install can do. With PyTorch installed, these run too, in processes where it cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HAS_TORCH

pytestmark = pytest.mark.light
ROOT = Path(__file__).parents[1]
PHOTO = ROOT / "examples" / "photos" / "cat.jpg"
LINE = "pip install 'mltta[torch]'"
#: where PyTorch is installed, hides it and what comes with it
BLOCKED = """
from importlib.machinery import PathFinder
class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = ("torch", "open_clip", "timm", "torchvision", "matplotlib", "huggingface_hub", "onnx")
        return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)
sys.meta_path = [Light if one is PathFinder else one for one in sys.meta_path]
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Code in a process without PyTorch."""
    line = [sys.executable, "-c", "import sys\n" + (BLOCKED if HAS_TORCH else "") + code]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=env, timeout=300)


def mltta(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command line in a process without PyTorch."""
    return python(f"sys.argv = ['mltta', *{list(map(str, words))!r}]; from mltta.cli import main; main()")


def test_a_photo_is_tagged_with_heat_maps_and_a_picture(tmp_path):
    options = ["--annotate", tmp_path / "a", "--where", tmp_path / "w", "--keywords", "sidecar", "--dry-run"]
    done = mltta("tag", PHOTO, "--labels", "cat, dog, flower", "-f", "json")
    assert done.returncode == 0, done.stderr
    assert '"present": ["cat"]' in " ".join(done.stdout.split()).replace("[ ", "[").replace(" ]", "]")
    assert mltta("tag", PHOTO, *options[:4]).returncode == 0
    assert len(list(tmp_path.rglob("*.png"))) >= 2


def test_the_engine_is_recorded_and_a_run_is_resumed(tmp_path):
    for _ in range(2):
        done = mltta("tag", PHOTO, "--labels", "cat, dog", "-o", tmp_path / "tags.csv")
        assert done.returncode == 0, done.stderr
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"float32, ONNX Runtime" in kept


def test_methods_are_measured_on_a_folder(tmp_path):
    (tmp_path / "labels.csv").write_text(f"image,label\n{PHOTO.name},cat\n", encoding="utf-8")
    data = ["--data", PHOTO.parent, "--annotations", tmp_path / "labels.csv", "--labels", "cat, dog"]
    done = mltta(
        "eval", "folder", *data, "--method", "auto", "--method", "clip", "-o", tmp_path / "out", "--no-cache"
    )
    assert done.returncode == 0, done.stderr
    (run, _) = sorted((tmp_path / "out").rglob("run.json"))
    assert "ONNX Runtime" in run.read_text(encoding="utf-8")
    assert mltta("compare", tmp_path / "out").returncode == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["tag", PHOTO, "--method", "ml-tta"], "the method ml-tta"),
        (["tag", PHOTO, "--model", "ViT-B/16"], "the model ViT-B/16"),
        (["tag", PHOTO, "--device", "cuda"], "the device cuda"),
        (["tag", PHOTO, "--engine", "torch"], "the engine torch"),
        (["eval", "folder", "--data", PHOTO.parent], "the method ml-tta"),
        (["methods", "tpt"], "the method tpt"),
        (["models", "export", "here", "-m", "mini"], "the engine torch"),
    ],
)
def test_what_needs_pytorch_says_so_in_a_line(words, what):
    done = mltta(*words)
    assert done.returncode == 2
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith(f"error: {what}")
    assert said.endswith(LINE)


def test_models_and_methods_are_listed():
    assert "mini" in mltta("models").stdout
    listed = mltta("methods")
    assert listed.returncode == 0, listed.stderr
    assert "ml-tta" in listed.stdout


def test_captions_are_built_and_searched(tmp_path):
    (tmp_path / "texts.txt").write_text("A dog on a sofa.\nA cat by the window.\n", encoding="utf-8")
    built = mltta("captions", "build", tmp_path / "texts.txt", "--out", tmp_path / "base")
    assert built.returncode == 0, built.stderr
    found = mltta("captions", "search", PHOTO, "--captions", tmp_path / "base")
    assert found.stdout.index("cat by") < found.stdout.index("dog on"), found.stderr


def test_a_library_is_made_searched_exported_and_taught(tmp_path):
    photos = [
        ROOT / "examples" / "photos" / name
        for name in sorted(os.listdir(PHOTO.parent))
        if name[-4:] == ".jpg"
    ]
    library, mine = tmp_path / "p.mltta", tmp_path / "mine.mltta"
    assert mltta("tag", *photos, "--library", library, "--labels", "cat, dog").returncode == 0
    found = mltta("search", library, "a cat", "-n", "1", "-f", "paths")
    assert Path(found.stdout.strip()).name == "cat.jpg", found.stderr
    taught = mltta("teach", library, "--label", "our mochi", PHOTO, "-o", mine)
    assert taught.returncode == 0, taught.stderr
    done = mltta("export", library, "--labels", mine, "-f", "json")
    assert '"our mochi"' in done.stdout, done.stderr


def test_the_server_offers_what_runs_and_tags():
    pytest.importorskip("fastapi")
    done = python(
        f"""
from mltta.serve.client import Client
from mltta.serve.offer import offered_methods
from tests.serve.running import serving
assert offered_methods() == ["auto", "clip", "dualprompt"], offered_methods()
with serving(("auto", "clip")) as url, Client(url) as client:
    print(client.tag([{str(PHOTO)!r}], labels=["cat", "dog"])[0]["present"])
assert "torch" not in sys.modules
"""
    )
    assert done.stdout == "['cat']\n", done.stderr
