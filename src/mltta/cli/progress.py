"""How far it is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

#: seconds until the first line; later ones come once a twentieth more time has passed, so that a night's log is short
FIRST = 10.0


class Progress:
    """Counts what is done of a run, and says so on the error stream.

    Args:
        quiet: say nothing.
        bar: whether a bar would not stand in the way of what is printed.
    """

    def __init__(self, quiet: bool = False, bar: bool = True):
        self._quiet, self._done, self._total = quiet, 0, 0
        self._start = self._said = time.monotonic()
        terminal = sys.stderr.isatty()
        self._bar = bar_on_terminal() if bar and terminal and not quiet else None
        self._lines = not terminal and not quiet
        self._task = self._bar.add_task("tagging", visible=False) if self._bar is not None else None

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def begin(self, total: int) -> None:
        """Start to count anew, up to a total."""
        self._done, self._total = 0, total
        self._start = self._said = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=total, visible=total > 1)

    def advance(self, count: int = 1) -> None:
        """Count what is done, and say so if it is time."""
        self._done += count
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)
        now = time.monotonic()
        due = now - self._said >= max(FIRST, (now - self._start) / 20)
        if self._lines and due and self._done < self._total:
            self._said = now
            speed = rate(self._done, now - self._start)
            typer.echo(f"tagging {self._done:,} of {self._total:,}, {speed}", err=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def rate(count: int, seconds: float) -> str:
    """How fast, in words."""
    found = count / max(seconds, 1e-9)
    if found >= 9.95:
        return f"{found:,.0f} per second"
    return f"{found:.1f} per second" if found >= 0.1 else f"{60 * found:.1f} per minute"


@contextmanager
def counted(title: str, total: int) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on the error stream, and what moves it: called with how much is done, and of how much."""
    with bar_on_terminal() as bar:
        task = bar.add_task(title, total=total)

        def moved(done: int, of: int | None = total) -> None:
            bar.update(task, completed=done, total=of)

        yield moved


def bar_on_terminal() -> Bar:
    """A bar on the error stream, so that results can be piped."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns: list[progress.ProgressColumn] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    columns += [progress.MofNCompleteColumn(), Rate(), progress.TimeRemainingColumn()]
    return progress.Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=60)
