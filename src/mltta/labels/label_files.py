"""Text of label files, and the labels in files that `mltta teach` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mltta.errors import LabelError
from mltta.storage.reading import LABELS, read_bytes, read_text
from mltta.storage.tensors import from_bytes

#: format of files of taught labels
FORMAT = "mltta-taught-1"


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


def read_taught(path: Path) -> tuple[list[Any], bytes]:
    """The entries of the label list in a file of taught labels, and the content of the file."""
    try:
        content = read_bytes(path, LABELS, LabelError)
    except OSError as error:
        raise LabelError(f"Cannot read {path}: {error.strerror}.") from None
    _, about = from_bytes(content, str(path))
    if about.get("format") != json.dumps(FORMAT):
        raise LabelError(f"{path} was not written by mltta teach, or by another version.")
    return list(json.loads(about["labels"])), content
