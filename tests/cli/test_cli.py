"""The command line, run as a user runs it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta.cli import main
from tests.golden_data import GOLDEN
from tests.test_tagger import photo

MODEL = ["--weights", str(GOLDEN / "checkpoints/vit.safetensors"), "--quick-gelu", "--device", "cpu"]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def mltta(*args, check: int = 0) -> Done:
    """Run the entry point in this process: the same code as the installed command, without a new start."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["mltta", *map(str, args)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.argv = before
    done = Done(code, out.getvalue(), err.getvalue())
    assert done.returncode == check, done.stdout + done.stderr
    return done


def bomb_png(path, side: int = 20_000) -> None:
    """A 1-bit PNG of side × side white pixels, written a row at a time."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    squeeze = zlib.compressobj(9)
    row = b"\0" + b"\xff" * ((side + 7) // 8)
    data = b"".join(squeeze.compress(row) for _ in range(side)) + squeeze.flush()
    header = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """A folder as people have them: good photos between files that are not what they seem."""
    folder = tmp_path_factory.mktemp("photos")
    photo(0, (640, 480)).save(folder / "good1.jpg")
    photo(1, (480, 640)).save(folder / "good2.png")
    whole = io.BytesIO()
    photo(2, (640, 480)).save(whole, "JPEG", quality=95)
    (folder / "truncated.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (folder / "text.jpg").write_text("this is not a picture")
    Image.new("RGB", (1, 1), "red").save(folder / "one_pixel.png")
    grey = np.linspace(0, 65535, 200 * 100).reshape(100, 200).astype(np.uint16)
    Image.fromarray(grey).save(folder / "sixteen_bit.png")
    photo(3, (200, 100)).convert("CMYK").save(folder / "cmyk.jpg")
    frames = [photo(i, (120, 90)) for i in range(4)]
    frames[0].save(folder / "animated.gif", save_all=True, append_images=frames[1:], duration=50)
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(4, (300, 200)).rotate(90, expand=True).save(folder / "rotated.jpg", exif=exif, quality=95)
    bomb_png(folder / "bomb.png")
    return folder


def test_a_messy_folder_is_tagged_as_far_as_can_be_and_the_rest_is_listed_with_reasons(messy):
    done = mltta("tag", messy, "--labels", "voc", *MODEL, "--format", "jsonl", check=1)
    records = {os.path.basename(r["image"]): r for r in map(json.loads, done.stdout.splitlines())}
    assert len(records) == 10
    failed = {name for name, record in records.items() if "error" in record}
    assert failed == {"truncated.jpg", "text.jpg", "bomb.png"}
    assert "3 of 10 could not be tagged" in done.stderr
    for name in failed:
        assert name in done.stderr
    assert all("labels" in record for name, record in records.items() if name not in failed)


def test_exif_rotation_is_applied_before_tagging(messy, tmp_path):
    upright = Image.open(messy / "rotated.jpg")
    assert upright.size == (200, 300)
    from PIL import ImageOps

    ImageOps.exif_transpose(upright).save(tmp_path / "upright.png")
    args = ["--labels", "voc", *MODEL, "--format", "json", "--top-k", "20"]
    turned = json.loads(mltta("tag", messy / "rotated.jpg", *args).stdout)[0]["labels"]
    straight = json.loads(mltta("tag", tmp_path / "upright.png", *args).stdout)[0]["labels"]
    assert turned == straight


MEMORY = """
import resource, sys, threading, time
from mltta import Tagger, load_backbone
tagger = Tagger(load_backbone(None, {weights!r}, quick_gelu=True, device="cpu"), "voc")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
list(tagger(sys.argv[1]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


def test_memory_stays_below_two_gibibytes_beyond_the_model(messy, tmp_path):
    folder = tmp_path / "large"
    folder.mkdir()
    for name in ("bomb.png", "good1.jpg"):
        (folder / name).symlink_to(messy / name)
    photo(7, (12_000, 9_000)).save(folder / "huge.jpg", quality=50)  # 108 megapixels: large, but allowed
    code = MEMORY.format(weights=str(GOLDEN / "checkpoints/vit.safetensors"))
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2.0


def test_every_format_holds_the_same_answer(messy, tmp_path):
    args = [
        "tag",
        messy / "good1.jpg",
        messy / "text.jpg",
        "--labels",
        "dog, cat, sofa",
        *MODEL,
        "--top-k",
        "2",
    ]
    as_json = json.loads(mltta(*args, "--format", "json", check=1).stdout)
    as_lines = [json.loads(line) for line in mltta(*args, "--format", "jsonl", check=1).stdout.splitlines()]
    assert as_json == as_lines
    mltta(*args, "--format", "csv", "-o", tmp_path / "tags.csv", check=1)
    with (tmp_path / "tags.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = as_json[0]["labels"]
    assert [row["label"] for row in rows] == [labels[0]["label"], labels[1]["label"], ""]
    assert float(rows[0]["score"]) == pytest.approx(labels[0]["score"], abs=1e-6)
    assert "text.jpg" in rows[2]["error"]
    table = mltta(*args, check=1).stdout
    assert labels[0]["label"] in table
    assert "good1.jpg" in table


def test_threshold_shows_the_labels_above_it(messy):
    args = ["tag", messy / "good1.jpg", "--labels", "voc", *MODEL, "--format", "json"]
    every = json.loads(mltta(*args, "--threshold", "0").stdout)[0]["labels"]
    assert len(every) == 20
    cut = (every[4]["score"] + every[5]["score"]) / 2
    assert json.loads(mltta(*args, "--threshold", f"{cut:.9f}").stdout)[0]["labels"] == every[:5]


def test_a_path_that_is_missing_is_listed_and_the_rest_is_tagged(messy):
    done = mltta(
        "tag", messy / "good1.jpg", "nowhere.jpg", "--labels", "voc", *MODEL, "--format", "json", check=1
    )
    assert len(json.loads(done.stdout)) == 1
    assert "1 of 2 could not be tagged" in done.stderr
    assert "nowhere.jpg: no such file or folder" in done.stderr


def test_a_folder_for_pictures_that_cannot_be_made_is_refused_before_any_work(messy):
    done = mltta("tag", messy / "good1.jpg", *MODEL, "--annotate", messy / "text.jpg", check=2)
    assert "cannot be written" in done.stderr
    assert done.stdout == ""


def test_annotated_pictures_are_written_beside_the_answer(messy, tmp_path):
    mltta(
        "tag",
        messy / "good1.jpg",
        messy / "good2.png",
        "--labels",
        "voc",
        *MODEL,
        "--annotate",
        tmp_path / "out",
    )
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["good1.png", "good2.png"]
    assert Image.open(tmp_path / "out" / "good1.png").size == (640 + 380, 480)


def test_settings_of_a_method_are_set_and_checked(messy):
    args = ["tag", messy / "good1.jpg", "--labels", "voc", *MODEL, "--format", "json", "--method", "ml-tta"]
    few = mltta(*args, "--set", "views=4", "-s", "bind=false").stdout
    assert few != mltta(*args).stdout
    for bad, reason in (
        ("views=many", "an integer"),
        ("colour=red", "select_ratio"),
        ("views=0", "at least 1"),
        ("objective=mse", "mean, marginal, bce"),
        ("bind=maybe", "true or false"),
    ):
        assert reason in mltta(*args, "--set", bad, check=2).stderr


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["tag", "nowhere", "--labels", "voc"], "nowhere"),
        (["tag", ".", "--labels", "dog,, cat"], "Label 2 (list) is blank"),
        (["tag", ".", "-o", "tags.xlsx"], "unknown format .xlsx"),
        (["tag", ".", "-f", "html"], "html needs a file"),
        (["tag", ".", "-f", "jsonl", "--wide"], "--wide needs csv or parquet"),
        (["tag", ".", "--dry-run"], "--dry-run needs --keywords"),
        (["tag", ".", "--copy-to", "sorted"], "sorted/{label}"),
        (["tag", ".", "--labels", "labels.txt"], "labels.txt"),
        (["tag", ".", "--labels", "voc", "--method", "magic"], "magic"),
        (["tag", ".", "--labels", "voc", "--captions", "none.txt"], "none.txt"),
    ],
)
def test_wrong_usage_is_one_clear_line_and_exit_code_2(messy, args, reason):
    args = [str(messy / "good1.jpg") if a == "." else a for a in args]
    done = mltta(*args, *MODEL, check=2)
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["tag", "eval"])
def test_a_command_without_arguments_says_what_is_missing(command):
    assert "Missing argument" in mltta(command, check=2).stderr


