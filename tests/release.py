"""Build a release, check it, try it in an empty environment with the network cut off, and say what to do next.

python -m tests.release [--python python3.10 …]
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mltta
from tests import sbom

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
#: addresses that lead nowhere, so that a request fails at once
CUT_OFF = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: str | Path, **more: object) -> None:
    """Run a command of ours; its words are shown when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")


def build(tree: Path, place: Path) -> list[Path]:
    """The wheel and the sdist of a tree: equal trees give equal bytes, whenever and wherever they are built."""
    shutil.rmtree(place, ignore_errors=True)
    date = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    run(sys.executable, "-m", "build", "--outdir", place, tree, env={**os.environ, "SOURCE_DATE_EPOCH": date})
    files = sorted(place.iterdir())
    for file in files:
        if file.suffix == ".gz":
            settle(file, int(date))
    return files


def settle(sdist: Path, date: int) -> None:
    """Rewrite an sdist without what differs between machines: times, owners, permissions, the order of files."""
    with tarfile.open(sdist) as old:
        held = [(one, b"" if one.isdir() else old.extractfile(one).read()) for one in old]  # type: ignore[union-attr]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as new:
        for one, content in sorted(held, key=lambda pair: pair[0].name):
            plain = tarfile.TarInfo(one.name)
            plain.type, plain.size, plain.mtime = one.type, len(content), date
            plain.mode = 0o755 if one.isdir() else 0o644
            new.addfile(plain, io.BytesIO(content))
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=date) as packed:
        packed.write(whole.getvalue())


def build_again(files: Sequence[Path]) -> None:
    """Build a copy of the tree elsewhere, with other times and permissions, and compare the bytes."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory() as place:
        for name in filter(None, names):
            (Path(place) / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copyfile(ROOT / name, Path(place) / "tree" / name)
            copy.chmod(0o600)
        again = build(Path(place) / "tree", Path(place) / "dist")
        for one, other in zip(files, again, strict=True):
            if one.name != other.name or one.read_bytes() != other.read_bytes():
                sys.exit(f"{one.name} differs when it is built again")
            say(
                f"{one.name}: built again elsewhere, equal; SHA-256 {hashlib.sha256(one.read_bytes()).hexdigest()}"
            )


def apart() -> list[str]:
    """A prefix that gives a command no network at all, where the system can."""
    prefix = ["unshare", "--map-root-user", "--net"]
    able = shutil.which("unshare") and not subprocess.run([*prefix, "true"], capture_output=True).returncode
    return prefix if able else []


def try_them(python: str, files: Sequence[Path]) -> None:
    """Install each file in an environment that was empty, and tag a photo there with the network cut off."""
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        run(python, "-m", "venv", home / "env", env=alone)
        inside = home / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        shutil.copyfile(ROOT / "examples" / "photos" / "cat.jpg", home / "photo.jpg")
        cut = (
            alone
            | CUT_OFF
            | {"HF_HOME": str(home / "hub"), "MLTTA_CACHE": str(home / "cache"), "no_proxy": ""}
        )
        tag = [inside, "-m", "mltta", "tag", "photo.jpg", "--labels", "dog, cat, car", "--format", "json"]
        version = subprocess.run(
            [inside, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for file in files:
            run(inside, "-m", "pip", "install", "--quiet", file, env=alone)
            done = subprocess.run(
                [*apart(), *map(str, tag)], cwd=home, env=cut, capture_output=True, text=True
            )
            if done.returncode or json.loads(done.stdout)[0]["present"] != ["cat"]:
                sys.exit(f"{file.name} does not tag a photo as it should:\n{done.stdout}\n{done.stderr}")
            say(f"{file.name}: installs and tags a photo with the network cut off, {version}")
            run(inside, "-m", "pip", "uninstall", "--quiet", "--yes", "mltta", env=alone)


def main(argv: Sequence[str] | None = None) -> None:
    """Build, check, try, and say what to do next."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--python", action="append", help="an interpreter to try it with, by default this one"
    )
    args = parser.parse_args(argv)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## {mltta.__version__}" not in changes:
        sys.exit(f"CHANGELOG.md has no section for {mltta.__version__}")
    files = build(ROOT, DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    build_again(files)
    say(f"{sbom.write(DIST.parent / 'build').relative_to(ROOT)}: what this version consists of")
    for file in files:
        say(f"{file.relative_to(ROOT)}: {file.stat().st_size / 2**20:.1f} MiB, twine finds nothing wrong")
    for python in args.python or [sys.executable]:
        try_them(python, files)
    version = mltta.__version__
    if f"## {version} (unreleased)" in changes:
        say(
            f"Next: in CHANGELOG.md write the date in the place of (unreleased), and commit.\nThen: git tag v{version}"
        )
    else:
        say(f"Next: git tag v{version}")
    say(f"and git push origin v{version}: the workflow `publish` tests it again and uploads it to PyPI.")


if __name__ == "__main__":
    main()
