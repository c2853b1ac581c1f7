"""Splits a folder into files small enough to transfer, and joins them again."""

from __future__ import annotations

import argparse
import hashlib
import json
import tarfile
from pathlib import Path

PIECE = 20 * 2**20


def split(folder: Path, out: Path, size: int = PIECE) -> list[Path]:
    """Write `folder` as one tar, split into parts of at most `size` bytes, with a manifest of checksums."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("pack.*"):
        old.unlink()
    whole = out / "pack.whole"
    with tarfile.open(whole, "w") as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            tar.add(path, str(path.relative_to(folder)))
    parts: list[Path] = []
    sums: dict[str, str] = {}
    with whole.open("rb") as source:
        while chunk := source.read(size):
            part = out / f"pack.{len(parts):03d}"
            part.write_bytes(chunk)
            sums[part.name] = hashlib.sha256(chunk).hexdigest()
            parts.append(part)
    whole.unlink()
    (out / "manifest.json").write_text(json.dumps({"parts": sums}, indent=1) + "\n")
    return parts


def join(pieces: Path, out: Path) -> Path:
    """Verify the parts against the manifest and unpack them into `out`; does nothing if already done."""
    done = out / ".complete"
    if done.exists():
        return out
    sums: dict[str, str] = json.loads((pieces / "manifest.json").read_text())["parts"]
    out.mkdir(parents=True, exist_ok=True)
    whole = out / "pack.whole"
    with whole.open("wb") as target:
        for name, expected in sorted(sums.items()):
            path = pieces / name
            if not path.exists():
                raise FileNotFoundError(f"piece {name} is missing in {pieces}: transfer it as well")
            chunk = path.read_bytes()
            if hashlib.sha256(chunk).hexdigest() != expected:
                raise ValueError(f"piece {name} does not match its checksum: transfer it again")
            target.write(chunk)
    with tarfile.open(whole) as tar:
        tar.extractall(out, filter="data")
    whole.unlink()
    done.touch()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["split", "join"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    if args.action == "split":
        for part in split(args.source, args.out):
            print(part, f"{part.stat().st_size / 2**20:.1f} MiB")
    else:
        print(join(args.source, args.out))


if __name__ == "__main__":
    main()
