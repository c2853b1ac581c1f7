"""Copy a run's weights into the package, and update everything that depends on them: embeddings, features, checksums.

python -m training.ship --run RUNS/closer --calibrate PHOTOS [--to src/mltta/assets/mini]
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from mltta import CaptionBase, load_backbone
from mltta.images.find import find_images
from mltta.model import vocabulary
from mltta.model.model_folder import SUMS
from mltta.model.onnx_export import export_model
from mltta.model.prompts import list_templates
from mltta.storage.folders import MINI
from training import tokenizer
from training.model import WEIGHTS

FILES = (WEIGHTS, "open_clip_config.json", "bpe.txt.gz")


def ship(run: Path, to: Path, photos: Sequence[Path] = ()) -> None:
    """Copy the model, then embed the existing captions and the words of all built-in lists."""
    texts = (to / "captions" / "texts.txt").read_text(encoding="utf-8").splitlines()
    (to / SUMS).unlink(missing_ok=True)
    for name in FILES:
        shutil.copyfile(run / name, to / name)
    tokenizer.write(to, FILES)
    backbone = load_backbone(str(to), device="cpu")
    backbone.name = "mini"
    CaptionBase.build(texts, backbone).save(to / "captions", compact=True)
    words = backbone.vocabulary("simple")
    name = vocabulary.identity(backbone.text_fingerprint, list_templates("simple"), words.texts)
    export_model(load_backbone(str(to), device="cpu", accelerate=False), to, to, photos)
    small = vocabulary.Vocabulary(words.texts, words.features.half())
    vocabulary.save_to(to / "vocabulary.safetensors", name, small)
    print(f"{to}: the weights of {run}, {len(texts):,} captions, {len(words.texts):,} words")


def main(argv: Sequence[str] | None = None) -> None:
    """Ship a run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of a run, or of averaged runs")
    parser.add_argument("--to", type=Path, default=MINI, help="the embedded model's folder")
    parser.add_argument("--calibrate", help="training photos that the int8 tower is calibrated on, about 30")
    args = parser.parse_args(argv)
    ship(args.run, args.to, find_images(args.calibrate) if args.calibrate else ())


if __name__ == "__main__":
    main()
