"""Select, clean and embed the captions included with the embedded model.

    python -m training.caption_base --captions llm_captions.jsonl.gz --human captions.tsv.gz \
        --scenes scenes.txt --extra extra_captions.txt --keep texts.txt --out src/mltta/assets/mini/captions

A sentence is kept if it is clean and names a requested keyword. Keywords were drawn at random, so many sentences
combine things that are never seen together. A sentence is plausible if its pairs of labels also occur in captions
written by people or share a scene. Sentences are then selected so that every label is named about equally often,
plausible ones first, without reducing the coverage of benchmark labels. Hand-written captions are added for labels
with few sentences. Embeddings are stored as bytes, with one scale per row.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mltta import CaptionBase, LabelSet, load_backbone
from mltta.captions.nouns import label_matches

COUNT = 16_000
BENCHMARKS = ("voc", "coco", "nuswide")
MOST_LABELS = 5  # a sentence with more labels is a list of keywords
TOGETHER = 2  # photos with both labels required for a plausible pair
LIFT = 0.2  # minimum co-occurrence relative to chance
UNKNOWN = 0.15  # plausibility of a pair found in neither captions nor scenes
FLOOR = 0.6  # less plausible sentences are used only for labels without better ones
PLAIN = 12  # words; longer sentences have lower priority
LENGTHY = 0.02  # penalty per word
FEW = 8  # minimum mentions per label, using less plausible sentences if necessary
JUNK = re.compile(
    r"https?:|[\[\]{}<>|_*#@]|\b(keywords?|sentence|caption|sure|sorry|requirements?)\b", re.IGNORECASE
)
# A camera that someone looks at is not visible in the photo.
UNSEEN = re.compile(r"\b(at|for|to|into|towards?|facing|on) (the|a) camera\b", re.IGNORECASE)


@dataclass(frozen=True)
class Sentences:
    """Distinct sentences, the labels each names, and their plausibility."""

    texts: list[str]
    labels: list[tuple[int, ...]]
    plausible: list[float]


def read(path: Path) -> tuple[list[str], list[set[str]]]:
    """Read distinct, clean captions and their requested keywords."""
    seen: set[str] = set()
    texts, asked = [], []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            text = " ".join(record["caption"].split()).strip('"“” ')
            words = plain(text).split()
            if not 3 <= len(words) <= 25 or not text.isascii() or JUNK.search(text) or UNSEEN.search(text):
                continue
            if plain(text) not in seen:
                seen.add(plain(text))
                texts.append(text)
                asked.append({word.casefold() for word in record["keywords"]})
    return texts, asked


def plain(text: str) -> str:
    """Normalize a sentence for comparison."""
    return re.sub(r"\W+", " ", text.casefold()).strip()


def names_keyword(texts: Sequence[str], asked: Sequence[set[str]]) -> list[bool]:
    """For each sentence, whether it names a requested keyword."""
    keywords = LabelSet.of(sorted(set().union(*asked)))
    return [
        any(keywords.names[label] in wanted for label in found)
        for found, wanted in zip(label_matches(texts, keywords), asked, strict=True)
    ]


class Plausibility:
    """Which labels are seen together: in captioned photos, in scenes or in hand-written captions."""

    def __init__(self, labels: LabelSet, human: Path, scenes: Path, extra: Sequence[str]) -> None:
        self._single: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._everywhere: set[int] = set()
        self._scene: set[tuple[int, int]] = set()
        self._photos = 0
        for found in _photographs(human, labels):
            self._photos += 1
            self._single.update(found)
            self._pairs.update(_pairs(found))
        for names in label_matches(extra, labels):
            self._scene.update(_pairs({*names}))
        for line in scenes.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                self._read_scene(line, labels)

    def _read_scene(self, line: str, labels: LabelSet) -> None:
        """Parse one line "scene: label, label" or "scene: centre | label, label"."""
        scene, _, rest = line.partition(":")
        centre, bar, others = rest.partition("|")
        middle = [labels.index(name) for name in centre.split(",")]
        around = [labels.index(name) for name in others.split(",")] if bar else []
        if scene == "everywhere":
            self._everywhere.update(middle)
            return
        self._scene.update(_pairs({*middle}))
        self._scene.update(tuple(sorted(pair)) for pair in itertools.product(middle, around))  # type: ignore[misc]

    def pair(self, a: int, b: int) -> float:
        """Plausibility of two labels together: up to 1 if known, UNKNOWN otherwise."""
        if a in self._everywhere or b in self._everywhere or (a, b) in self._scene:
            return 1.0
        together = self._pairs[a, b]
        chance = self._single[a] * self._single[b] / self._photos
        return 1.0 if together >= TOGETHER and together >= LIFT * chance else UNKNOWN

    def __call__(self, found: Iterable[int]) -> float:
        """Rate a sentence by its pairs of labels: the average of their mean and their minimum."""
        scores = [self.pair(a, b) for a, b in _pairs(set(found))]
        return (sum(scores) / len(scores) + min(scores)) / 2 if scores else 1.0


def _pairs(found: set[int]) -> list[tuple[int, int]]:
    """List all pairs of labels once, the smaller index first."""
    return list(itertools.combinations(sorted(found), 2))


def _photographs(path: Path, labels: LabelSet) -> list[set[int]]:
    """Read "photo, tab, caption" lines: the labels named by the captions of each photo."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    named: dict[str, set[int]] = {}
    texts = [UNSEEN.sub("", caption) for _, caption in rows]
    for (photo, _), found in zip(rows, label_matches(texts, labels), strict=True):
        named.setdefault(photo, set()).update(found)
    return list(named.values())


