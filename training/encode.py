"""Encode photos up to the last convolution of the image tower, with what is known of every noun in them.

    python -m training.encode --model FOLDER --labeled LABELED --pieces WORK/pieces --out MAPS --workers 2

FOLDER is a model exported for ONNX Runtime. `head.py` trains on the result. The command is resumable.
"""

from __future__ import annotations

import argparse
import io
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from mltta import load_backbone
from training import labeled, meanings, minilm, pack, photo_labels
from training.labeled import Labeled
from training.maps import CELLS, CHANNELS, INDEX, MAPS, TABLES
from training.material import Split
from training.supervision import NounSupervision
from training.wording import PLAIN, SIMPLE

SIDE = 288  # pixels of the input
CHUNK = 400  # photos that a process encodes at a time
# photos per main label: of everyday labels, of kinds of them (dog breeds), of all others; and held out
KEPT_ASIDE = 400  # captioned photos, as in the other phases
MOST = {False: (250, 40, 12), True: (6, 1, 1)}
GRAPH = "body.onnx"
# labels that say too little about a photo
BROAD = frozenset(
    {
        "animal",
        "food",
        "person",
        "human",
        "bird",
        "flower",
        "vehicle",
        "plant",
        "tree",
        "leaf",
        "fruit",
        "vegetable",
    }
) | {"musical instrument"}


def chosen(photos: Labeled) -> list[int]:
    """Photos to encode: so many per main label, all of sources that give several labels per photo."""
    names = frozenset(meanings.everyday())
    count: Counter[tuple[str, bool]] = Counter()
    found = []
    for i, own in enumerate(photos.facts):
        main = meanings.name_of(own["terms"][0])
        count[main, own["held_out"]] += 1
        everyday, kinds, others = MOST[own["held_out"]]
        most = everyday if main in names else kinds if names - BROAD & set(own["labels"]) else others
        if own["source"] in photos.complete or count[main, own["held_out"]] <= most:
            found.append(i)
    return found


def cut(model: Path, out: Path) -> None:
    """Write the graph of the image tower up to its last convolution."""
    import onnx

    graph = (whole := onnx.load(str(model / "image.onnx"))).graph
    last = next(n for n in graph.node if n.op_type == "Conv" and "conv_head" in n.input[1])
    needed, kept = {last.input[0]}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    shape: list[str | int | None] = ["n", CHANNELS, "h", "w"]
    result = onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, shape)
    tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
    for held, own in ((graph.output, [result]), (graph.node, kept[::-1]), (graph.initializer, tensors)):
        del held[:]
        held.extend(own)
    onnx.save(whole, str(out))


def encode(folder: Path, total: int, images: Sequence[tuple[int, bytes]]) -> int:
    """Write the maps of some photos into their rows; returns the number of photos."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])
    maps = np.memmap(folder / MAPS, np.float16, "r+", shape=(total, CELLS, CHANNELS))
    for row, data in images:
        picture = Image.open(io.BytesIO(data)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        pixels = (np.asarray(picture, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]
        (found,) = session.run(None, {"pixels": pixels})
        maps[row] = found.reshape(CHANNELS, CELLS).T
    maps.flush()
    return len(images)


def tables(
    model: Path, photos: Labeled, folder: Path, index: pack.Index
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is known of the nouns in all photos, features of texts, and the index."""
    nouns, device = index["nouns"], torch.device("cpu")
    meaning = minilm.embed(folder / pack.MINILM, nouns, device).float()
    similarity = (meaning @ meaning.T).numpy()
    captions = np.load(folder / pack.LABELS)["labels"]
    given = photo_labels.read(photos, nouns, similarity, captions)
    held = Split.of(len(captions), len(index["imagenet"]), KEPT_ASIDE, 0).kept_flickr
    captions[held] = 0
    known = NounSupervision(nouns, captions, index["classes"], device, given)
    others, first = len(captions) + len(index["imagenet"]), len(photos.facts)
    order = torch.cat([torch.arange(others, others + first), torch.arange(others)])
    backbone = load_backbone(str(model), device="cpu")

    def text(sentences: list[str]) -> torch.Tensor:
        return torch.as_tensor(np.asarray(backbone.encode_texts(sentences))).half()

    written = [caption for own in index["captions"] for caption in (own * 5)[:5]]
    found = {
        "labels": known.labels[order], "certain": known.certain[order].half(), "weights": known.weights,
        "denied_more": known.denied_more, "similarity": torch.from_numpy(similarity).half(),
        "often": torch.from_numpy(np.where(known.active, 1 / np.maximum(known.noun_weight, 1e-9), 0)).float(),
        "shares": torch.from_numpy(photo_labels.shares(given[0])).float(), "scale": torch.tensor(backbone.logit_scale),
        "simple": text([t.format(noun) for noun in nouns for t in SIMPLE]).view(len(nouns), len(SIMPLE), -1),
        "classes": text([PLAIN.format(own[0]) for own in index["class_names"]]),
        "captions": text(written).view(len(captions), 5, -1),
    }  # fmt: skip
    aside = [i for i, own in enumerate(photos.facts) if own["held_out"]]
    sizes = [first, len(captions), len(index["imagenet"])]
    return found, {"nouns": nouns, "sizes": sizes, "held": aside, "held_captioned": held.tolist()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, required=True, help="folder of the model, exported for ONNX Runtime"
    )
    parser.add_argument("--labeled", type=Path, required=True, help="folder that gather wrote")
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or unpacked pack) from prepare")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    args = parser.parse_args(argv)
    folder, out = pack.unpacked(args.pieces), args.out
    out.mkdir(parents=True, exist_ok=True)
    index = pack.read_index(folder)
    photos = labeled.read(args.labeled)
    photos = photos.pick(chosen(photos))
    cut(args.model, out / GRAPH)
    found, about = tables(args.model, photos, folder, index)
    save_file({name: value.contiguous() for name, value in found.items()}, out / TABLES)
    (out / INDEX).write_text(json.dumps(about) + "\n", encoding="utf-8")
    images = [
        *photos.images,
        *pack.images(folder, pack.FLICKR, index),
        *pack.images(folder, pack.IMAGENET, index),
    ]
    done = out / "encoded.txt"
    start = int(done.read_text()) if done.exists() else 0
    if not start:
        np.memmap(out / MAPS, np.float16, "w+", shape=(len(images), CELLS, CHANNELS)).flush()
    rows = list(enumerate(images))
    chunks = [rows[i : i + CHUNK] for i in range(start, len(rows), CHUNK)]
    with ProcessPoolExecutor(args.workers) as pool:
        for count in pool.map(partial(encode, out, len(images)), chunks):
            start += count
            done.write_text(f"{start}\n")
            print(f"{start:,} of {len(images):,} photos", flush=True)


if __name__ == "__main__":
    main()
