"""Compare the label names in other languages with public word lists.

    python -m benchmarks.languages --wordnet OMW --cldr annotations [--list de]

OMW: a folder with files of the Open Multilingual Wordnet (wn-data-fra.tab, wn-wikt-fra.tab …) and index.noun of
WordNet 3.0. annotations: that folder of the npm package cldr-annotations-full, the names of emoji. A name is confirmed
if a list gives it for any noun sense of the English label. --list prints the names for which the lists have others.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from mltta.labels import BUILT_IN, LabelSet
from mltta.labels.languages import LANGUAGES, names

CODES = {
    "de": "deu",
    "es": "spa",
    "fr": "fra",
    "it": "ita",
    "ja": "jpn",
    "nl": "nld",
    "pl": "pol",
    "pt": "por",
    "tr": "tur",
    "zh": "cmn",
}


def senses(index: Path) -> dict[str, set[str]]:
    """The noun senses of each English word, from WordNet's index."""
    found = {}
    for line in index.read_text("utf-8").splitlines():
        word, *rest = line.split(" ")
        if word:
            found[word.replace("_", " ")] = {f"{place}-n" for place in rest if len(place) == 8}
    return found


def words(folder: Path, code: str) -> dict[str, set[str]]:
    """The words of each sense in a language."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in (folder / f"wn-data-{code}.tab", folder / f"wn-wikt-{code}.tab"):
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            part = line.split("\t")
            if len(part) > 2 and "lemma" in part[1]:
                found[part[0]].add(part[2].replace("_", " ").replace("+", "").casefold())
    return found


def emoji(folder: Path, language: str) -> dict[str, tuple[str, set[str]]]:
    """The name and the keywords of each emoji."""
    held = json.loads((folder / language / "annotations.json").read_text("utf-8"))["annotations"][
        "annotations"
    ]
    return {
        key: (" ".join(own.get("tts", [])).casefold(), {*map(str.casefold, own.get("default", []))})
        for key, own in held.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--cldr", type=Path, required=True)
    parser.add_argument("--list", choices=LANGUAGES, help="print the names of this language that differ")
    given = parser.parse_args()
    labels = {label for name in BUILT_IN for label in LabelSet.load(name).names}
    english, meant = emoji(given.cldr, "en"), senses(given.wordnet / "index.noun")
    print("language     WordNet  emoji  others only  no entry")
    for language, title in LANGUAGES.items():
        table, own, symbols = (
            names(language),
            words(given.wordnet, CODES[language]),
            emoji(given.cldr, language),
        )
        counts = [0, 0, 0, 0]
        for label in sorted(labels):
            near = {label, label.removesuffix("s")}
            said = {word for key in near for sense in meant.get(key, ()) for word in own.get(sense, ())}
            drawn = {key for key, (name, _) in english.items() if name in near and key in symbols}
            also = {word for key in drawn for word in (symbols[key][0], *symbols[key][1])}
            mine = {word.casefold() for word in table[label]}
            kind = 0 if mine & said else 1 if mine & also else 2 if said or also else 3
            counts[kind] += 1
            if kind == 2 and given.list == language:
                print(
                    f"  {label}: {', '.join(table[label])}; others: {', '.join(sorted({*said, *also})[:6])}"
                )
        print(f"{title:12} {counts[0]:7} {counts[1]:6} {counts[2]:12} {counts[3]:9}")


if __name__ == "__main__":
    main()