def with_keywords(labels: LabelSet, asked: Iterable[set[str]]) -> LabelSet:
    """Add keywords that are not labels, so that sentences pairing a label with one are rated too."""
    keywords = sorted(set().union(*asked))
    more = [word for word, found in zip(keywords, label_matches(keywords, labels), strict=True) if not found]
    return LabelSet(
        (*labels.names, *more), (*labels.texts, *more), (*labels.synonyms, *(() for _ in more)), labels.source
    )


def candidates(path: Path, labels: LabelSet, human: Path, scenes: Path, extra: Sequence[str]) -> Sentences:
    """Read the generated sentences that name a requested keyword and at most MOST_LABELS labels."""
    texts, asked = read(path)
    good = names_keyword(texts, asked)
    wider = with_keywords(labels, asked)
    plausibility = Plausibility(wider, human, scenes, extra)
    mentions = label_matches(texts, wider)
    rows = [i for i, found in enumerate(mentions) if good[i] and 1 <= len(found) <= MOST_LABELS]
    return Sentences(
        [texts[i] for i in rows],
        [tuple(label for label in mentions[i] if label < len(labels)) for i in rows],
        [plausibility(mentions[i]) - LENGTHY * max(0, len(texts[i].split()) - PLAIN) for i in rows],
    )


def counts(texts: Sequence[str], labels: LabelSet) -> Counter[int]:
    """Count the texts that name each label."""
    return Counter(label for found in label_matches(texts, labels) for label in found)


def choose(
    pool: Sentences, extra: Sequence[tuple[int, ...]], short: list[Counter[int]], mentions: list[list[list[int]]],
    count: int, seed: int = 0,
) -> list[int]:  # fmt: skip
    """Select rows of the pool, in addition to captions that are always included.

    First for labels of each benchmark that lack captions (`mentions` has its labels in the pool, per benchmark); then
    by increasing quota for the label with the fewest mentions. Plausible sentences come first.
    """
    shuffled = np.random.default_rng(seed).permutation(len(pool.texts))
    order: list[int] = shuffled[np.argsort(-np.array(pool.plausible)[shuffled], kind="stable")].tolist()
    good = [i for i in order if pool.plausible[i] >= FLOOR]
    chosen: dict[int, None] = {}
    for rows in (good, order):
        _keep_coverage(rows, short, mentions, chosen)
    named: Counter[int] = Counter(
        label for found in (*extra, *(pool.labels[i] for i in chosen)) for label in found
    )
    _fill(pool, good, named, chosen, count, quotas=range(1, FEW + 1))
    _fill(pool, order, named, chosen, count, quotas=range(1, FEW + 1))
    _fill(pool, good, named, chosen, count, quotas=range(FEW + 1, count))
    return sorted(chosen)


