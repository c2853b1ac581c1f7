"""Average the weights of several runs with the same start (model soup), which often outperforms each of them.

python -m training.soup RUNS/a RUNS/b --out RUNS/soup
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training import model as clip
from training import pack, tokenizer


def architecture(folder: Path) -> dict[str, Any]:
    """The model's settings, without the tokenizer's location in released models."""
    config: dict[str, Any] = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    config["text_cfg"] = {k: v for k, v in config["text_cfg"].items() if k not in tokenizer.SETTINGS}
    return config


def mixed(folders: Sequence[Path], out: Path) -> None:
    """Save the mean of the weights of runs with the same start."""
    configs = [architecture(folder) for folder in folders]
    if any(config != configs[0] for config in configs):
        raise ValueError("only runs of the same model can be averaged")
    states = [clip.read(folder)[0].state_dict() for folder in folders]
    mean = {
        k: sum(s[k] for s in states[1:]) / len(states) + v / len(states) if v.is_floating_point() else v
        for k, v in states[0].items()
    }
    clip.save(out, mean, configs[0], folders[0] / pack.BPE)


def main(argv: Sequence[str] | None = None) -> None:
    """Average existing runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    mixed(args.runs, args.out)


if __name__ == "__main__":
    main()
