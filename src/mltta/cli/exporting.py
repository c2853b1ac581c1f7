"""The run behind `mltta export`: write stored tags in any format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltta.cli.effects import effects_of
from mltta.cli.progress import Closing, Progress
from mltta.cli.tag import open_tagger
from mltta.decision import SHOWN_FROM, Decision
from mltta.errors import ConfigError, MlttaError
from mltta.library.index import INDEX, Library
from mltta.library.intake import Intake
from mltta.library.lookup import distinct, records_of
from mltta.output.exchange import write_tags
from mltta.output.formats import WIDE, Page, Record, file_of, format_of, refuse_wide
from mltta.output.partitions import Partitions, is_partitions
from mltta.output.screen import Screen
from mltta.output.tags_file import journal_of, refuse_others
from mltta.output.tags_journal import TagsJournal
from mltta.storage import atomic
from mltta.storage.lock import locked
from mltta.tagger import Tags

if TYPE_CHECKING:
    from mltta.cli.library import ExportOptions


#: stored tags: the settings of their run, their number, and their records, which can be read several times
Stored = tuple[Mapping[str, Any], int, Callable[[], Iterator[Record]]]


def export_here(options: ExportOptions) -> int:
    """Write the outputs, then the pictures, keywords and copies; return the exit code."""
    closing, (outputs, format) = Closing(verb="exported"), (options.output, options.format)
    if format and len(outputs) > 1:
        raise ConfigError("--format needs a single output; with several, formats follow the file extensions")
    files = {file_of(kind, path): kind for path in outputs for kind in [format_of(format, path)]}
    if options.wide:
        refuse_wide(files.values() if files else [format_of(format, None)])
    for path in files:
        if path.exists() and not options.overwrite:
            raise MlttaError(f"{path} already exists; choose another -o, or use --overwrite to replace it")
    effects = effects_of(options, {}, [], closing.unwritten)
    with ExitStack() as stack:
        settings, count, records = open_stored(options, stack)
        labels, synonyms = settings.get("shown_as", settings.get("labels", [])), settings.get("synonyms", [])
        closing.start()
        for record in records():
            closing.count(record)
        if not files and not effects:
            with Screen(format_of(format, None), wide=options.wide) as screen:
                screen.begin({}, labels)
                for record in records():
                    screen.add(record, None)
        for path, kind in files.items():
            page = Page(path, count, labels, options.wide and kind in WIDE, synonyms)
            with atomic.writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic.replacing(path) as part:
                    write_tags(part, kind, records(), page)
        if effects:
            photos = {Path(one["image"]): one for one in records() if "error" not in one}
            for effect in effects:
                effect.prepare(dict.fromkeys(photos))
                for photo, one in photos.items():
                    effect(photo, one, Tags(one["labels"], present=one["present"], note=one.get("note")))
                closing.notes += effect.notes()
        closing.stop()
    closing.tell(", ".join(map(os.fspath, files)), options.quiet)
    return closing.code


def open_stored(options: ExportOptions, stack: ExitStack) -> Stored:
    """Open a library, a journal, or a folder of partitions."""
    source, path = options.sources[0], Path(options.sources[0])
    if "://" in source or is_partitions(path):
        held = [Partitions(one) for one in options.sources]
        for one in held[1:]:
            refuse_others(str(one.folder), held[0].settings or {}, one.settings or {})
        return _narrowed(options, held[0].settings or {}, held)
    if len(options.sources) > 1:
        raise ConfigError("only folders written by --ray can be combined")
    if (path / INDEX).is_file():
        library = stack.enter_context(Library(path, write=options.labels is not None))
        if options.labels is not None:
            score(options, library)
        files, decision = (
            library.files(),
            Decision(**options.chosen("threshold", "top_k", "keywords_from")),
        )
        return library.last_list()[1], len(files), lambda: records_of(library, files, decision)
    if path.is_dir():
        raise MlttaError(f"{source} is neither a library nor a folder written by --ray")
    if not journal_of(path).is_file():
        raise MlttaError(f"{source} is not a library, and has no journal of mltta tag -o")
    stack.enter_context(locked(journal_of(path, ".lock"), source))
    journal = TagsJournal(journal_of(path))
    stack.callback(journal.close)
    return _narrowed(options, journal.settings or {}, [journal])


def _narrowed(
    options: ExportOptions, settings: Mapping[str, Any], held: Sequence[Partitions | TagsJournal]
) -> Stored:
    """Stored records with fewer labels; the ones that were not stored cannot be added."""
    source = options.sources[0]
    if options.labels is not None:
        raise ConfigError(f"--labels needs a library, which {source} is not: mltta tag PHOTOS --library DIR")
    top_k, threshold = settings.get("top-k"), settings.get("threshold")
    least = threshold if threshold is not None else 0 if top_k else SHOWN_FROM
    lower = options.threshold is not None and options.threshold < least
    if lower or (top_k and options.top_k and options.top_k > top_k):
        kept = f"score at least {least:g}" + f", at most {top_k} per image" * bool(top_k)
        raise ConfigError(f"{source} contains only the labels shown ({kept}); a library contains all")

    def found() -> Iterator[Record]:
        for record in (record for one in held for record in one.records()):
            if "error" not in record:
                some = [one for one in record["labels"] if one["score"] >= (options.threshold or 0)]
                some = some[: options.top_k]
                present = [one["label"] for one in some]
                sure = [word for word in record.get("keywords", ()) if word.rpartition("|")[2] in present]
                record = {**record, "labels": some, "present": present, "keywords": sure}
            yield record

    return settings, sum(one.images for one in held), found


def score(options: ExportOptions, library: Library) -> None:
    """Score the photos of a library for the labels asked for, where that was not done."""
    intake, tagger = Intake(library), open_tagger(options, cache=library.kept)
    intake.begin(tagger)
    known = distinct(file for file in library.files() if not file.error)
    todo = [file for file in known if not intake.done(str(file.path), file.stamp)]
    with Progress(options.quiet) as bar:
        bar.begin(len(todo))
        for file, tags in zip(todo, tagger.stream(map(intake.stored, todo)), strict=True):
            if tags.error is not None:
                raise MlttaError(
                    f"features of {file.path} are damaged, and it cannot be encoded again: {tags.error}"
                )
            intake.add({"image": str(file.path)}, file.stamp, tags)
            bar.advance()
    intake.finish(())
