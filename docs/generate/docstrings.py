"""Prepare docstrings for the Python page (a griffe extension, see mkdocs.yml)."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Show doctests as code, and indent the items of a docstring that starts with "Args:"."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = prepared(obj.docstring.value)


def prepared(text: str) -> str:
    """A docstring that griffe reads as Google style, with its doctests as fenced code."""
    if text.startswith("Args:\n") and not text.startswith("Args:\n "):
        text = text.replace("\n", "\n    ")
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    return DOCTEST.sub(lambda found: f"```python\n{re.sub(r' *# doctest:.*', '', found[0])}\n```", text)