def _keep_coverage(
    rows: list[int], short: list[Counter[int]], mentions: list[list[list[int]]], chosen: dict[int, None]
) -> None:
    """Add rows until no label lacks captions, starting with those that name the most lacking labels."""
    for least in range(MOST_LABELS, 0, -1):
        for i in rows:
            if i in chosen:
                continue
            needed = max(
                sum(lack[x] > 0 for x in found[i]) for lack, found in zip(short, mentions, strict=True)
            )
            if needed >= least:
                chosen[i] = None
                for lack, found in zip(short, mentions, strict=True):
                    lack.subtract(found[i])


def _fill(
    pool: Sentences, rows: list[int], named: Counter[int], chosen: dict[int, None], count: int, quotas: range
) -> None:
    """Add rows that name a label below the quota, with increasing quota, until there are enough."""
    total: Counter[int] = Counter(label for i in rows for label in pool.labels[i])
    most = max(total.values(), default=0) + max(named.values(), default=0)
    for quota in quotas:
        if len(chosen) >= count or quota > most:
            return
        for i in rows:
            if i not in chosen and any(named[label] < quota for label in pool.labels[i]):
                chosen[i] = None
                named.update(pool.labels[i])
                if len(chosen) >= count:
                    return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--captions", type=Path, required=True, help="JSON Lines of {caption, keywords}, gzipped"
    )
    parser.add_argument("--human", type=Path, required=True, help="lines of photo, tab, caption; gzipped")
    parser.add_argument("--scenes", type=Path, required=True, help="lines of scene: label, label")
    parser.add_argument("--extra", type=Path, required=True, help="captions to include always, one per line")
    parser.add_argument("--keep", type=Path, required=True, help="texts whose coverage must be kept")
    parser.add_argument("--labels", default="everyday", help="label set to cover")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--texts-only", action="store_true", help="write texts.txt without embeddings")
    args = parser.parse_args()
    labels = LabelSet.of(args.labels)
    extra = list(dict.fromkeys(filter(None, map(str.strip, args.extra.read_text("utf-8").splitlines()))))
    pool = candidates(args.captions, labels, args.human, args.scenes, extra)
    keep = args.keep.read_text("utf-8").splitlines()
    mentions = [tuple(found) for found in label_matches(extra, labels)]
    benchmarks = [LabelSet.load(name) for name in BENCHMARKS]
    short = [counts(keep, benchmark) for benchmark in benchmarks]
    for lack, benchmark in zip(short, benchmarks, strict=True):
        lack.subtract(counts(extra, benchmark))
    found = [label_matches(pool.texts, benchmark) for benchmark in benchmarks]
    rows = choose(pool, mentions, short, found, args.count - len(extra))
    known = {plain(text) for text in extra}
    texts = [pool.texts[i] for i in rows if plain(pool.texts[i]) not in known] + extra
    args.out.mkdir(parents=True, exist_ok=True)
    if args.texts_only:
        (args.out / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    else:
        CaptionBase.build(texts, load_backbone(args.model)).save(args.out, compact=True)
    named = counts(texts, labels)
    print(f"{len(pool.texts)} candidates, {len(texts)} captions kept, {len(extra)} of them hand-written")
    print(f"plausible: {np.mean([pool.plausible[i] >= FLOOR for i in rows]):.0%} of the kept generated ones, "
          f"{np.mean(np.array(pool.plausible) >= FLOOR):.0%} of all")  # fmt: skip
    few = [name for i, name in enumerate(labels.names) if named[i] < FEW]
    print(f"{len(labels)} labels, named {min(named[i] for i in range(len(labels)))} to {max(named.values())} times; "
          f"fewer than {FEW}: {', '.join(few) or 'none'}")  # fmt: skip
    for name, benchmark in zip(BENCHMARKS, benchmarks, strict=True):
        before, after = counts(keep, benchmark), counts(texts, benchmark)
        less = [n for i, n in enumerate(benchmark.names) if after[i] < before[i]]
        print(f"{name}: named less often than before: {', '.join(less) or 'none'}")


if __name__ == "__main__":
    main()
