"""Precision and recall of the noun filter on hand-labelled captions, compared with spaCy's matcher if installed.

    python -m benchmarks.noun_filter [--captions llm_captions.jsonl.gz]

The captions are tests/captions/coco_labelled.jsonl, with COCO's labels. spaCy's PhraseMatcher gets the same names
and synonyms and compares lemmas from its lookup tables (`pip install spacy spacy-lookups-data`). With --captions,
also measures throughput on the first 20,000 captions of a file.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from mltta.captions.nouns import NounFilter
from mltta.captions.read import read_texts
from mltta.labels import LabelSet

LABELLED = Path(__file__).parents[1] / "tests" / "captions" / "coco_labelled.jsonl"
Filter = Callable[[str], set[str]]


def ours(labels: LabelSet) -> Filter:
    nouns = NounFilter(labels)
    return lambda text: {labels.names[i] for i in nouns(text)}


def spacys(labels: LabelSet) -> Filter | None:
    try:
        import spacy
        from spacy.matcher import PhraseMatcher
        from spacy.util import filter_spans
    except ImportError:
        return None
    nlp = spacy.blank("en")
    nlp.add_pipe("lemmatizer", config={"mode": "lookup"})
    nlp.initialize()
    matcher = PhraseMatcher(nlp.vocab, attr="LEMMA")
    for name, text, synonyms in zip(labels.names, labels.texts, labels.synonyms, strict=True):
        matcher.add(name, [nlp(phrase.lower()) for phrase in dict.fromkeys([name, text, *synonyms])])
    return lambda text: {span.label_ for span in filter_spans(matcher(nlp(text.lower()), as_spans=True))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--captions", type=Path, help="also measure throughput on these captions")
    args = parser.parse_args()
    labels = LabelSet.load("coco")
    rows = [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").splitlines()]
    filters = {"this filter": ours(labels), "spaCy PhraseMatcher, lemmas": spacys(labels)}
    print("| filter | set | captions | precision | recall |\n|---|---|---|---|---|")
    for title, find in filters.items():
        if find is None:
            print(f"| {title} | not installed | | | |")
            continue
        for name in dict.fromkeys(row["set"] for row in rows):
            pairs = [(find(row["caption"]), set(row["labels"])) for row in rows if row["set"] == name]
            right = sum(len(found & wanted) for found, wanted in pairs)
            precision, recall = (right / sum(map(len, side)) for side in zip(*pairs, strict=True))
            print(f"| {title} | {name} | {len(pairs)} | {precision:.1%} | {recall:.1%} |")
    if args.captions is not None:
        texts = read_texts(args.captions)[:20_000]
        for title, find in filters.items():
            if find is not None:
                start = time.perf_counter()
                for text in texts:
                    find(text)
                print(f"{title}: {len(texts) / (time.perf_counter() - start):,.0f} captions per second")


if __name__ == "__main__":
    main()
