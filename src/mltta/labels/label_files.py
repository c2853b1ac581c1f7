"""Text of label files."""

from __future__ import annotations

from pathlib import Path

from mltta.errors import LabelError
from mltta.storage.reading import LABELS, read_text


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
