"""Gather everything the training reads into one folder, and cut that into pieces that can be sent.

Image bytes stay as they are (WebP, short side at most 256): one file per set, and an index.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import tarfile
from collections import defaultdict
from pathlib import Path

import corpus
import numpy as np
import pieces
import timm
import torch
import vocab
from nouns import label_matrix, vocabulary
from PIL import Image
from safetensors.torch import load_file, save_file

MINILM_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)


def pack_images(tars: list[Path], out: Path, limit: int | None) -> list[tuple[str, int, int]]:
    """Concatenate the images of some tars into `out`; returns (name, offset, length) of each."""
    index: list[tuple[str, int, int]] = []
    with out.open("wb") as target:
        for path in tars:
            with tarfile.open(path) as tar:
                for member in tar:
                    if not member.isfile() or (limit and len(index) >= limit):
                        continue
                    data = tar.extractfile(member).read()  # type: ignore[union-attr]
                    image = Image.open(io.BytesIO(data))
                    if min(image.size) > 256:
                        short = 256 / min(image.size)
                        image = image.convert("RGB").resize([round(s * short) for s in image.size], 3)
                        buffer = io.BytesIO()
                        image.save(buffer, "WEBP", quality=90)
                        data = buffer.getvalue()
                    index.append((Path(member.name).stem, target.tell(), len(data)))
                    target.write(data)
    return index


def classifier_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The EfficientNet-Lite2 classifier under timm's names: the tensors stand in the same order."""
    source = torch.load(checkpoint, map_location="cpu", weights_only=True)
    model = timm.create_model("tf_efficientnet_lite2", pretrained=False)
    names = list(model.state_dict())
    if len(names) != len(source):
        raise ValueError(f"{checkpoint}: {len(source)} tensors, expected {len(names)}")
    renamed = dict(zip(names, source.values(), strict=True))
    model.load_state_dict(renamed, strict=True)
    return {k: v.half().contiguous() if v.is_floating_point() else v for k, v in renamed.items()}


def accuracy(
    weights: dict[str, torch.Tensor], images: Path, index: list[tuple[str, int, int]], every: int
) -> float:
    """Share of the ImageNet samples (every n-th) that the classifier names right; a check of the weights."""
    model = timm.create_model("tf_efficientnet_lite2", pretrained=False).eval()
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in weights.items()})
    synsets = {s: i for i, s in enumerate(corpus.imagenet_info("imagenet_synsets.txt"))}
    data = images.read_bytes()
    right = 0
    chosen = index[::every]
    for name, start, size in chosen:
        image = Image.open(io.BytesIO(data[start : start + size])).convert("RGB").resize((224, 224), 3)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
        with torch.inference_mode():
            right += int(model(pixels).argmax()) == synsets[name.split("_")[0]]
    return right / len(chosen)


def read_flickr(path: Path) -> dict[str, list[str]]:
    """The captions of each Flickr8k image."""
    captions: dict[str, list[str]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            name, text = line.rstrip("\n").split("\t")
            captions[name].append(text.strip())
    return captions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with flickr8k, imagenet_samples, captions"
    )
    parser.add_argument("--out", type=Path, required=True, help="where `pack` and `pieces` are written")
    parser.add_argument("--classifier", type=Path, required=True, help="efficientnet-lite2-9656183e.pth")
    parser.add_argument("--minilm", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--merges", type=int, default=vocab.MERGES)
    parser.add_argument("--lists", type=int, default=40_000, help="composed label sentences in the corpus")
    parser.add_argument("--limit", type=int, help="keep only so many images of each set (for a trial)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    pack: Path = args.out / "pack"
    shutil.rmtree(pack, ignore_errors=True)
    pack.mkdir(parents=True)

    flickr_tars = [args.data / "flickr8k" / f"images-{half}.tar" for half in "ab"]
    flickr = pack_images(flickr_tars, pack / "flickr.bin", args.limit)
    samples = pack_images([args.data / "imagenet_samples/images.tar"], pack / "imagenet.bin", args.limit)

    captions = read_flickr(args.data / "flickr8k/captions.tsv.gz")
    flickr = [row for row in flickr if captions.get(row[0])]
    with gzip.open(args.data / "captions/llm_captions.jsonl.gz", "rt", encoding="utf-8") as file:
        generated = [json.loads(line) for line in file]
    keywords = sorted({k for row in generated for k in row["keywords"]})
    classes = corpus.imagenet_names()
    human = [text for row in captions.values() for text in row]
    nouns = vocabulary(keywords, [n for own in classes for n in own], human)
    labels = label_matrix(nouns, [captions[name] for name, _, _ in flickr])
    np.savez_compressed(pack / "labels.npz", labels=labels)
    texts = corpus.sentences(
        nouns, [*human, *(row["caption"].strip() for row in generated)], args.lists, args.seed
    )

    weights = classifier_weights(args.classifier)
    share = accuracy(weights, pack / "imagenet.bin", samples, 10)
    print(f"classifier: {share:.0%} of every tenth ImageNet sample right")
    if share < 0.6:
        raise ValueError("the classifier's weights do not work under timm's names")
    save_file(weights, pack / "lite2.safetensors")
    (pack / "minilm").mkdir()
    for name in MINILM_FILES:
        shutil.copy(args.minilm / name, pack / "minilm" / name)
    minilm = load_file(args.minilm / "model.safetensors")
    half = {k: v.half() for k, v in minilm.items() if v.is_floating_point()}
    save_file(half, pack / "minilm/model.safetensors", metadata={"format": "pt"})

    size = vocab.write_bpe(pack / "bpe.txt.gz", args.merges)
    synsets = {s: i for i, s in enumerate(corpus.imagenet_info("imagenet_synsets.txt"))}
    index = {
        "flickr": flickr, "captions": [captions[name] for name, _, _ in flickr],
        "imagenet": samples, "classes": [synsets[name.split("_")[0]] for name, _, _ in samples],
        "class_names": classes, "nouns": nouns, "corpus": texts,
    }  # fmt: skip
    with gzip.open(pack / "index.json.gz", "wt", encoding="utf-8") as file:
        json.dump(index, file)
    print(f"{len(flickr)} Flickr8k and {len(samples)} ImageNet images, {len(nouns)} nouns, "
          f"{len(texts)} sentences, vocabulary of {size}")  # fmt: skip
    for part in pieces.split(pack, args.out / "pieces"):
        print(part.name, f"{part.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
