"""A smaller CLIP vocabulary: the first merges of CLIP's byte-pair table, in the file format open_clip reads.

Merges are listed in the order in which they were learned, so any prefix is itself a valid byte-pair encoding.
Every text can still be encoded; rare words need more tokens. The vocabulary has 512 byte symbols, the merges and two
special tokens.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from open_clip.tokenizer import SimpleTokenizer, default_bpe

MERGES = 15_000


def write_bpe(path: Path, merges: int = MERGES) -> int:
    """Write the truncated table to `path` and return the size of its vocabulary."""
    with gzip.open(default_bpe(), "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")[: merges + 1]  # a version line, then one merge per line
    path.parent.mkdir(parents=True, exist_ok=True)
    # No newline at the end: the tokenizer would read an empty merge. mtime=0: same bytes every time.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write("\n".join(lines).encode("utf-8"))
    return check(path, merges)


def check(path: Path, merges: int) -> int:
    """Raise if the table cannot be read back; return the vocabulary size."""
    tokenizer = SimpleTokenizer(bpe_path=str(path))
    expected = 512 + merges + 2
    if tokenizer.vocab_size != expected:
        raise ValueError(f"{path}: vocabulary of {tokenizer.vocab_size}, expected {expected}")
    for text in ("a photo of a potted plant.", "a photo of a zebra crossing the saxophonist's café."):
        back = tokenizer.decode(tokenizer.encode(text)).strip()
        if back.replace(" ", "") != text.replace(" ", ""):
            raise ValueError(f"{path}: {text!r} came back as {back!r}")
    if tokenizer.eot_token_id != expected - 1:
        raise ValueError(f"{path}: the end token must have the highest id, open_clip pools there")
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output file bpe.txt.gz")
    parser.add_argument("--merges", type=int, default=MERGES)
    args = parser.parse_args()
    size = write_bpe(args.out, args.merges)
    print(f"{args.out}: vocabulary of {size}, {args.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
