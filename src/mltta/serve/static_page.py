"""Writes the web page as static files: mltta, its model, Pyodide and ONNX Runtime Web, for any host."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from mltta.errors import ConfigError
from mltta.storage.folders import MINI

ASSETS, PACKAGE = MINI.parent, MINI.parents[1]
#: parts of this package that no page uses
LEFT_OUT = {"accelerate", "cli", "distributed", "evaluation", "reproduction"}
#: libraries in Python, copied from where they are installed
LIBRARIES = ("array_api_compat", "ftfy", "wcwidth")
REGISTRY = "https://registry.npmjs.org"
#: npm packages: version, its checksum, and the files taken
PACKAGES = {
    "pyodide": (
        "0.29.3",
        "sha512-22UBuhOJawj7vKUnS7/F3xK+515LJdjiMAHoCfuS6/PbHiOrSQVnYwDe+2sbVwiOZ3sMMexdXICew6NqOMQGgA==",
        ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"),
    ),
    "onnxruntime-web": (
        "1.30.0",
        "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
        tuple(
            f"dist/{name}"
            for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
        ),
    ),
}
#: wheels of Pyodide, whose checksums are in its lock file
WHEELS = ("numpy", "pillow", "regex")
DISTRIBUTION = "https://cdn.jsdelivr.net/pyodide/v{}/full/{}"


def write_page(folder: Path, vendor: Path | None = None) -> None:
    """Write a folder that any web server can offer.

    Args:
        vendor: a folder with the files of Pyodide and ONNX Runtime Web, instead of downloading them.
    """
    page, engine = folder / "page", folder / "engine"
    for place in (page, engine):
        place.mkdir(parents=True, exist_ok=True)
    for file in sorted((ASSETS / "page").iterdir()):
        shutil.copyfile(file, page / file.name)
    for file in sorted((ASSETS / "static").iterdir()):
        shutil.copyfile(file, page / file.name)
    html = (page / "index.html").read_text(encoding="utf-8").replace("/page/", "page/")
    (page / "index.html").unlink()
    (folder / "index.html").write_text(html, encoding="utf-8")
    archives = _libraries(engine, vendor)
    with zipfile.ZipFile(engine / "mltta.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            name = file.relative_to(PACKAGE)
            if file.is_file() and file.suffix != ".pyc" and name.parts[0] not in LEFT_OUT:
                archive.write(file, Path("mltta") / name)
        for library in map(import_module, LIBRARIES):
            other = Path(str(library.__file__)).parent
            for file in sorted(other.rglob("*.py")):
                archive.write(file, file.relative_to(other.parent))
    (engine / "archives.json").write_text(json.dumps([*archives, "mltta.zip"]), encoding="utf-8")


def _libraries(engine: Path, vendor: Path | None) -> list[str]:
    """Write Pyodide and ONNX Runtime Web; returns the names of the wheels."""
    for package, (version, integrity, names) in PACKAGES.items():
        if vendor is not None:
            for name in names:
                _copy(vendor / Path(name).name, engine)
            continue
        held = _download(f"{REGISTRY}/{package}/-/{package}-{version}.tgz", integrity, _sha512)
        with tarfile.open(fileobj=io.BytesIO(held)) as archive:
            for name in names:
                member = archive.extractfile(f"package/{name}")
                assert member is not None
                (engine / Path(name).name).write_bytes(member.read())
    lock = json.loads((engine / "pyodide-lock.json").read_bytes())["packages"]
    wheels = []
    for name in WHEELS:
        wheel = lock[name]["file_name"]
        if vendor is not None:
            if not (vendor / wheel).is_file() and name == "regex":
                continue  # only labels of one's own need it
            _copy(vendor / wheel, engine)
        else:
            url = DISTRIBUTION.format(PACKAGES["pyodide"][0], wheel)
            (engine / wheel).write_bytes(_download(url, lock[name]["sha256"], _sha256))
        wheels.append(wheel)
    return wheels


def _copy(file: Path, folder: Path) -> None:
    if not file.is_file():
        raise ConfigError(f"{file.parent} has no {file.name}")
    shutil.copyfile(file, folder / file.name)


def _sha512(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(url: str, wanted: str, digest: Callable[[bytes], str]) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise ConfigError(f"{url} cannot be downloaded ({error}): use --vendor DIR") from error
    if digest(content) != wanted:
        raise ConfigError(f"{url} is not the file that was tested: its checksum differs")
    return content
