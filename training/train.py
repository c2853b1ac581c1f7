"""Train the embedded model; README.md says what each loss is for.

    python -m training.train --pieces WORK/pieces --out RUNS --minutes 8 --run parts
    python -m training.train --pieces WORK/pieces --out RUNS --minutes 20 --run a --run b:lr_image=2e-4,seed=1 --soup

Each run leaves its weights, whole and in parts, and its log in RUNS/<name>; what they read is loaded once.
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

from training import model as clip
from training import pack
from training.holdout import measure
from training.joint_phase import JointPhase
from training.judge import Judge, Judges
from training.match_phase import MatchPhase
from training.material import Material
from training.progress import Log
from training.recipe import Recipe, describe, named
from training.rule import AUTO, Scale
from training.soup import mixed
from training.text_phase import learn_texts
from training.towers import Towers

RESERVE = 20.0  # seconds kept for saving and measuring at the end of a run
TEXT_SHARE = 0.3  # of a run's time, that the text tower alone may take
# what makes the classifiers as sure as they are right, on ImageNet photographs (README, "The judge")
SHARPER_WHOLE, SHARPER_WINDOWS = 1.5, 1.5


def train(
    material: Material,
    judges: Judges,
    recipe: Recipe,
    out: Path,
    deadline: float,
    views: Sequence[Scale] = AUTO,
) -> None:
    """One run, from the classifier's weights to a folder that open_clip reads.

    Args:
        deadline: when to be done, in `time.time()`; the schedule shrinks to it.
    """
    log, begin = Log(out / "log.jsonl"), time.time()
    settings = dataclasses.asdict(recipe) | {"base": Path(recipe.base).name}
    log(recipe=settings, images=len(material.images), sentences=len(material.sentences))
    towers = Towers(material, recipe)
    if not recipe.base:
        learn_texts(towers, material, recipe, log, begin + TEXT_SHARE * (deadline - begin))

    def finish(step: int, state: dict[str, Tensor]) -> None:
        towers.model.load_state_dict(state)  # the next phase goes on from it
        clip.save(out, state, towers.config, material.folder / pack.BPE)
        figures = measure(clip.read(out)[0].to(material.device), material, views)
        log(phase="held out", step=step, **figures)
        (out / "parts" / "log.jsonl").write_bytes(log.file.read_bytes())

    if recipe.steps:
        until = (begin + deadline) / 2 if recipe.match_steps else deadline
        JointPhase(material, towers, judges, recipe).run(log, until - RESERVE, finish)
    if recipe.match_steps:
        MatchPhase(material, towers, judges.windows, recipe).run(log, deadline - RESERVE, finish)


def main(argv: Sequence[str] | None = None) -> None:
    """Load what all runs read, then run them one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="settings:\n" + describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or the unpacked pack) of prepare")
    parser.add_argument("--out", type=Path, required=True, help="a folder for each run is made there")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="NAME[:SETTING=VALUE,...]",
        help="a run; may be repeated",
    )
    parser.add_argument("--set", default="", metavar="SETTING=VALUE,...", help="settings of all runs")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all runs together, loading included")
    parser.add_argument("--soup", action="store_true", help="average the weights of all runs at the end, too")
    parser.add_argument(
        "--keep", type=int, nargs=2, default=(400, 100), help="Flickr8k and ImageNet images kept out"
    )
    parser.add_argument("--trial", type=int, help="use only so many images of each set, to try things out")
    parser.add_argument("--store", type=int, default=288, help="side of the images in memory")
    parser.add_argument(
        "--judge-sizes", type=int, nargs="+", default=(448, 608), help="sides at which windows are judged"
    )
    parser.add_argument(
        "--judge-whole", type=int, default=288, help="side at which pictures are judged as a whole"
    )
    parser.add_argument(
        "--views", type=Scale.parse, nargs="+", default=AUTO, help="to measure with, held out"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    begin, base = time.time(), Recipe().changed(args.set)
    runs = [named(text, base) for text in args.run or ["run"]]
    torch.set_float32_matmul_precision("high")
    # cudnn.benchmark stays off: trying every algorithm for the depthwise layers takes minutes
    material = Material(
        pack.unpacked(args.pieces), torch.device(args.device), args.store, tuple(args.keep), args.trial
    )
    judges = Judges(
        Judge(material.folder, material.images, [args.judge_whole], SHARPER_WHOLE),
        Judge(material.folder, material.images, args.judge_sizes, SHARPER_WINDOWS),
    )
    print(f"loaded in {time.time() - begin:.0f} s", flush=True)
    end = begin + 60 * args.minutes
    for number, (name, recipe) in enumerate(runs):
        print(f"run {name}", flush=True)
        left = end - time.time()  # shared evenly by the runs that are still to come
        train(
            material, judges, recipe, args.out / name, time.time() + left / (len(runs) - number), args.views
        )
    if args.soup:
        mixed([args.out / name for name, _ in runs], args.out / "soup")
        figures = measure(clip.read(args.out / "soup")[0].to(material.device), material, args.views)
        (args.out / "soup" / "parts" / "held_out.json").write_text(json.dumps(figures, indent=1) + "\n")
        print("soup", " ".join(f"{k} {v:.4g}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
