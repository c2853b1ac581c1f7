"""The paper's text description base: sample labels, request a sentence with them, keep it if it names a label."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mltta.captions.compose import MAX_WORDS
from mltta.captions.generate.answer_file import AnswerFile, Sentence, resolved, same
from mltta.captions.generate.sampling import CaptionEngine, Cooccurrence, Sampler
from mltta.captions.nouns import NounFilter
from mltta.errors import ConfigError, EngineError
from mltta.labels import LabelSet

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


@dataclass(frozen=True)
class Generated:
    """Content of the file, and what this call added."""

    entries: tuple[Sentence, ...]
    new: int
    seconds: float
    tokens: tuple[int, int]  # of this call's requests and answers

    @property
    def captions(self) -> list[str]:
        return [entry.caption for entry in self.entries if entry.kept]

    @property
    def rejected(self) -> Counter[str]:
        """Number of rejected answers by reason."""
        return Counter(entry.why for entry in self.entries if not entry.kept)


def generate_captions(
    labels: LabelSet,
    engine: CaptionEngine,
    out: str | Path,
    count: int,
    *,
    attempts: int | None = None,
    seed: int = 0,
    cooccurrence: Cooccurrence | None = None,
    progress: Callable[[int], None] | None = None,
) -> Generated:
    """Request captions until ``count`` distinct ones are kept; every answer is saved immediately.

    Requests are numbered and sent in rounds, as many as captions are missing. The file therefore ends with the request
    that completes the count, regardless of the order of answers and of interruptions.

    Args:
        out: JSON Lines file; an existing one is resumed.
        attempts: maximum number of requests, including earlier calls (default: four times the count).
        cooccurrence: label co-occurrence; without it labels are drawn uniformly, as in the paper.
        progress: called with the number of captions kept so far.
    """
    attempts = 4 * count if attempts is None else attempts
    if count < 1 or attempts < count:
        raise ConfigError(f"{count} captions in {attempts} attempts: give at least one attempt per caption")
    sampler, nouns = Sampler(labels, seed, cooccurrence), NounFilter(labels)
    tell = progress or (lambda kept: None)
    # the label set as in a label file; synonyms are included because they decide which captions are kept
    listed = [
        {"name": name, "text": text, "synonyms": list(synonyms)}
        for name, text, synonyms in zip(labels.names, labels.texts, labels.synonyms, strict=True)
    ]
    file = AnswerFile(out, {**engine.identity, **sampler.identity, "labels": listed})
    before, start, spent = len(file.entries), time.monotonic(), [0, 0]

    def ask(numbers: range) -> None:
        """Send the requests that have no answer yet."""
        requests = {n: sampler(n) for n in numbers if n not in file.entries}
        seen = {same(entry.caption) for entry in file.entries.values() if entry.kept}
        tell(len(seen))
        for answer in engine.answers(list(requests.values())) if requests else ():
            caption = tidy(answer.text)
            why = rejection(caption, nouns)
            tokens = (answer.prompt_tokens, answer.answer_tokens)
            file.add(Sentence(answer.n, requests[answer.n].keywords, caption, why, tokens))
            spent[:] = [spent[0] + tokens[0], spent[1] + tokens[1]]
            if not why:
                seen.add(same(caption))
                tell(len(seen))

    try:
        asked = 0
        while asked < attempts:
            done = resolved(entry for entry in file.entries.values() if entry.n < asked)
            missing = count - sum(entry.kept for entry in done)
            if missing <= 0:
                break
            ask(range(asked, min(asked + missing, attempts)))
            asked = min(asked + missing, attempts)
    except EngineError as error:
        safe = f"{len(file.entries):,} answers are saved in {file.path}"
        raise EngineError(f"{error}\n{safe}; rerun the command to continue") from error
    finally:
        file.close()
    file.finish()
    entries = tuple(file.entries.values())
    return Generated(entries, len(entries) - before, time.monotonic() - start, (spent[0], spent[1]))


def tidy(answer: str) -> str:
    """Reduce an answer to its first sentence, without the additions of chat models; may be empty.

    >>> tidy('Sure! Here is a sentence:\\n\\n1. "A dog sleeps on a sofa." It is cosy.')
    'A dog sleeps on a sofa.'
    """
    for line in _THOUGHT.sub("", answer).splitlines():
        text = " ".join(line.replace("**", "").replace("__", "").split())
        before = None
        while text != before:  # a bullet may precede or follow a preamble
            before = text
            text = _PREAMBLE.sub("", _BULLET.sub("", text), count=1) if text else ""
        quoted = _QUOTED.match(text)
        text = quoted[1] if quoted else text
        end = _END.search(text)
        text = (text[: end.end()] if end else text).strip("*_` ")
        if sum(map(text.count, _QUOTES)) % 2:  # an unmatched quote
            text = text.strip(_QUOTES).strip()
        if text and not text.endswith(":") and any(map(str.isalnum, text)):
            return text
    return ""


def rejection(caption: str, nouns: NounFilter) -> str:
    """The reason to reject a sentence; empty to accept it."""
    if not caption:
        return "empty"
    if len(caption.split()) > MAX_WORDS:
        return f"more than {MAX_WORDS} words"
    return "" if nouns(caption) else "no label"
