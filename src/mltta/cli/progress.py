"""Progress and summary of a run: a bar on a terminal, or occasional lines in a log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from mltta.output.formats import Record
from mltta.storage.reading import escaped

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

#: seconds until the first line; later intervals grow by a twentieth of the elapsed time, to keep long logs short
FIRST = 10.0
#: number of errors listed in the summary; the output contains all of them
MOST = 100


class Progress:
    """Progress of a run, reported on stderr as a bar or as lines."""

    def __init__(self, quiet: bool = False, bar: bool = True):
        terminal = sys.stderr.isatty()
        self._bar = bar_on_terminal() if bar and terminal and not quiet else None
        self._lines = not terminal and not quiet
        self.begin(0)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def begin(self, total: int) -> None:
        """Start counting again, up to a total."""
        self._done, self._total = 0, total
        self._start = self._said = time.monotonic()
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task("tagging", total=total, visible=total > 1)

    def advance(self, count: int = 1) -> None:
        """Count finished images and report progress if it is time."""
        self._done += count
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], count)
        now = time.monotonic()
        due = now - self._said >= max(FIRST, (now - self._start) / 20)
        if self._lines and due and self._done < self._total:
            self._said = now
            speed = rate(self._done, now - self._start)
            typer.echo(f"tagging {self._done:,} of {self._total:,}, {speed}", err=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def rate(count: int, seconds: float) -> str:
    """Format a throughput."""
    found = count / max(seconds, 1e-9)
    if found >= 9.95:
        return f"{found:,.0f} per second"
    return f"{found:.1f} per second" if found >= 0.1 else f"{60 * found:.1f} per minute"


@contextmanager
def counted(title: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr; yield a function that sets the number done and, optionally, the total."""
    with bar_on_terminal() as bar:
        task = bar.add_task(title, total=total)

        def moved(done: int, of: int | None = total) -> None:
            bar.update(task, completed=done, total=of)

        yield moved


def bar_on_terminal() -> Bar:
    """Return a progress bar on stderr, so that results can be piped."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns: list[progress.ProgressColumn] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    columns += [progress.MofNCompleteColumn(), Rate(), progress.TimeRemainingColumn()]
    console = Console(file=getattr(sys.stderr, "styled", sys.stderr))
    return progress.Progress(*columns, console=console, transient=True, speed_estimate_period=60)


@dataclass
class Closing:
    """Counts of a run and their summary."""

    tagged: int = 0
    before: int = 0
    failed: list[str] = field(default_factory=list)
    #: reasons why tagged photos got no keywords
    unwritten: list[str] = field(default_factory=list)
    #: further lines of the summary, such as the number of copies
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: what was done with the images
    verb: str = "tagged"
    #: failed images whose reasons are not listed
    unnamed: int = 0
    _labels: Counter[str] = field(default_factory=Counter)
    _since: float = 0.0

    def start(self) -> None:
        self._since = time.monotonic()

    def stop(self) -> None:
        self.seconds += time.monotonic() - self._since

    def count(self, record: Record) -> None:
        """Count one image."""
        reasons = [record["error"]] if "error" in record else []
        self.add(1, len(reasons), False, Counter(record.get("present", ())), reasons)

    def add(
        self, images: int, failed: int, before: bool, labels: Mapping[str, int], reasons: Sequence[str]
    ) -> None:
        """Count several images, with the reasons of some failures."""
        if before:
            self.before += images
            return
        self.tagged += images - failed
        self.failed += reasons
        self.unnamed += failed - len(reasons)
        self._labels.update(labels)

    def tell(self, where: str, quiet: bool, ended: str = "") -> None:
        """Print the summary, starting with ``ended`` if the run was stopped; ``quiet`` leaves only the errors."""
        failed = len(self.failed) + self.unnamed
        every = self.tagged + self.before + failed
        lines: list[str] = []
        if not quiet and (where or every > 1 or ended or self.notes):
            images = "1 image" if self.tagged == 1 else f"{self.tagged:,} images"
            speed = f" in {_duration(self.seconds)}, {rate(self.tagged, self.seconds)}" if self.tagged else ""
            before = f"; {self.before:,} were already done" if self.before else ""
            lines.append(f"{ended}{images} {self.verb}{speed}{before}")
            most = ", ".join(f"{label} {count:,}" for label, count in self._labels.most_common(5))
            if most or self.tagged > 1:
                lines.append(f"most frequent: {most}" if most else "no labels found")
            lines += [*self.notes, f"written to {where}"] if where else self.notes
        see = f", see {where}" if where else ""
        lines += _listed(f"{failed:,} of {every:,} could not be tagged:", self.failed, self.unnamed, see)
        lines += _listed(f"{len(self.unwritten):,} of {every:,} got no keywords:", self.unwritten)
        for line in lines:
            say(line)

    @property
    def code(self) -> int:
        """Exit code: 1 if anything failed."""
        return int(bool(self.failed or self.unwritten))


def _listed(head: str, reasons: Sequence[str], unnamed: int = 0, see: str = "") -> list[str]:
    left = max(0, len(reasons) - MOST) + unnamed
    lines = [head, *(f"  {reason}" for reason in reasons[:MOST])] if reasons else []
    return [*lines, f"  and {left:,} more{see}"] if lines and left else lines


def say(line: str) -> None:
    """Print a line to stderr."""
    typer.echo(escaped(line), err=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
