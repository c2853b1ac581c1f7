"""Choose, clean and embed the captions that ship with the embedded model.

    python -m training.caption_base --captions llm_captions.jsonl.gz --out src/mltta/assets/mini/captions

Keeps sentences that mention what was asked for, drops duplicates and junk, then picks a fixed number so that
every keyword is named about equally often, and stores the embeddings as bytes with one scale a row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

from mltta import CaptionBase, LabelSet, load_backbone
from mltta.captions.nouns import label_matches

COUNT = 12_000
JUNK = re.compile(
    r"https?:|[\[\]{}<>|_*#@]|\b(keywords?|sentence|caption|sure|sorry|requirements?)\b", re.IGNORECASE
)


def read(path: Path) -> tuple[list[str], list[set[str]]]:
    """Distinct, clean captions with the keywords asked for."""
    seen: set[str] = set()
    texts, asked = [], []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            text = " ".join(record["caption"].split()).strip('"“” ')
            key = re.sub(r"\W+", " ", text.casefold()).strip()
            words = key.split()
            if not 3 <= len(words) <= 25 or not text.isascii() or JUNK.search(text) or key in seen:
                continue
            seen.add(key)
            texts.append(text)
            asked.append(set(record["keywords"]))
    return texts, asked


def choose(mentions: list[list[int]], asked: list[set[int]], count: int, seed: int = 0) -> list[int]:
    """Rows that name a keyword asked for, most wanted first: those whose rarest label is named least so far."""
    good = [i for i, found in enumerate(mentions) if asked[i] & set(found)]
    order = np.random.default_rng(seed).permutation(good)
    named: Counter[int] = Counter()
    total = Counter(label for i in good for label in set(mentions[i]))
    quota = 1
    chosen: dict[int, None] = {}
    while len(chosen) < min(count, len(good)):
        for i in order:
            if i not in chosen and any(named[label] < min(quota, total[label]) for label in mentions[i]):
                chosen[int(i)] = None
                named.update(set(mentions[i]))
                if len(chosen) == count:
                    break
        quota += 1
    return sorted(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--captions", type=Path, required=True, help="JSON Lines of {caption, keywords}, gzipped"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--count", type=int, default=COUNT)
    args = parser.parse_args()
    texts, asked = read(args.captions)
    keywords = sorted({word.casefold() for words in asked for word in words})
    labels = LabelSet.of(keywords)
    index = {name: i for i, name in enumerate(labels.names)}
    mentions = label_matches(texts, labels)
    rows = choose(mentions, [{index[w.casefold()] for w in words} for words in asked], args.count)
    base = CaptionBase.build([texts[i] for i in rows], load_backbone(args.model))
    base.save(args.out, compact=True)
    size = sum(path.stat().st_size for path in args.out.iterdir()) / 1e6
    named = Counter(label for i in rows for label in set(mentions[i]))
    print(f"{len(texts)} clean captions, {len(rows)} kept, {size:.2f} MB")
    print(f"{len(keywords)} keywords, named {min(named.values())} to {max(named.values())} times; never: "
          f"{', '.join(k for i, k in enumerate(keywords) if not named[i]) or 'none'}")  # fmt: skip
    counts = Counter(len(set(mentions[i])) for i in rows)
    print("labels a caption:", dict(sorted(counts.items())))


if __name__ == "__main__":
    main()
