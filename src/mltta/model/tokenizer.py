"""CLIP's byte-pair encoding without PyTorch: what the light install reads labels with."""

from __future__ import annotations

import gzip
import html
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltta.errors import WeightsError

#: merges of CLIP's own table, of which a shorter file has fewer
MERGES = 49152 - 256 - 2
START, END = "<start_of_text>", "<end_of_text>"
_WORDS = r"|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


class BytePairTokenizer:
    """Token ids of texts, the same as those of open_clip's ``SimpleTokenizer(clean="lower")``."""

    def __init__(self, table: Path, context_length: int):
        """Args:
        table: bpe.txt.gz, one merge a line behind a title.
        """
        try:
            lines = gzip.decompress(table.read_bytes()).decode().split("\n")[1 : MERGES + 1]
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise WeightsError(f"{table} cannot be read as a byte-pair table: {error}") from error
        self.context_length = context_length
        merges = [tuple(line.split()) for line in lines]
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        plain = [
            *range(ord("!"), ord("~") + 1),
            *range(ord("¡"), ord("¬") + 1),
            *range(ord("®"), ord("ÿ") + 1),
        ]
        others = [byte for byte in range(256) if byte not in plain]
        self._letter = dict(zip(plain, map(chr, plain), strict=True))
        self._letter |= {byte: chr(256 + i) for i, byte in enumerate(others)}
        letters = list(self._letter.values())
        ends = [letter + "</w>" for letter in letters]
        self._ids = {one: i for i, one in enumerate([*letters, *ends, *map("".join, merges), START, END])}
        self._known: dict[str, list[int]] = {word: [self._ids[word]] for word in (START, END)}

    def encode(self, text: str) -> list[int]:
        """Ids of a text without start, end or padding."""
        import regex  # only for words whose features are not stored

        words = regex.findall(f"{START}|{END}{_WORDS}", _clean(text), regex.IGNORECASE)
        return [id for word in words for id in self._word(word)]

    def __call__(self, texts: Sequence[str], context_length: int | None = None) -> NDArray[np.int64]:
        """Ids (N, L) with start and end, cut or padded with zeros to the length."""
        length = context_length or self.context_length
        found = np.zeros((len(texts), length), np.int64)
        for row, text in zip(found, texts, strict=True):
            ids = [self._ids[START], *self.encode(text)][: length - 1]
            row[: len(ids) + 1] = [*ids, self._ids[END]]
        return found

    def _word(self, word: str) -> list[int]:
        """Ids of one word: its bytes, of which the pair that was merged first is merged, again and again."""
        spelled = "".join(self._letter[byte] for byte in word.encode())
        if spelled not in self._known:
            parts = [*spelled[:-1], spelled[-1] + "</w>"]
            while len(parts) > 1:
                pairs = list(pairwise(parts))
                best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
                if best not in self._ranks:
                    break
                merged: list[str] = []
                left = iter(zip(parts, [*parts[1:], ""], strict=True))
                for pair in left:  # from the left
                    merged.append("".join(pair) if pair == best else pair[0])
                    if pair == best:
                        next(left)
                parts = merged
            self._known[spelled] = [self._ids[part] for part in parts]
        return self._known[spelled]


def _clean(text: str) -> str:
    """Lower case, with mended characters, entities resolved, and single spaces."""
    if not (text.isascii() and text.isprintable() and "&" not in text):
        import ftfy  # changes nothing of plain text

        text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split()).lower()
