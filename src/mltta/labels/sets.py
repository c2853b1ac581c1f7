"""Label sets: everyday, coco, voc, nuswide, or a custom list with synonyms."""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args

from mltta.errors import LabelError
from mltta.labels.entries import LEVEL, csv_column, read_entry, read_lines, read_tree
from mltta.labels.label_files import read_label_text
from mltta.storage.reading import UNREADABLE, explain, reading, shown, unwritable

BUILT_IN = ("everyday", "coco", "voc", "nuswide")
#: what the name of a built-in set may end in: its prompts and words are then those of ML-TTA's released code
RELEASED = ":released"
#: published lists, which are not changed; others get built-in synonyms
OFFICIAL = frozenset((*BUILT_IN, "objects365"))
#: limits for label files, since every label is encoded, and for each of its words
MOST_LABELS, MOST_CHARACTERS = 100_000, 1000
ASSETS = Path(__file__).parents[1] / "assets"
_SUFFIXES = (".txt", ".json", ".csv")
_HOW = (
    f"Give a built-in set ({', '.join(BUILT_IN)}), a list such as ['dog', 'traffic light'], "
    "a comma-separated string such as 'dog, traffic light', or a .txt, .json or .csv file."
)

_COMMA = re.compile("[,，、]")
log = logging.getLogger("mltta")

#: what the prompts of a built-in set say, and which words name its labels in captions
Naming: TypeAlias = Literal["readable", "released"]
Wording: TypeAlias = Literal["full", "released"]
#: what LabelSet.of accepts
LabelSource: TypeAlias = Union["LabelSet", str, os.PathLike[str], Mapping[str, Sequence[str]], Sequence[str]]


