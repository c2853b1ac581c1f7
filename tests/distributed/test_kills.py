"""Five hundred photos by the command, with the model that ships: undisturbed, and with all killed that can be."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("ray", reason="pip install 'mltta[ray]'")
ROOT = Path(__file__).parents[2]


def make_distinct(folder: Path, count: int) -> Path:
    """Crops of the example photos in other colours."""
    given = sorted((ROOT / "examples/photos").glob("*.jpg"))
    folder.mkdir(parents=True)
    for i in range(count):
        dice = np.random.default_rng(i)
        with Image.open(given[i % len(given)]) as photo:
            side, colours = dice.uniform(0.6, 0.95), dice.uniform(0.7, 1.3, 3)
            left, top = dice.uniform(0, 1 - side, 2) * photo.size
            box = (left, top, left + side * photo.width, top + side * photo.height)
            crop = np.asarray(photo.convert("RGB").resize((400, 300), box=box))
        Image.fromarray(np.clip(crop * colours, 0, 255).astype(np.uint8)).save(
            folder / f"{i:04}.jpg", quality=88
        )
    return folder


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "mltta", "tag", *map(str, words)]


def start(*words: object) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command(*words), stdout=quiet, stderr=quiet)


def done(*words: object) -> None:
    subprocess.run(command(*words), check=True, capture_output=True)


def parts(out: Path) -> list[dict]:
    """What the manifest says is done."""
    file = out / "_manifest.json"
    return json.loads(file.read_bytes())["parts"] if file.is_file() else []


def workers_below(driver: int) -> Iterator[int]:
    """Ray's actors that a driver's own cluster has started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for pid in parents:
        above, up = [], pid
        while up in parents:
            up = parents[up]
            above.append(up)
        try:
            named = b"MapWorker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if named and driver in above:
            yield pid


def wait_until(ready, process: subprocess.Popen[bytes], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_five_hundred_photos_are_the_same_table_whatever_was_killed(tmp_path):
    photos, count = make_distinct(tmp_path / "photos", 500), 500
    words = [photos, "-l", "coco", "--set", "effort=fast", "--threshold", "0.05"]
    done(*words, "-o", tmp_path / "plain.csv")
    want = (tmp_path / "plain.csv").read_bytes()
    ray = [*words, "--ray", "local", "--ray-workers", 2]

    def check(name: str) -> None:
        out = tmp_path / name
        done(out, "-o", tmp_path / f"{name}.csv")
        assert (tmp_path / f"{name}.csv").read_bytes() == want, name
        assert sum(part["images"] for part in parts(out)) == count
        print(f"{name}: equal", flush=True)

    done(*ray, "-o", tmp_path / "undisturbed")
    check("undisturbed")

    out = tmp_path / "worker"
    process = start(*ray, "-o", out)
    wait_until(lambda: len(parts(out)) >= 3, process)
    hit = next(workers_below(process.pid))
    os.kill(hit, signal.SIGKILL)
    assert process.wait(900) == 0
    check("worker")

    out = tmp_path / "driver"
    process = start(*ray, "-o", out)
    wait_until(lambda: len(parts(out)) >= 5, process)
    process.kill()
    process.wait()
    before = parts(out)
    assert 5 <= len(before) < 16
    done(*ray, "-o", out)
    assert [part for part in parts(out) if part in before] == before, "what was done is not done again"
    check("driver")

    out, dice = tmp_path / "undisturbed", random.Random(0)
    before = parts(out)
    for part in dice.sample(before, 3):
        file = out / f"part-{part['shard']:07}.parquet"
        content = bytearray(file.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        file.write_bytes(content)
    assert (
        subprocess.run(command(out, "-o", tmp_path / "hurt.csv"), check=False, capture_output=True).returncode
        == 2
    )
    done(*ray, "-o", out)
    changed = [a for a, b in zip(parts(out), before, strict=True) if a["seconds"] != b["seconds"]]
    assert len(changed) == 3, "only what was damaged is done again"
    (tmp_path / "undisturbed.csv").unlink()
    check("undisturbed")
