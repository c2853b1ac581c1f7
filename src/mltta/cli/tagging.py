"""The run behind `mltta tag`: tag new images, save the tags and print a summary, once or with --watch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import typer

from mltta.cli.inputs import Early, Source, Sources, Stamp, loading, stamp
from mltta.cli.progress import Closing, Progress
from mltta.errors import ConfigError, ImageError, MlttaError
from mltta.output.screen import Screen
from mltta.output.tags_file import Output
from mltta.output.tags_journal import OTHERWISE

if TYPE_CHECKING:
    from mltta.cli.effects import Effect
    from mltta.cli.tag import TagOptions
    from mltta.tagger import Tagger, Tags

#: seconds between searches for new photos
POLL = 2.0
#: options that act on each photo besides tagging it
EFFECTS = ("annotate", "where", "keywords", "copy_to", "link_to", "dry_run")


def tag_here(
    options: TagOptions, outputs: Mapping[Path | None, str], open_tagger: Callable[[TagOptions], Tagger]
) -> int:
    """Tag on this machine to the outputs, None for the terminal; return the exit code."""
    sources = Sources(options.images, options.allow_urls)
    closing = Closing(failed=[f"{path}: no such file or folder" for path in sources.missing])
    effects: list[Effect] = []
    if "html" in outputs.values() or any(getattr(options, name) for name in EFFECTS):
        from mltta.cli.effects import effects_of

        effects = effects_of(options, outputs, sources.paths, closing.unwritten)
    sources.refuse_others(effects=bool(effects), output=None not in outputs)
    sources.keep_apart(effect.folder for effect in effects if effect.folder is not None)
    files = sources.find()
    if not files and not options.watch:
        also = f"; {sources.skipped}" if sources.skipped else ""
        raise MlttaError(f"no images in {', '.join(map(str, sources.paths))}{also}")
    if sources.skipped and not options.quiet:
        typer.echo(sources.skipped, err=True)
    with open_sink(outputs, options.wide, options.overwrite) as sink:
        todo = (file for file in files if not (options.watch or sink.done(str(file), stamp(file))))
        with (
            loading(options.quiet),
            Early(todo) as early,
        ):  # the libraries that take seconds to load are imported here
            tagger = open_tagger(options)
        if options.watch and tagger.method.online:
            raise ConfigError(
                f"--watch does not support online methods such as {tagger.method.name}, because their results "
                "depend on image order"
            )
        options.execution.prepare(tagger.backbone, len(files))
        settings = tagger.about() if isinstance(sink, Output) else {}  # the terminal stores none
        sink.begin(settings, tagger.labels.display)
        run = Run(tagger, sources, sink, effects, closing, early)
        return run.carry_out(None if options.watch else files, options.quiet) or closing.code


def open_sink(outputs: Mapping[Path | None, str], wide: bool, overwrite: bool) -> Output | Screen:
    """Open the destination of the tags: resumable files, or a stream."""
    if "parquet" in outputs.values():  # fail before any work is done
        from mltta.output.parquet import open_pyarrow

        open_pyarrow()
    for path, format in outputs.items():
        if path is None or (path.exists() and not path.is_file() and not path.is_dir()):
            if len(outputs) > 1:
                raise ConfigError(f"{path} is not a file, so it must be the only output")
            return Screen(format, path, wide=wide)
    return Output({path: format for path, format in outputs.items() if path}, wide=wide, overwrite=overwrite)


@dataclass
class Run:
    """One run of the command."""

    tagger: Tagger
    sources: Sources
    sink: Output | Screen
    effects: Sequence[Effect]
    closing: Closing
    early: Early
    #: images that failed in this run; retried only if they change
    failed: dict[Source, Stamp | None] = field(default_factory=dict)
    first: bool = True

    def carry_out(self, files: Sequence[Source] | None, quiet: bool) -> int:
        """Tag files, or watch until Ctrl-C, and print a summary; return 0, or 130 if interrupted."""
        code, ended, kept = 0, "", isinstance(self.sink, Output)
        if files is None and not quiet:
            typer.echo(f"watching {', '.join(map(str, self.sources.paths))}; press Ctrl-C to stop", err=True)
        try:
            with Progress(quiet, bar=kept or not sys.stdout.isatty()) as bar:
                if files is not None:
                    self._once(files, bar)
                while files is None:
                    found = self.sources.settled()
                    if self._todo({file: stamp(file) for file in found}):
                        self._once(found, bar)
                    sleep(POLL)
        except KeyboardInterrupt:
            code, ended = (0, "stopped: ") if files is None else (130, "interrupted: ")
        for effect in self.effects:
            self.closing.notes += effect.notes()
        written = self.sink.paths if kept else []
        if code and isinstance(self.sink, Output):
            waiting = [file.path for file in self.sink.files if file.waits]
            written = [path for path in written if path not in waiting]
            how = f", without --overwrite; until then {waiting[0]} is the old file" if waiting else ""
            self.closing.notes.append(f"rerun the command to continue{how}")
        self.closing.tell(", ".join(map(str, written)), quiet, ended)
        return code

    def _once(self, files: Sequence[Source], bar: Progress) -> None:
        """Tag the files that are not done and write the output."""
        stamps = {file: stamp(file) for file in files}
        todo, method = self._todo(stamps), self.tagger.method
        left = {*todo, *self.failed}
        done = [file for file in files if file not in left]
        if todo and method.online and isinstance(self.sink, Output) and self.sink.journal.kept:
            raise ConfigError(
                f"{method.name} learns from earlier photos and does not save what it learned, so "
                f"{self.sink.paths[0]} cannot be resumed; {OTHERWISE}, or use a method that is not online"
            )
        for effect in self.effects:
            effect.prepare({file: self.sources.roots.get(file) for file in files})
        if self.first:
            self.closing.before, self.first = len(done), False
            self._known(done)
        self.sink.grow(list(map(str, done)))
        bar.begin(len(todo))
        self.closing.start()
        try:
            for file, tags in zip(todo, self.tagger.stream(map(self._photo, todo)), strict=True):
                self._one(file, tags, stamps[file])
                bar.advance()
        except KeyboardInterrupt:
            self.sink.finish(list(map(str, files)), interrupted=True)
            raise
        finally:
            self.closing.stop()
        self.sink.finish(list(map(str, files)))

    def _todo(self, stamps: Mapping[Source, Stamp | None]) -> list[Source]:
        """Return the files that are not done and did not fail in this run, unless they changed since."""
        return [
            file
            for file, own in stamps.items()
            if not self.sink.done(str(file), own) and not (file in self.failed and self.failed[file] == own)
        ]

    def _photo(self, file: Source) -> Any:
        """Return a photo for the tagger, which uses the early decoded image if there is one."""
        if not isinstance(file, Path):
            return file
        from mltta.session.prepare import Photo

        return Photo(0, str(file), partial(self.early.take, file), file.stem)

    def _one(self, file: Source, tags: Tags, seen: Stamp | None) -> None:
        tags.image = tags.image or str(file)  # piped images have no name
        record = tags.record()
        now = seen
        if tags.error is None and self.effects and isinstance(file, Path):
            as_seen = stamp(file) == seen
            try:
                for effect in self.effects:
                    effect(file, record, tags)
            except ImageError as error:  # removed or damaged since
                record = {"image": str(file), "error": str(error)}
            now = stamp(file) if as_seen else seen  # embedded keywords change the file
        if "error" in record:
            self.failed[file] = now
        self.closing.count(record)
        self.sink.add(record, now)

    def _known(self, files: Sequence[Source]) -> None:
        """Apply the effects to photos tagged by earlier runs."""
        for file in files:
            if isinstance(self.sink, Output) and self.effects and isinstance(file, Path):
                record = self.sink.journal.record(str(file))
                if "labels" in record:
                    record["keywords"] = self.tagger.keywords(record["labels"])
                changed = [effect(file, record, None) for effect in self.effects]
                if any(changed):
                    self.sink.journal.add(record, stamp(file))