@dataclass(frozen=True)
class LabelSet:
    """The labels that a model scores: their names, their texts in prompts, and their synonyms.

    >>> LabelSet.of("dog, traffic_light").texts
    ('dog', 'traffic light')
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]
    synonyms: tuple[tuple[str, ...], ...]
    source: str = "list"
    #: what is shown and written for each label, as a path such as "animal|dog"; empty: the names
    titles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            raise LabelError(f"The label list ({self.source}) is empty. {_HOW}")
        if not len(self.names) == len(self.texts) == len(self.synonyms):
            raise LabelError(
                f"A label set needs one text and one tuple of synonyms per name, got {len(self.names)} names, "
                f"{len(self.texts)} texts and {len(self.synonyms)} tuples of synonyms."
            )
        first: dict[str, int] = {}
        entries = zip(self.names, self.texts, self.synonyms, self.titles or self.names, strict=True)
        for position, (name, text, words, title) in enumerate(entries, start=1):
            for value in (name, text, *words, title):
                if not isinstance(value, str):
                    raise _not_a_string(value, position, self.source)
                if not label_key(value):
                    raise LabelError(f"Label {position} ({self.source}) is blank. Remove it or give a name.")
                if found := unwritable(value):
                    raise LabelError(
                        f"Label {position} ({self.source}) contains {found}: {shown(value)}. "
                        "Remove that character."
                    )
            earlier = first.setdefault(label_key(name), position)
            if earlier != position:
                raise LabelError(
                    f"Label {name!r} at position {position} repeats {self.names[earlier - 1]!r} at position "
                    f"{earlier} ({self.source}). Case, underscores and spaces are ignored."
                )

    @property
    def official(self) -> bool:
        """Whether this is a published list, whose texts and synonyms are not changed."""
        return self.source in OFFICIAL

    @property
    def keywords(self) -> tuple[str, ...]:
        """What is written for each label: a path such as "animal|dog"."""
        return self.titles or tuple(name.replace(LEVEL, "/") for name in self.names)

    @property
    def display(self) -> tuple[str, ...]:
        """What is shown for each label: the last level of its path."""
        return tuple(title.rpartition(LEVEL)[2] for title in self.titles) or self.names

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def pick(self, places: Sequence[int]) -> LabelSet:
        """Return the labels at some positions."""
        names, texts = (tuple(part[i] for i in places) for part in (self.names, self.texts))
        titles = tuple(self.titles[i] for i in places) if self.titles else ()
        return LabelSet(names, texts, tuple(self.synonyms[i] for i in places), self.source, titles)

    def index(self, name: str) -> int:
        """Return the position of a label by name or text, ignoring case and spacing."""
        wanted = label_key(name)
        for words in (self.names, self.texts):
            if wanted in (keys := [label_key(word) for word in words]):
                return keys.index(wanted)
        close = difflib.get_close_matches(wanted, list(map(label_key, self.names)), n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise LabelError(f"No label {name!r} among the {len(self)} labels of {self.source}.{hint}")

    @classmethod
    def of(cls, labels: LabelSource) -> LabelSet:
        """Make a label set from a name, file, string, list or mapping; all callers use this."""
        if isinstance(labels, LabelSet):
            return labels
        if isinstance(labels, str):
            return cls._of_string(labels.strip())
        if isinstance(labels, os.PathLike):
            return cls.from_file(labels)
        if isinstance(labels, (bytes, set, frozenset)) or not isinstance(labels, Iterable):
            raise LabelError(f"Cannot read labels from a {type(labels).__name__}. {_HOW}")
        return cls._of_entries(labels, "list")

    @classmethod
    def load(cls, name: str, names: Naming = "readable", words: Wording = "full") -> LabelSet:
        """Load a built-in set, such as "voc"; "voc:released" is short for names and words as released.

        Args:
            names: "readable" prompts say "dining table"; "released" ones the official token, "diningtable".
            words: the words that name a label in a caption: those of the released code, or a "full" list: its person
                of VOC and NUS-WIDE has five words, where the full one also has girl, boy and pilot.
        """
        key = name.strip().casefold()
        if key.endswith(RELEASED):
            key, names, words = key.removesuffix(RELEASED), "released", "released"
        if key not in BUILT_IN:
            raise LabelError(f"Unknown label set {name!r}. {_HOW}")
        for option, value, known in (("names", names, get_args(Naming)), ("words", words, get_args(Wording))):
            if value not in known:
                raise LabelError(f"{option}={value!r} is neither {known[0]!r} nor {known[1]!r}.")
        return _built_in(key, names, words)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> LabelSet:
        """Read a .json, .csv or .txt file (one label per line, synonyms after |, optional bullets and # comments)."""
        path = Path(path)
        content = read_label_text(path, _HOW)
        suffix = path.suffix.casefold()
        if suffix == ".json":
            try:
                entries = json.loads(content)
            except UNREADABLE as error:
                raise LabelError(f"{path} is not valid JSON: {explain(error)}.") from None
            if not isinstance(entries, (list, dict)):
                kinds = "neither a list of labels nor a mapping from labels to synonyms"
                raise LabelError(f"{path} contains {kinds}.")
        elif suffix == ".csv":
            with reading(path, LabelError, "save it as a table with one label per line"):
                entries = csv_column(content)
        else:
            entries = read_tree(content) if "\n\t" in content else read_lines(content)
        if len(entries) > MOST_LABELS:
            raise LabelError(f"{path} contains {len(entries):,} labels; the limit is {MOST_LABELS:,}.")
        return cls._of_entries(entries, str(path))

    @classmethod
    def _of_string(cls, labels: str) -> LabelSet:
        """Parse a built-in set, a file name, a comma-separated list or a single label."""
        if labels.casefold().removesuffix(RELEASED) in BUILT_IN:
            return cls.load(labels)
        if labels.casefold().endswith(_SUFFIXES) or os.path.isfile(labels):
            return cls.from_file(labels)
        if "," not in labels and ("/" in labels or "\\" in labels):
            raise LabelError(f"No such file: {labels}. {_HOW}")
        return cls._of_entries(_COMMA.split(labels) if labels else [], "list")

    @classmethod
    def _of_entries(cls, entries: Iterable[Any] | Mapping[Any, Any], source: str) -> LabelSet:
        """Make a set from strings, {"name", "text", "synonyms"} objects or a mapping label -> synonyms."""
        if isinstance(entries, Mapping):
            entries = [{"name": name, "synonyms": synonyms} for name, synonyms in entries.items()]
        found: dict[str, tuple[str, str, tuple[str, ...], str]] = {}
        twice: list[str] = []
        for position, entry in enumerate(entries, start=1):
            fields = read_entry(entry) if isinstance(entry, str) else entry
            if not isinstance(fields, Mapping):
                raise _not_a_string(entry, position, source)
            name = fields.get("name")
            text = fields.get("text", name)
            if not isinstance(name, str) or not isinstance(text, str):
                raise _not_a_string(entry, position, source)
            words, title = _tidy_synonyms(fields.get("synonyms", ()), name), fields.get("title", "")
            key = label_key(name)
            if key and key in found:
                twice.append(name.strip())
                name, text, known, title = found[key]
                words = tuple(dict.fromkeys((*known, *words)))
            found[key] = name.strip(), _readable(text), words, title
        if twice:
            said = ", ".join(map(repr, twice[:5])) + (" …" if len(twice) > 5 else "")
            log.warning(
                "%s: removed %d duplicate(s): %s. Case, spaces and underscores are ignored",
                *("labels" if source == "list" else source, len(twice), said),
            )
        names, texts, synonyms, titles = zip(*found.values(), strict=True) if found else ((), (), (), ())
        titles = tuple(title or name.replace(LEVEL, "/") for title, name in zip(titles, names, strict=True))
        return cls(names, texts, synonyms, source, titles if titles != names else ())


@cache
def _built_in(key: str, names: Naming, words: Wording) -> LabelSet:
    entries = _entries(key)
    if words == "full":
        entries = _with_further_words(entries)
    if names == "released":
        entries = [{**entry, "text": entry["name"]} for entry in entries]
    return LabelSet._of_entries(entries, key)


def _entries(name: str) -> list[dict[str, Any]]:
    return list(json.loads((ASSETS / "labels" / f"{name}.json").read_text(encoding="utf-8")))


def _with_further_words(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add each label's own further words ("more"), or those of the COCO label that it is ("as")."""
    coco = (
        {entry["name"]: entry for entry in _entries("coco")}
        if any("as" in entry for entry in entries)
        else {}
    )
    own = {label_key(word) for entry in entries for word in (entry["name"], entry.get("text", entry["name"]))}
    found = []
    for entry in entries:
        same = coco.get(entry.get("as", ""), {})
        more = [*entry.get("more", ()), *same.get("synonyms", ()), *same.get("more", ())]
        words = [*entry.get("synonyms", ()), *(word for word in more if label_key(word) not in own)]
        found.append({**entry, "synonyms": words})
    return found


def _readable(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise LabelError(
            f"A label has {len(text):,} characters; the limit is {MOST_CHARACTERS:,}: {text[:40]}…"
        )
    return " ".join(text.replace("_", " ").split())


@lru_cache(maxsize=1 << 16)
def label_key(label: str) -> str:
    """Return a key that is equal for labels that differ only in case and spacing."""
    return _readable(label).casefold()


def _tidy_synonyms(synonyms: object, name: str) -> tuple[str, ...]:
    if isinstance(synonyms, Sequence) and not isinstance(synonyms, (str, bytes)):
        tidy = [_readable(s) for s in synonyms if isinstance(s, str)]
        if len(tidy) == len(synonyms) and all(tidy):
            return tuple(dict.fromkeys(tidy))
    raise LabelError(f"The synonyms of {name!r} must be a list of words, not {shown(synonyms)}.")


def _not_a_string(value: object, position: int, source: str) -> LabelError:
    return LabelError(f"Label {position} ({source}) is not a string: {shown(value)}. {_HOW}")
