"""Measure the figures that README.md and the pages quote, and store them in docs/measured.json.

    python -m docs.generate.measure --voc VOCdevkit --coco coco [RUN ...] && python -m docs.generate

Runs: auto, samples, zero-shot, frontier (default: all but frontier, which needs a GPU). A run that is not named keeps
its figures. Each run records its command and its machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from docs.generate.__main__ import MEASURED

SCORINGS = ("mAP", "mAP softmax", "mAP z-score")


def machine() -> str:
    """The processor that figures are measured on."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"


def run(*words: str) -> None:
    """Run a Python module and show what it prints."""
    subprocess.run([sys.executable, "-m", *words], check=True)


def auto(voc: str, coco: str, out: Path) -> dict[str, Any]:
    """`auto` on both dev sets, with its ablation."""
    run("benchmarks.auto", "--voc", voc, "--coco", coco, "--ablation", "--out", str(out / "auto.json"))
    return {
        "command": "python -m benchmarks.auto --voc VOC --coco COCO --ablation",
        "figures": json.loads((out / "auto.json").read_text(encoding="utf-8")),
    }


def samples(voc: str, coco: str, out: Path) -> dict[str, Any]:
    """Tags of the sample photos against what they show."""
    run("benchmarks.samples", "--out", str(out / "samples.json"))
    return {
        "command": "python -m benchmarks.samples",
        "figures": json.loads((out / "samples.json").read_text(encoding="utf-8")),
    }


def zero_shot(voc: str, coco: str, out: Path) -> dict[str, Any]:
    """Plain zero-shot scoring on both dev sets, each figure with its interval."""
    figures = {}
    for name, words in (("voc", ("voc2012", "-d", voc)), ("coco", ("coco2017:train2017", "-d", coco))):
        dataset, _, split = words[0].partition(":")
        more = ("--split", split) if split else ()
        command = ("mltta", "eval", dataset, *words[1:], *more, "--method", "clip", "-f", "json")
        printed = subprocess.run(
            [sys.executable, "-m", *command, "-o", str(out)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        table = json.loads(printed)
        cells = dict(zip(table["columns"], table["rows"][0]["cells"], strict=True))
        for scoring in SCORINGS[:2]:
            figures[f"{name} {scoring}"] = [cells[scoring][part] for part in ("ours", "low", "high")]
    return {"command": "mltta eval DATASET --data DIR --method clip", "figures": figures}


def frontier(voc: str, coco: str, out: Path) -> dict[str, Any]:
    """Every method on both dev sets."""
    data = ("-d", f"voc2012={voc}", "-d", f"coco2017:train2017={coco}")
    run("mltta", "reproduce", "--frontier", *data, "-o", str(out))
    tables = {}
    for name in ("voc", "coco"):
        (file,) = out.glob(f"frontier-mini-{name}*.json")
        tables[name] = by_best(json.loads(file.read_text(encoding="utf-8")))
    return {
        "command": "mltta reproduce --frontier --data voc2012=VOC --data coco2017:train2017=COCO",
        "tables": tables,
    }


def by_best(table: dict[str, Any]) -> dict[str, Any]:
    """The table of `reproduce --frontier`, sorted by the best of the three scorings, which is bold."""
    rows = []
    for row in table["rows"]:
        cells = dict(zip(table["columns"], row["cells"], strict=True))
        if "ours" not in cells["mAP"]:
            continue
        best = max(cells[name]["ours"] for name in SCORINGS)
        shown = []
        for name in SCORINGS:
            cell = cells[name]
            text = f"{cell['ours']:.2f}" + re.sub(r"^(?=.)", " ", cell.get("note", ""))
            shown.append(f"**{text}**" if cell["ours"] == best else text)
        rows.append(
            (
                best,
                [row["name"], f"{cells['views']['ours']:.3g}", *shown, f"{cells['F1 of sets']['ours']:.1f}"],
            )
        )
    rows.sort(key=lambda row: -row[0])
    return {"columns": ["cost", "raw", "softmax", "z-score", "F1 of sets"], "rows": [row for _, row in rows]}


RUNS: dict[str, Callable[[str, str, Path], dict[str, Any]]] = {
    "auto": auto,
    "samples": samples,
    "zero-shot": zero_shot,
    "frontier": frontier,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"any of {', '.join(RUNS)}")
    parser.add_argument(
        "--voc", required=True, metavar="DIR", help="VOCdevkit with the dev half of VOC2012 val"
    )
    parser.add_argument("--coco", required=True, metavar="DIR", help="COCO with the dev sample of train2017")
    args = parser.parse_args()
    if unknown := [name for name in args.runs if name not in RUNS]:
        parser.error(f"unknown run: {', '.join(unknown)}")
    measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    for name in args.runs or ("auto", "samples", "zero-shot"):
        with tempfile.TemporaryDirectory() as out:
            measured[name] = {"machine": machine()} | RUNS[name](args.voc, args.coco, Path(out))
        MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
