"""Text of label files: reading it, and the labels in its lines or columns."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from mltta.errors import LabelError
from mltta.storage.reading import LABELS, read_text

_COMMENT = re.compile(r"(^|\s)#.*")
_BULLET = re.compile(r"^\s*([-*+•–‣·]|\d+[.)])(\s+|$)")
#: characters of a line: a label with its synonyms
_LONGEST = 100_000


def listed(content: str) -> list[str]:
    """Return the labels of a text list without comments, blank lines, bullets and numbers.

    >>> listed("# animals\\n- cat | kitty\\n\\n2. dog  # or wolf\\n")
    ['cat | kitty', 'dog']
    """
    lines = content.splitlines()
    if (longest := max(map(len, lines), default=0)) > _LONGEST:
        raise LabelError(f"A line of labels has {longest:,} characters; the limit is {_LONGEST:,}.")
    return [label for line in lines if (label := _BULLET.sub("", _COMMENT.sub("", line)).strip())]


def read_label_text(path: Path, how: str) -> str:
    """Read a UTF-8 file of labels or synonyms, with or without a byte order mark."""
    try:
        content = read_text(path, LABELS, LabelError)
    except FileNotFoundError:
        raise LabelError(f"No such file: {path}. {how}") from None
    except OSError as error:
        raise LabelError(f"Cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content:
        raise LabelError(f"{path} is not UTF-8 text. Save it as plain text with UTF-8 encoding.")
    return content


def csv_column(content: str) -> list[str]:
    """Return the column named label or name; without such a header, the first column."""
    rows = [row for row in csv.reader(io.StringIO(content, newline="")) if any(cell.strip() for cell in row)]
    header = [cell.strip().casefold() for cell in rows[0]] if rows else []
    for title in ("label", "name"):
        if title in header:
            column = header.index(title)
            return [row[column] if column < len(row) else "" for row in rows[1:]]
    return [row[0] for row in rows]
