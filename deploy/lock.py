"""Write requirements.txt: every library of the image in one version, with the hashes of its files.

    python deploy/lock.py

Files are resolved for Python 3.12 on x86-64 and ARM Linux; pip refuses any file with another hash.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PLATFORMS = ("x86_64", "aarch64")
EXTRAS = "serve,heif"


def resolved(machine: str) -> dict[str, tuple[str, str]]:
    """The version and hash of each library for a machine."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
    ]
    command += [
        "--python-version",
        "3.12",
        "--implementation",
        "cp",
        "--only-binary",
        ":all:",
        "--target",
        "none",
    ]
    for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
        command += ["--platform", f"{tag}_{machine}"]
    done = subprocess.run(
        [*command, f"{HERE.parent}[{EXTRAS}]"], stdout=subprocess.PIPE, text=True, check=True
    )
    found = {}
    for one in json.loads(done.stdout)["install"]:
        name = one["metadata"]["name"].lower().replace("_", "-")
        if name != "mltta":
            found[name] = one["metadata"]["version"], one["download_info"]["archive_info"]["hashes"]["sha256"]
    return found


def main() -> None:
    found = [resolved(machine) for machine in PLATFORMS]
    lines = ["# python deploy/lock.py"]
    for name in sorted(found[0]):
        versions = {held[name][0] for held in found}
        if len(versions) != 1:
            sys.exit(f"{name}: another version for each machine: {', '.join(sorted(versions))}")
        hashes = " ".join(f"--hash=sha256:{value}" for value in sorted({held[name][1] for held in found}))
        lines.append(f"{name}=={versions.pop()} {hashes}")
    (HERE / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
