"""Writes the byte-pair table in Hugging Face's format, so that open_clip alone can tokenize texts for the model.

open_clip reads a folder's own tokenizer only through transformers. mltta reads ``bpe.txt.gz`` and needs none of this;
both produce the same tokens, which ``tests/model/test_open_clip_alone.py`` verifies on captions and labels.

python -m training.tokenizer [--folder src/mltta/assets/mini] [--repository ORG/NAME]
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from open_clip.tokenizer import SimpleTokenizer

from mltta.model.model_folder import CONFIG, SUMS
from mltta.storage import checksums
from mltta.storage.folders import MINI

BPE = "bpe.txt.gz"
FILES = ("tokenizer.json", "tokenizer_config.json")
#: settings added by `write` to a model's configuration
SETTINGS = ("hf_tokenizer_name", "tokenizer_kwargs")
#: how open_clip's tokenizer splits a text into words
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def tokenizer_json(bpe: Path) -> str:
    """The table as a single file for the library ``tokenizers``."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    own = SimpleTokenizer(str(bpe))
    lines = gzip.decompress(bpe.read_bytes()).decode("utf-8").split("\n")[1:]  # the first line is the version
    merges = [(first, second) for first, second in map(str.split, lines)]
    start, end = own.decoder[own.sot_token_id], own.decoder[own.eot_token_id]
    table = Tokenizer(models.BPE(vocab=own.encoder, merges=merges, end_of_word_suffix="</w>"))
    table.normalizer = normalizers.Lowercase()
    table.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ends = [(start, own.sot_token_id), (end, own.eot_token_id)]
    table.post_processor = processors.TemplateProcessing(f"{start} $A {end}", None, ends)
    table.add_special_tokens([AddedToken(token, special=True) for token, _ in ends])
    return str(table.to_str(pretty=False))


def settings(length: int, start: str = "<start_of_text>", end: str = "<end_of_text>") -> dict[str, Any]:
    """Tokenizer settings for transformers."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "bos_token": start,
        "eos_token": end,
        "pad_token": end,  # as OpenAI's: tokens after the first end are never read
    }


def write(folder: Path, sealed: Sequence[str], repository: str = "mini") -> None:
    """Write both files into a model folder, reference them in its settings, and update its checksums.

    Args:
        sealed: the files with checksums, besides the tokenizer's own.
        repository: location of the folder on the hub, if it is pushed; local folders are read by path.
    """
    said = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    text = said["model_cfg"]["text_cfg"]
    text |= dict(zip(SETTINGS, (repository, {"clean": "lower"}), strict=True))
    beside = json.dumps(settings(text["context_length"]), indent=2) + "\n"
    (folder / FILES[0]).write_text(tokenizer_json(folder / BPE), encoding="utf-8")
    (folder / FILES[1]).write_text(beside, encoding="utf-8")
    (folder / CONFIG).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    sums = {"files": {name: checksums.of_file(folder / name) for name in sorted({*sealed, *FILES})}}
    (folder / SUMS).write_text(json.dumps(checksums.sealed(sums), indent=1) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Write the tokenizer of a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=MINI, help="the embedded model's folder")
    parser.add_argument("--repository", default="mini", help="repository on the hub, ORG/NAME")
    args = parser.parse_args(argv)
    kept = json.loads((args.folder / SUMS).read_text(encoding="utf-8"))["files"]
    write(args.folder, list(kept), args.repository)


if __name__ == "__main__":
    main()
