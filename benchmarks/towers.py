"""Smoke test of `auto` on every kind of image tower with random weights: local path, time, and finite scores.

    python -m benchmarks.towers [--models ViT-B-16 RN50 ViT-B-16-SigLIP convnext_base MobileCLIP-S1]

Scores of random weights are meaningless; the test is that they are finite and differ between photos. The tokenizers
of SigLIP and MetaCLIP 2 would be downloaded, so CLIP's words between their special tokens are used instead. One
template is used instead of seven, because encoding the 2,873 background words takes a CPU minutes per template.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import open_clip
import torch
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor

from mltta import Tagger
from mltta.model import vocabulary
from mltta.model.acceleration import choose
from mltta.model.backbone import Backbone
from mltta.model.load import pick_device, pick_dtype
from mltta.model.weights import Loaded

PHOTOS = sorted((Path(__file__).parents[1] / "examples" / "photos").glob("*.jpg"))[:3]
TEMPLATE = "a photo of a {}."
MODELS = ("ViT-B-16", "RN50", "ViT-B-16-SigLIP", "convnext_base", "MobileCLIP-S1")


class Folded:
    """CLIP's words with ids that fit a smaller vocabulary, between the start, end and padding of another tokenizer."""

    def __init__(self, length: int, size: int, start: tuple[int, ...], end: int, padding: int):
        self.context_length, self.size = length, size
        self.start, self.end, self.padding = start, end, padding
        self.plain = SimpleTokenizer(context_length=length)

    def encode(self, text: str) -> list[int]:
        return [3 + i % (self.size - 3) for i in self.plain.encode(text)]  # the first ids are special tokens

    def __call__(self, texts: list[str], context_length: int | None = None) -> Tensor:
        length = context_length or self.context_length
        tokens = torch.full((len(texts), length), self.padding)
        for row, text in zip(tokens, texts, strict=True):
            ids = [*[*self.start, *self.encode(text)][: length - 1], self.end]
            row[: len(ids)] = torch.tensor(ids)
        return tokens


#: start, end and padding of the tokenizers that come from the hub: XLM-V's, SigLIP 2's, else SigLIP's
SPECIAL = {"worldwide": ((0,), 2, 1), "SigLIP2": ((), 1, 0)}


def load(name: str, device: str) -> Backbone:
    """An open_clip model with random weights and its own tokenizer, or a substitute."""
    torch.manual_seed(0)
    model = open_clip.create_model(name, load_weights=False)
    settings = open_clip.get_model_config(name)
    assert settings is not None
    text = settings["text_cfg"]
    if "hf_tokenizer_name" in text:
        special = next((ids for kind, ids in SPECIAL.items() if kind in name), ((), 1, 1))
        tokenizer = Folded(text.get("context_length", 64), text["vocab_size"], *special)
    else:
        tokenizer = open_clip.get_tokenizer(name)
    chosen = pick_device(device)
    loaded = Loaded(name, model, tokenizer, model.visual.preprocess_cfg)
    return Backbone(loaded, chosen, pick_dtype(None, chosen), choose(chosen, None))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--words", type=int, help="limit the number of background words, for slow text towers"
    )
    args = parser.parse_args()
    every = vocabulary.words()
    vocabulary.words = lambda: every[: args.words]
    print(
        "| model | local views from | encoding words, s | per image, s | scores |\n|---|---|---|---|---|",
        flush=True,
    )
    for name in args.models:
        backbone = load(name, args.device)
        start = time.perf_counter()
        backbone.vocabulary(TEMPLATE)
        words = time.perf_counter() - start
        tagger = Tagger(
            backbone, ["dog", "cat", "person", "tripod"], method="auto", captions="none", template=TEMPLATE
        )
        start = time.perf_counter()
        found = tagger([str(photo) for photo in PHOTOS])
        each = (time.perf_counter() - start) / len(PHOTOS)
        scores = torch.tensor(
            [[item["score"] for item in sorted(tags, key=lambda i: i["label"])] for tags in found]
        )
        assert torch.isfinite(scores).all()
        assert (scores.std(dim=0) > 0).any(), "every photo has the same scores"
        path = "tiles" if backbone.local is None else "feature map"
        print(
            f"| {name} | {path} | {words:.0f} | {each:.2f} | {scores.min():.3f} to {scores.max():.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
