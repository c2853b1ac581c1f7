"""`mltta reproduce` on stand-ins of everything it needs: ``python -m tests.reproduction.standins FOLDER OPTION…``.

Tiny random models answer to the paper's names, a few pictures lie in the layouts of the datasets and count as their
published splits, with captions, CoOp and MaPLe files and generated images beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import open_clip
import torch

from mltta.data import coco, nuswide, voc
from mltta.labels import LabelSet
from mltta.model import load
from mltta.model.learned_prompts import save_prompts
from mltta.model.torch_backbone import TorchBackbone
from mltta.model.weights import Loaded
from tests.model.prompted import coop_of, maple
from tests.test_tagger import photo

MODELS = ("RN50", "RN101", "ViT-B/32", "ViT-B/16")
#: labels per picture; COCO's pictures fill every column of Table 3
COUNTS = {
    "voc2007": (3,),
    "voc2012": (3,),
    "coco2014": (1, 3, 6, 9),
    "coco2017": (3,),
    "nuswide": (3,),
}
SPLITS = {"voc2007": "test", "voc2012": "val"}
VARIATIONS = 63


@cache
def model(name: str) -> TorchBackbone:
    """A random ViT with a text tower of its own."""
    torch.manual_seed(MODELS.index(name))
    vision = {"layers": 3, "width": 128, "patch_size": 16, "image_size": 32}
    text = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 3}
    made = open_clip.CLIP(embed_dim=32, vision_cfg=vision, text_cfg=text, quick_gelu=True)
    preprocess = {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    return TorchBackbone(Loaded(name, made, open_clip.SimpleTokenizer(), preprocess), torch.device("cpu"))


def stand_in(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let the names of the paper mean the stand-ins."""
    replace(load, "load_backbone", lambda name, **_: model(name))
    replace(voc, "PUBLISHED", {int(name[3:]): {split: len(COUNTS[name])} for name, split in SPLITS.items()})
    replace(coco, "PUBLISHED", {f"val{year}": len(COUNTS[f"coco{year}"]) for year in (2014, 2017)})
    replace(nuswide, "PUBLISHED", {("test", "drop"): len(COUNTS["nuswide"])})


def build(folder: Path) -> list[str]:
    """Write everything that the command needs, and its options."""
    options = [word for name in MODELS for word in ("--model", name)]
    for label_set in ("voc", "coco", "nuswide"):
        names = LabelSet.load(label_set).texts
        lines = [f"A {one} beside a {other}." for one, other in pairwise((*names, names[0]))]
        write(folder / f"{label_set}.txt", "\n".join(lines))
        options += ["--captions", f"{label_set}={folder / f'{label_set}.txt'}"]
    for name in COUNTS:
        options += ["--data", f"{name}={folder / name}"]
        dataset(name, folder / name)
        split = {**SPLITS, "nuswide": "test"}.get(name, f"val{name[4:]}")
        for i in range(len(COUNTS[name])):
            id = {"voc": f"{i:06}", "coc": str(i + 1)}.get(name[:3], f"p/{i}.jpg")
            picture = photo(100 + i, (32, 32))
            for j in range(VARIATIONS):
                own = "coco" if name.startswith("coco") else name
                save(picture.rotate(j), folder / "variations" / f"{own}-{split}" / id / f"{j:03}.jpg")
    save_prompts(coop_of(4), folder / "coop.safetensors")
    save_prompts(maple(), folder / "maple.safetensors")
    options += [
        word for kind in ("coop", "maple") for word in ("--prompts", str(folder / f"{kind}.safetensors"))
    ]
    return [*options, "--variations", str(folder / "variations")]


def dataset(name: str, root: Path) -> None:
    """Pictures with the first labels of the set, in the layout of a dataset."""
    key, year = name[:-4], name[-4:]
    names = LabelSet.load({"nus": "nuswide"}.get(name[:3], key)).names
    counts = COUNTS[name]
    if key == "voc":
        base, split = root / f"VOCdevkit/VOC{year}", SPLITS[name]
        for i in range(len(counts)):
            save(photo(i, (48, 36)), base / f"JPEGImages/{i:06}.jpg")
        for c, label in enumerate(names):
            rows = [f"{i:06} {1 if c < count else -1}" for i, count in enumerate(counts)]
            write(base / f"ImageSets/Main/{label}_{split}.txt", "\n".join(rows) + "\n")
    elif key == "coco":
        images = [{"id": i + 1, "file_name": f"{i}.jpg"} for i in range(len(counts))]
        kinds = [{"id": c + 1, "name": label} for c, label in enumerate(names)]
        things = [{"image_id": i + 1, "category_id": c + 1} for i, n in enumerate(counts) for c in range(n)]
        table = {"images": images, "categories": kinds, "annotations": things}
        write(root / f"annotations/instances_val{year}.json", json.dumps(table))
        for i in range(len(counts)):
            save(photo(i, (48, 36)), root / f"val{year}/{i}.jpg")
    else:
        write(root / "ImageList/TestImagelist.txt", "".join(f"p\\{i}.jpg\n" for i in range(len(counts))))
        for c, label in enumerate(names):
            rows = "".join(f"{int(c < count)}\n" for count in counts)
            write(root / f"TrainTestLabels/Labels_{label}_Test.txt", rows)
        for i in range(len(counts)):
            save(photo(i, (48, 36)), root / f"Flickr/p/{i}.jpg")


def save(picture: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(file)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    from mltta.cli import main

    stand_in()
    torch.set_num_threads(1)
    sys.argv = ["mltta", "reproduce", *sys.argv[1:]]
    main()
