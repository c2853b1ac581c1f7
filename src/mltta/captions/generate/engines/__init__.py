"""Who writes the captions: one small interface over a chat endpoint, a local language model and plain rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Request:
    """One sentence asked for; everything in it follows from the run's seed and its number."""

    n: int
    keywords: tuple[str, ...]
    prompt: str
    seed: int


@dataclass(frozen=True)
class Answer:
    """What came back for request n, as it came, and the tokens it took."""

    n: int
    text: str
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Engine(Protocol):
    """Answers requests."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the answers depend on; a run is not continued by an engine with another identity."""

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Give one answer a request, in whatever order they finish."""
