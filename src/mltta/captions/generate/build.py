"""The paper's text description base: sample labels, ask for a sentence with them, keep what names a label."""

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
    """What the file holds now, and what this call added to it."""

    entries: tuple[Sentence, ...]
    new: int
    seconds: float
    tokens: tuple[int, int]  # of this call's questions, of its answers

    @property
    def captions(self) -> list[str]:
        return [entry.caption for entry in self.entries if entry.kept]

    @property
    def rejected(self) -> Counter[str]:
        """How many answers were not kept, by reason."""
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
    """Ask until ``count`` different captions are kept; every answer is on disk as soon as it arrives.

    Requests are numbered. As many are asked as captions are missing, until none is, so that the file ends with the
    request that completed the count: in whatever order answers come, and however often a run was interrupted.

    Args:
        out: JSON Lines file; an existing one is resumed.
        attempts: requests at most, those of earlier calls included; by default four times the count.
        cooccurrence: how labels occur together; without it they are drawn uniformly, as in the paper.
        progress: called with the number of captions kept so far.
    """
    attempts = 4 * count if attempts is None else attempts
    if count < 1 or attempts < count:
        raise ConfigError(f"{count} captions in {attempts} attempts: give at least one attempt a caption")
    sampler, nouns = Sampler(labels, seed, cooccurrence), NounFilter(labels)
    tell = progress or (lambda kept: None)
    # the label set as a label file holds it: synonyms decide what is kept, so they belong to it
    listed = [
        {"name": name, "text": text, "synonyms": list(synonyms)}
        for name, text, synonyms in zip(labels.names, labels.texts, labels.synonyms, strict=True)
    ]
    file = AnswerFile(out, {**engine.identity, **sampler.identity, "labels": listed})
    before, start, spent = len(file.entries), time.monotonic(), [0, 0]

    def ask(numbers: range) -> None:
        """Have the requests answered that are not yet."""
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
        safe = f"{len(file.entries):,} answers are safe in {file.path}"
        raise EngineError(f"{error}\n{safe}; rerun the command to continue") from error
    finally:
        file.close()
    file.finish()
    entries = tuple(file.entries.values())
    return Generated(entries, len(entries) - before, time.monotonic() - start, (spent[0], spent[1]))


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
