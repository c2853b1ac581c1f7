"""Compare the tags of the sample photos with what they show: python -m benchmarks.samples [--out FILE.json]

The photos are tagged with the default list and the default method. examples/photos/truth.md lists what each photo
clearly shows and what is arguable; any other tag is wrong.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import mltta

PHOTOS = Path(__file__).parents[1] / "examples" / "photos"


def truth() -> dict[str, tuple[set[str], set[str]]]:
    """What each photo clearly shows, and what is arguable."""
    rows = [line.split("|")[1:4] for line in (PHOTOS / "truth.md").read_text(encoding="utf-8").splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 3]
    return {
        name: (set(clear.split(", ")), set(arguable.split(", ")))
        for name, clear, arguable in cells
        if name.endswith(".jpg")
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the counts as JSON")
    args = parser.parse_args()
    tagger = mltta.Tagger()
    counts = dict.fromkeys(("clearly visible", "found", "arguable", "wrong", "missed"), 0)
    for name, (clear, arguable) in truth().items():
        shown = tagger(PHOTOS / name).present
        groups = {
            "found": [label for label in shown if label in clear],
            "arguable": [label for label in shown if label in arguable],
            "wrong": [label for label in shown if label not in clear | arguable],
            "missed": sorted(clear.difference(shown)),
        }
        print(name)
        for group, labels in groups.items():
            counts[group] += len(labels)
            print(f"  {group:<9} {', '.join(labels)}")
        counts["clearly visible"] += len(clear)
    print(", ".join(f"{count} {group}" for group, count in counts.items()))
    if args.out:
        args.out.write_text(json.dumps(counts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
