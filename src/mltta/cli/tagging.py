"""The run behind `mltta tag`: what is not done yet is tagged, kept, and told about; once, or as a folder fills."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import typer

from mltta.cli.closing import Closing
from mltta.cli.early import Early
from mltta.cli.inputs import Source, Sources, Stamp, stamp
from mltta.cli.progress import Progress
from mltta.errors import ConfigError, ImageError
from mltta.output.records import Record
from mltta.output.screen import Screen
from mltta.output.tags_file import OTHERWISE, Output

if TYPE_CHECKING:
    from mltta.tagger import Tagger, Tags

#: seconds between two looks at a folder that fills
POLL = 2.0


class Effect:
    """Something done with a photo besides writing its tags down."""

    def prepare(self, photo: Path, root: Path | None) -> None:
        """Hear of every photo of the run, in order, before any is tagged."""

    def tagged(self, photo: Path, tags: Tags, record: Record) -> None:
        """A photo was tagged now."""

    def known(self, photo: Path, record: Record) -> bool:
        """A photo was tagged by an earlier run; whether its file was changed by what is done now."""
        return False

    def notes(self) -> list[str]:
        """What was done, in words, for the end."""
        return []


@dataclass
class Run:
    """One command's work."""

    tagger: Tagger
    sources: Sources
    sink: Output | Screen
    effects: Sequence[Effect] = ()
    quiet: bool = False
    closing: Closing = field(default_factory=Closing)
    early: Early = field(default_factory=Early)
    _failed: dict[Source, Stamp | None] = field(default_factory=dict)
    _first: bool = True

    def once(self, files: Sequence[Source], bar: Progress) -> None:
        """Tag what is not done of some files, and write the output."""
        stamps = {file: stamp(file) for file in files}
        todo = self._todo(stamps)
        left = {*todo, *self._failed}
        done = [file for file in files if file not in left]
        self._refuse_online(todo)
        for effect in self.effects:
            for file in files:
                if isinstance(file, Path):
                    effect.prepare(file, self.sources.roots.get(file))
        if self._first:
            self.closing.before, self._first = len(done), False
            self._known(done)
        self.sink.grow(self.sink.ordered([str(file) for file in done]))
        order = [str(file) for file in files]
        bar.begin(len(todo))
        self.closing.start()
        try:
            for file, tags in zip(todo, self.tagger.stream(map(self._photo, todo)), strict=True):
                self._one(file, tags, stamps[file])
                bar.advance()
        except KeyboardInterrupt:
            self.sink.finish(self.sink.ordered(order))
            raise
        finally:
            self.closing.stop()
        self.sink.finish(self.sink.ordered(order))

    def watch(self, bar: Progress) -> None:
        """Go on as the folders fill, until somebody interrupts."""
        while True:
            files = self.sources.settled()
            if self._todo({file: stamp(file) for file in files}):
                self.once(files, bar)
            sleep(POLL)

    def _todo(self, stamps: Mapping[Source, Stamp | None]) -> list[Source]:
        """What is to be tagged: not what is done, and not what has failed in this run and is the same still."""
        return [
            file
            for file, own in stamps.items()
            if not self.sink.done(str(file), own) and not (file in self._failed and self._failed[file] == own)
        ]

    def _photo(self, file: Source) -> Any:
        """A file, which may be decoded already; that is looked at when it is its turn."""
        if not isinstance(file, Path):
            return file
        from mltta.session.prepare import Photo

        return Photo(0, str(file), partial(self.early.take, file), file.stem)

    def _one(self, file: Source, tags: Tags, seen: Stamp | None) -> None:
        tags.image = tags.image or str(file)  # what was piped has no name of its own
        record = tags.record()
        now = seen
        if "error" not in record and self.effects and isinstance(file, Path):
            as_seen = stamp(file) == seen
            try:
                for effect in self.effects:
                    effect.tagged(file, tags, record)
            except ImageError as error:  # it has gone since
                record = {"image": str(file), "error": str(error)}
            now = stamp(file) if as_seen else seen  # keywords may have gone into it
        if "error" in record:
            self._failed[file] = now
        self.closing.count(record)
        self.sink.add(record, now)

    def _known(self, files: Sequence[Source]) -> None:
        """What is done with the photos of earlier runs, whose tags are known."""
        if not isinstance(self.sink, Output) or not self.effects:
            return
        for file in files:
            if not isinstance(file, Path):
                continue
            record = self.sink.journal.record(str(file))
            changed = [effect.known(file, record) for effect in self.effects]
            if any(changed):
                self.sink.journal.add(record, stamp(file))

    def _refuse_online(self, todo: Sequence[Source]) -> None:
        method = self.tagger.method
        if todo and method.online and isinstance(self.sink, Output) and self.sink.journal.entries:
            raise ConfigError(
                f"{method.name} learns from the photos before, in their order, and what it had learned is not kept: "
                f"{self.sink.path} cannot be continued; {OTHERWISE}, or use a method that looks at each photo alone"
            )


def carry_out(run: Run, files: Sequence[Source], watch: bool) -> int:
    """Tag, tell, and say how it ended: 0, or 130 where somebody interrupted what was not done."""
    kept = isinstance(run.sink, Output)
    code, ended = 0, ""
    try:
        with Progress(run.quiet, bar=kept or not sys.stdout.isatty()) as bar:
            if watch:
                if not run.quiet:
                    typer.echo(f"watching {', '.join(map(str, run.sources.paths))}; Ctrl-C ends it", err=True)
                run.watch(bar)
            else:
                run.once(files, bar)
    except KeyboardInterrupt:
        code, ended = (0, "ended: ") if watch else (130, "interrupted: ")
    for effect in run.effects:
        run.closing.notes += effect.notes()
    if code and kept:
        run.closing.notes.append("the same command goes on behind these")
    run.closing.tell(str(run.sink.path) if kept else None, run.quiet, ended)
    return code


def open_sink(format: str, output: Path | None, wide: bool, overwrite: bool) -> Output | Screen:
    """Where the tags go: a file that a later run continues, or a stream."""
    if format == "parquet":  # before any work is done
        from mltta.output.parquet import open_pyarrow

        open_pyarrow()
    if output is None or (output.exists() and not output.is_file() and not output.is_dir()):
        return Screen(format, output, wide=wide)
    return Output(output, format, wide=wide, overwrite=overwrite)
