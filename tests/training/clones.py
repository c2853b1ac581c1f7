"""Small pictures, and git clones that contain them."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

from training.sources import Source

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


def picture(seed: int, width: int = 132, height: int = 112) -> Image.Image:
    """Soft patches of color with noise, another for each seed."""
    rng = np.random.default_rng(seed)
    patches = Image.fromarray(rng.integers(30, 226, (8, 9, 3), dtype=np.uint8))
    soft = np.asarray(patches.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    return Image.fromarray((soft + rng.integers(-6, 7, soft.shape)).clip(0, 255).astype(np.uint8))


def saved(image: Image.Image, kind: str = "JPEG", quality: int = 92) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=quality)
    return buffer.getvalue()


def clone(folder: Path, name: str, files: dict[str, bytes], bare: bool = True) -> str:
    """A git directory with some files in one commit; returns the commit."""
    work = folder.parent / "work" / name.replace("/", "+")
    for path, data in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "photos"]):
        subprocess.run([*GIT, *command], cwd=work, check=True)
    target = folder / name.replace("/", "+")
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "clone", "-q", *(["--bare"] if bare else []), str(work), str(target)], check=True)
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=work, capture_output=True, check=True, text=True)
    return found.stdout.strip()


def source(repository: str = "o/r", photos: dict[str, str] | None = None, **more: object) -> Source:
    line = {"repository": repository, "commit": "0" * 40, "license": "MIT", "group": "objects"}
    return Source.of({**line, "absent": "none", "photos": photos or {}, **more})
