"""Labels as people write them: lines, tables, synonyms, and hierarchies such as animal > dog."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from mltta.errors import LabelError

#: what separates the levels of a path, as in Lightroom
LEVEL = "|"
#: between synonyms, with a space on either side: cat | kitty
_SYNONYM = re.compile(r"\s+\|\s*|\|\s+")
_LEVELS = re.compile(r"\s*[>|]\s*")
_COMMENT = re.compile(r"(^|\s)#.*")
#: characters of a line: a label with its synonyms
_LONGEST = 100_000
_BULLET = re.compile(r"^\s*([-*+•–‣·]|\d+[.)])(\s+|$)")


def read_entry(text: str) -> dict[str, Any]:
    """Return the label, synonyms and path of an entry typed by hand.

    >>> read_entry("cat | kitty")
    {'name': 'cat', 'synonyms': ['kitty'], 'title': ''}
    >>> read_entry("animal > dog > poodle"), read_entry("animal|dog | puppy")["synonyms"]
    ({'name': 'poodle', 'synonyms': [], 'title': 'animal|dog|poodle'}, ['puppy'])
    """
    own, *others = _SYNONYM.split(text)
    levels = [level for level in _LEVELS.split(own.strip()) if level]
    name = levels[-1] if len(levels) > 1 else own
    title = LEVEL.join(levels) if len(levels) > 1 else ""
    return {"name": name, "synonyms": [word for word in others if word.strip()], "title": title}


def read_tree(content: str) -> list[dict[str, Any]]:
    """Return the labels of a list indented by tabs: {synonyms} below a label, and [groups] that are no labels.

    >>> [entry["title"] for entry in read_tree("[who]\\n\\tdog\\n\\t\\t{puppy}\\n\\t\\tpoodle")]
    ['who|dog', 'who|dog|poodle']
    """
    found: list[dict[str, Any]] = []
    levels: list[str] = []
    for line in filter(str.strip, content.splitlines()):
        depth, word = len(line) - len(line.lstrip("\t")), line.strip()
        if word[0] == "{" and word[-1] == "}":
            if found:
                found[-1]["synonyms"].append(word[1:-1].strip())
            continue
        group = word[0] == "[" and word[-1] == "]"
        levels[depth:] = [(word[1:-1] if group else word).strip().replace(LEVEL, "/")]
        if not group:
            found.append({"name": levels[-1], "synonyms": [], "title": LEVEL.join(levels)})
    return found


def read_lines(content: str) -> list[str]:
    """Return the labels of a text list without comments, blank lines, bullets and numbers.

    >>> read_lines("# animals\\n- cat | kitty\\n\\n2. dog  # or wolf\\n")
    ['cat | kitty', 'dog']
    """
    lines = content.splitlines()
    if (longest := max(map(len, lines), default=0)) > _LONGEST:
        raise LabelError(f"A line of labels has {longest:,} characters; the limit is {_LONGEST:,}.")
    return [label for line in lines if (label := _BULLET.sub("", _COMMENT.sub("", line)).strip())]


def csv_column(content: str) -> list[str]:
    """Return the column named label or name; without such a header, the first column."""
    rows = [row for row in csv.reader(io.StringIO(content, newline="")) if any(cell.strip() for cell in row)]
    header = [cell.strip().casefold() for cell in rows[0]] if rows else []
    for title in ("label", "name"):
        if title in header:
            column = header.index(title)
            return [row[column] if column < len(row) else "" for row in rows[1:]]
    return [row[0] for row in rows]
