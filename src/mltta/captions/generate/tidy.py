"""One sentence out of what a language model says, and whether it is a caption."""

from __future__ import annotations

import re

from mltta.captions.compose import MAX_WORDS
from mltta.captions.nouns import NounFilter

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
# "Sure! Here's a sentence with these keywords:" and "Sentence 1:"
_PREAMBLE = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok|great|yes)\b[^:.!]{0,60}[.!,:]+\s*)?"
    r"(?:(?:here(?:'s|’s| is| are)|this is|one possible|a possible|I(?:'ll|’ll| can| will| would))\b[^:]{0,120}:\s*)?"
    r"(?:(?:possible |example |the )?(?:sentence|caption|description|photo|answer|output|A)s?(?: \d+)?\s*:\s*)?",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?:\(?\d{1,3}[.):]|[-*•>#]+)\s+")
_QUOTES = '"“”«»'
_QUOTED = re.compile(r"^[\"“«](.+?)[\"”»]")
# a full stop ends a sentence unless it ends an abbreviation
_END = re.compile(r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)[.!?]+(?=[\"”’')]*(?:\s|$))")


def tidy(answer: str) -> str:
    """Reduce an answer to its first sentence, without what chat models put around it; perhaps nothing is left.

    >>> tidy('Sure! Here is a sentence:\\n\\n1. "A dog sleeps on a sofa." It is cosy.')
    'A dog sleeps on a sofa.'
    """
    for line in _THOUGHT.sub("", answer).splitlines():
        text = " ".join(line.replace("**", "").replace("__", "").split())
        before = None
        while text != before:  # a bullet may stand before a preamble, or after it
            before = text
            text = _PREAMBLE.sub("", _BULLET.sub("", text), count=1) if text else ""
        quoted = _QUOTED.match(text)
        text = quoted[1] if quoted else text
        end = _END.search(text)
        text = (text[: end.end()] if end else text).strip("*_` ")
        if sum(map(text.count, _QUOTES)) % 2:  # one that opens or closes nothing
            text = text.strip(_QUOTES).strip()
        if text and not text.endswith(":") and any(map(str.isalnum, text)):
            return text
    return ""


def rejection(caption: str, nouns: NounFilter) -> str:
    """Why a sentence is no caption for these labels, or nothing if it is one."""
    if not caption:
        return "empty"
    if len(caption.split()) > MAX_WORDS:
        return f"more than {MAX_WORDS} words"
    return "" if nouns(caption) else "no label"
