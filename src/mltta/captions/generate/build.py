"""The paper's text description base: sample labels, ask for a sentence with them, keep what names a label."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mltta.captions.generate.answers import AnswerFile, Entry, resolved, same
from mltta.captions.generate.engines import Engine
from mltta.captions.generate.sampling import Cooccurrence, Sampler
from mltta.captions.generate.tidy import rejection, tidy
from mltta.captions.nouns import NounFilter
from mltta.errors import ConfigError, EngineError
from mltta.labels import LabelSet


@dataclass(frozen=True)
class Generated:
    """What the file holds now, and what this call added to it."""

    entries: tuple[Entry, ...]
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
    engine: Engine,
    out: str | Path,
    count: int,
    *,
    attempts: int | None = None,
    seed: int = 0,
    cooccurrence: Cooccurrence | None = None,
    progress: Callable[[int], None] | None = None,
) -> Generated:
    """Ask until ``count`` different captions are kept; every answer is on disk as soon as it is there.

    Requests are numbered. As many are asked as captions are missing, then as many as are missing still, so that the
    file ends with the request that made the captions enough: in whatever order answers come, and wherever a run
    was stopped and taken up again.

    Args:
        out: JSON Lines file; one that exists is continued.
        attempts: requests at most, those of earlier calls included; by default four times the count.
        cooccurrence: how labels occur together; without it they are drawn uniformly, as in the paper.
        progress: called with the number of captions kept so far.
    """
    attempts = 4 * count if attempts is None else attempts
    if count < 1 or attempts < count:
        raise ConfigError(f"{count} captions in {attempts} attempts: give at least one attempt a caption")
    sampler = Sampler(labels, seed, cooccurrence)
    file = AnswerFile(out, {**engine.identity, **sampler.identity, "labels": _entries(labels)})
    writer = _Writer(labels, engine, file, sampler, progress or (lambda kept: None))
    try:
        asked = 0
        while asked < attempts and (missing := count - writer.kept(asked)) > 0:
            writer.ask(range(asked, min(asked + missing, attempts)))
            asked = min(asked + missing, attempts)
    except EngineError as error:
        raise EngineError(
            f"{error}\n{len(file.entries):,} answers are safe in {file.path}; the same command goes on from there"
        ) from error
    finally:
        file.close()
    file.finish()
    return Generated(tuple(file.entries.values()), writer.new, writer.seconds, writer.tokens)


class _Writer:
    """Asks the engine and writes down what it says."""

    def __init__(
        self,
        labels: LabelSet,
        engine: Engine,
        file: AnswerFile,
        sampler: Sampler,
        progress: Callable[[int], None],
    ) -> None:
        self._nouns = NounFilter(labels)
        self._engine, self._file, self._sampler, self._progress = engine, file, sampler, progress
        self.new, self.seconds, self.tokens = 0, 0.0, (0, 0)

    def kept(self, asked: int) -> int:
        """Different captions among the first requests."""
        before = [entry for entry in self._file.entries.values() if entry.n < asked]
        return sum(entry.kept for entry in resolved(before))

    def ask(self, numbers: range) -> None:
        """Have the requests answered that are not yet."""
        requests = {n: self._sampler(n) for n in numbers if n not in self._file.entries}
        seen = {same(entry.caption) for entry in self._file.entries.values() if entry.kept}
        self._progress(len(seen))
        start = time.monotonic()
        try:
            for answer in self._engine.answers(list(requests.values())) if requests else ():
                caption = tidy(answer.text)
                why = rejection(caption, self._nouns)
                tokens = (answer.prompt_tokens, answer.answer_tokens)
                self._file.add(Entry(answer.n, requests[answer.n].keywords, caption, why, tokens))
                self.new += 1
                self.tokens = (self.tokens[0] + tokens[0], self.tokens[1] + tokens[1])
                if not why:
                    seen.add(same(caption))
                    self._progress(len(seen))
        finally:
            self.seconds += time.monotonic() - start


def _entries(labels: LabelSet) -> list[dict[str, object]]:
    """The label set as a label file holds it: synonyms decide what is kept, so they belong to it."""
    return [
        {"name": name, "text": text, "synonyms": list(synonyms)}
        for name, text, synonyms in zip(labels.names, labels.texts, labels.synonyms, strict=True)
    ]
