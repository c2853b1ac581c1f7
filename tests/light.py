"""The tests that need no PyTorch, in an environment without it: ``python -m tests.light [PYTEST ARGUMENTS]``.

The environment is made of links to what is installed here: the package's own requirements, those of some extras and
of the tests, and what these require. Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
EXTRAS = ("", "serve", "heif", "parquet")
TESTS = ("pytest", "pytest-xdist", "hypothesis", "packaging")


def required() -> set[str]:
    """Names of the distributions that are linked."""
    found: set[str] = set()
    todo = [("mltta", extra) for extra in EXTRAS] + [(name, "") for name in TESTS]
    done: set[tuple[str, str]] = set()
    while todo:
        name, extra = todo.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if (key, extra) in done:
            continue
        done.add((key, extra))
        found.add(key)
        for line in requirements(key):
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                todo += [(one.name, own) for own in ("", *one.extras)]
    return found - {"mltta"}


def requirements(name: str) -> list[str]:
    """What a distribution says it requires; of this one the tree says it, as what is installed may be older."""
    if name != "mltta":
        return metadata.requires(name) or []
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    more = [
        f"{one} ; extra == '{extra}'" for extra in EXTRAS if extra for one in extras[extra] if ";" not in one
    ]
    return [*project["dependencies"], *more]


def make(place: Path) -> Path:
    """An environment of links; its Python."""
    venv.create(place, with_pip=False, symlinks=os.name != "nt")
    inside = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    line = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(
        subprocess.run([inside, "-c", line], capture_output=True, text=True, check=True).stdout.strip()
    )
    for name in required():
        dist = metadata.distribution(name)
        for top in {file.parts[0] for file in dist.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(dist.locate_file(top))))
    (packages / "mltta.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    return inside


def main() -> None:
    """Make the environment, check that it is light, and run the tests there."""
    with tempfile.TemporaryDirectory() as place:
        inside = make(Path(place))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        line = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None)"
        if subprocess.run([inside, "-c", line], env=env).returncode:
            sys.exit("the light environment has PyTorch: something it requires brings it")
        asked = sys.argv[1:] or ["-n", "2"]
        sys.exit(subprocess.run([inside, "-m", "pytest", *asked], cwd=ROOT, env=env).returncode)


if __name__ == "__main__":
    main()
