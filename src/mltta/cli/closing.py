"""What a run of tagging says when it ends: how many, how fast, what was found, what failed, where it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import typer

from mltta.cli.progress import rate
from mltta.output.formats import Record, printable

#: reasons that are told one by one; the output has them all
MOST = 100


@dataclass
class Closing:
    """Counts a run, and tells it."""

    tagged: int = 0
    before: int = 0
    failed: list[str] = field(default_factory=list)
    #: why photos that were tagged got no keywords
    unwritten: list[str] = field(default_factory=list)
    #: remarks in words, such as what was skipped or copied
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: what was done with them
    verb: str = "tagged"
    #: images that failed for reasons that are told elsewhere
    unnamed: int = 0
    _labels: Counter[str] = field(default_factory=Counter)
    _since: float = 0.0

    def start(self) -> None:
        self._since = time.monotonic()

    def stop(self) -> None:
        self.seconds += time.monotonic() - self._since

    def count(self, record: Record) -> None:
        """One image more."""
        if "error" in record:
            self.failed.append(record["error"])
            return
        self.tagged += 1
        self._labels.update(record["present"])

    def add(
        self, images: int, failed: int, before: bool, labels: Mapping[str, int], reasons: Sequence[str]
    ) -> None:
        """Many images more, with some of the reasons why some failed."""
        if before:
            self.before += images
            return
        self.tagged += images - failed
        self.failed += reasons
        self.unnamed += failed - len(reasons)
        self._labels.update(labels)

    def tell(self, where: str, quiet: bool, ended: str = "") -> None:
        """Say it on the error stream; why images failed is said even to who wants quiet.

        Args:
            where: the files that were written, if any.
            ended: how it ended, if not as usual.
        """
        failed = len(self.failed) + self.unnamed
        every = self.tagged + self.before + failed
        if not quiet and (where or every > 1 or ended or self.notes):
            images = "1 image" if self.tagged == 1 else f"{self.tagged:,} images"
            speed = f" in {_duration(self.seconds)}, {rate(self.tagged, self.seconds)}" if self.tagged else ""
            before = f"; {self.before:,} were done before" if self.before else ""
            _say(f"{ended}{images} {self.verb}{speed}{before}")
            most = ", ".join(f"{label} {count:,}" for label, count in self._labels.most_common(5))
            if most or self.tagged > 1:
                _say(f"most frequent: {most}" if most else "no label was shown for any of them")
            for line in [*self.notes, f"written to {where}"] if where else self.notes:
                _say(line)
        see = f", see {where}" if where else ""
        _list(f"{failed:,} of {every:,} could not be tagged:", self.failed, self.unnamed, see)
        _list(f"{len(self.unwritten):,} of {every:,} got no keywords:", self.unwritten)

    @property
    def code(self) -> int:
        """1 if something could not be done."""
        return int(bool(self.failed or self.unwritten))


def _list(head: str, reasons: Sequence[str], unnamed: int = 0, see: str = "") -> None:
    if reasons:
        left = max(0, len(reasons) - MOST) + unnamed
        for line in [head, *(f"  {reason}" for reason in reasons[:MOST])]:
            _say(line)
        if left:
            _say(f"  and {left:,} more{see}")


def _say(line: str) -> None:
    typer.echo(printable(line), err=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
