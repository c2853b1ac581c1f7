"""Train the embedded model; README.md describes the losses.

    python -m training.train --pieces WORK/pieces --out RUNS --minutes 8 --run parts
    python -m training.train --pieces WORK/pieces --out RUNS --minutes 20 --run a --run b:lr_image=2e-4,seed=1 --soup

Each run saves its weights, whole and in parts, and its log in RUNS/<name>; data are loaded once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from training import labeled, pack
from training import model as clip
from training.holdout import measure
from training.joint_phase import JointPhase
from training.judge import Judge
from training.material import Material
from training.progress import Log
from training.recipe import Recipe, describe, named
from training.rule import AUTO, Scale
from training.soup import mixed
from training.text_phase import learn_texts
from training.towers import Towers

RESERVE = 20.0  # seconds reserved for saving and evaluation at the end of a run
TEXT_SHARE = 0.3  # maximum fraction of a run's time for the text tower alone
SHARPER = 1.5  # calibrates the classifiers on ImageNet photos (README, "The judge")


def train(
    material: Material,
    judge: Judge,
    recipe: Recipe,
    out: Path,
    deadline: float,
    views: Sequence[Scale] = AUTO,
) -> None:
    """Execute one run, from the classifier's weights to a folder that open_clip can load.

    Args:
        deadline: latest end, as `time.time()`; the schedule is shortened to it.
    """
    log, begin = Log(out / "log.jsonl"), time.time()
    settings = dataclasses.asdict(recipe) | {"base": Path(recipe.base).name}
    log(recipe=settings, images=len(material.images), sentences=len(material.sentences))
    towers = Towers(material, recipe)
    if not recipe.base:
        learn_texts(towers, material, recipe, log, begin + TEXT_SHARE * (deadline - begin))

    def finish(step: int, state: dict[str, Tensor]) -> None:
        towers.model.load_state_dict(state)  # the next phase continues from it
        clip.save(out, state, towers.config, material.folder / pack.BPE)
        figures = measure(clip.read(out)[0].to(material.device), material, views)
        log(phase="held out", step=step, **figures)
        (out / "parts" / "log.jsonl").write_bytes(log.file.read_bytes())

    JointPhase(material, towers, judge, recipe).run(log, deadline - RESERVE, finish)


def main(argv: Sequence[str] | None = None) -> None:
    """Load the data of all runs, then execute them one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="settings:\n" + describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or unpacked pack) from prepare")
    parser.add_argument("--labeled", type=Path, help="folder of labeled photos that gather wrote")
    parser.add_argument(
        "--without", type=Path, help="file of labels, one per line, whose photos are left out"
    )
    parser.add_argument("--out", type=Path, required=True, help="output folder; each run gets a subfolder")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="NAME[:SETTING=VALUE,...]",
        help="name and settings of a run; may be repeated",
    )
    parser.add_argument("--set", default="", metavar="SETTING=VALUE,...", help="settings of all runs")
    parser.add_argument("--minutes", type=float, default=60.0, help="minutes for all runs, including loading")
    parser.add_argument("--soup", action="store_true", help="also average the weights of all runs at the end")
    parser.add_argument(
        "--keep", type=int, nargs=2, default=(400, 100), help="held-out Flickr8k and ImageNet images"
    )
    parser.add_argument("--trial", type=int, help="use only N images of each set, for a trial")
    parser.add_argument("--store", type=int, default=256, help="size of the images in memory")
    parser.add_argument("--judge-size", type=int, default=288, help="input size for judging (default: 288)")
    parser.add_argument(
        "--views", type=Scale.parse, nargs="+", default=AUTO, help="views for evaluation on held-out images"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    without = args.without.read_text(encoding="utf-8").splitlines() if args.without else []
    begin, base = time.time(), Recipe().changed(args.set)
    runs = [named(text, base) for text in args.run or ["run"]]
    torch.set_float32_matmul_precision("high")
    # cudnn.benchmark stays off: trying every algorithm for the depthwise layers takes minutes
    photos = labeled.read(args.labeled, held_out=False, without=without) if args.labeled else None
    device = torch.device(args.device)
    folder = pack.unpacked(args.pieces)
    material = Material(folder, device, photos, args.store, tuple(args.keep), args.trial)
    judge = Judge(material.folder, material.images, args.judge_size, SHARPER)
    print(f"loaded in {time.time() - begin:.0f} s", flush=True)
    end = begin + 60 * args.minutes
    for number, (name, recipe) in enumerate(runs):
        print(f"run {name}", flush=True)
        left = end - time.time()  # shared evenly by the remaining runs
        train(material, judge, recipe, args.out / name, time.time() + left / (len(runs) - number), args.views)
    if args.soup:
        mixed([args.out / name for name, _ in runs], args.out / "soup")
        figures = measure(clip.read(args.out / "soup")[0].to(material.device), material, args.views)
        (args.out / "soup" / "parts" / "held_out.json").write_text(json.dumps(figures, indent=1) + "\n")
        print("soup", " ".join(f"{k} {v:.4g}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