def test_a_missing_model_is_explained_offline(messy, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = mltta("tag", messy / "good1.jpg", "--labels", "voc", "--model", "ViT-B/16", check=2)
    assert "ViT-B/16" in done.stderr
    assert "Options: use the embedded model" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_methods_and_models_teach():
    assert "Exit code" in mltta("tag", "--help").stdout
    assert mltta("--version").stdout.startswith("mltta 0.")
    listing = mltta("methods").stdout
    for name in ("clip", "tpt", "ml-tta"):
        assert name in listing
    assert "captions_per_view" in mltta("methods", "ml-tta").stdout
    listed = ["mini", "RN50:openai", "RN101:openai", "ViT-B/32:openai", "ViT-B/16:openai"]
    assert mltta("models").stdout.split() == listed
    assert "ViT-B-32:laion2b_s34b_b79k" in mltta("models", "--all", "--filter", "laion2b").stdout


def test_the_installed_command_is_this_one():
    command = Path(sys.executable).with_name("mltta")
    done = subprocess.run([command, "methods"], capture_output=True, text=True, check=True)
    assert "ml-tta" in done.stdout


def test_a_path_misspelt_is_told_before_anything_is_loaded():
    command = [sys.executable, "-X", "importtime", "-m", "mltta", "tag", "nowhere.jpg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nowhere.jpg: no such file or folder; check the spelling of the path" in done.stderr
    loaded = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert "mltta.cli.tag" in loaded
    assert "torch" not in loaded


def test_help_does_not_wait_for_torch():
    code = "import sys, mltta.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
