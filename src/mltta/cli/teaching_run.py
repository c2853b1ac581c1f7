"""The run behind `mltta teach`: record the answers, learn from all of them, and write the file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mltta.cli.inputs import stamp
from mltta.cli.tag import open_tagger
from mltta.errors import ConfigError, ImageError
from mltta.images.find import find_images
from mltta.labels import LabelSet
from mltta.labels.sets import label_key
from mltta.library.index import Library
from mltta.library.intake import Intake
from mltta.library.teaching import teach
from mltta.methods.taught import Heads
from mltta.session.prepare import content_of
from mltta.storage import atomic
from mltta.storage.reading import LABELS, UNREADABLE, explain, read_text

if TYPE_CHECKING:
    from mltta.cli.library import TeachOptions

#: the answers of a CSV file
ANSWERS = {
    "yes": True,
    "y": True,
    "true": True,
    "1": True,
    "no": False,
    "n": False,
    "false": False,
    "0": False,
}


def teach_here(options: TeachOptions) -> None:
    with Library(options.library, write=True) as library:
        record_answers(options, library)
        if library.answers():
            write_heads(options, library)
        elif not options.quiet:
            typer.echo("no examples are left, so no file was written", err=True)


def record_answers(options: TeachOptions, library: Library) -> None:
    """Add the photos that are not in the library yet, and record all answers in one transaction."""
    if bool(options.label) != bool(options.photos or options.not_):
        raise ConfigError(
            "give --label together with photos: mltta teach LIBRARY --label 'our dog' yes/*.jpg"
        )
    given = ((options.photos, True), (options.not_, False))
    answers = [(options.label, photo, yes) for some, yes in given for photo in find_images(some)]
    answers += [] if options.corrections is None else _corrections(options.corrections)
    known = library.answers()
    if unknown := [label for label in options.forget if label not in known]:
        raise ConfigError(
            f"--forget {unknown[0]}: no examples. Labels with examples: {', '.join(known) or 'none'}"
        )
    contents = {photo: content_of(photo)[0] for _, photo, _ in answers}
    _add(
        options, library, [photo for photo, content in contents.items() if library.number_of(content) is None]
    )
    with library.changes():
        library.db.executemany("DELETE FROM answers WHERE label = ?", [(label,) for label in options.forget])
        rows = [(label, library.number_of(contents[photo]), yes) for label, photo, yes in answers]
        library.db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)


def write_heads(options: TeachOptions, library: Library) -> None:
    """Learn from all answers and write the file."""
    given = library.last_labels() if options.labels is None else LabelSet.of(options.labels)
    known = {label_key(name) for name in given.names}
    more = tuple(label for label in library.answers() if label_key(label) not in known)
    synonyms, titles = (*given.synonyms, *((),) * len(more)), (*given.keywords, *more)
    labels = LabelSet((*given.names, *more), (*given.texts, *more), synonyms, titles=titles)
    if options.output.exists():
        LabelSet.of(options.output)  # never replaces any other file
    content = teach(library, open_tagger(replace(options, labels=labels), cache=library.kept))
    with atomic.writing(options.output):
        atomic.write(options.output, content)
    for label, (yes, no) in Heads.of(content).about["examples"].items() if not options.quiet else ():
        typer.echo(f"{label}: {yes} photos show it, {no} do not", err=True)
    typer.echo(f"written to {options.output}; use it with --labels {options.output}", err=True)


def _corrections(file: Path) -> Iterator[tuple[str, Path, bool]]:
    """Read a CSV file of photo, label and answer."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(file, LABELS, ConfigError), newline="")))
    except (OSError, *UNREADABLE) as error:
        raise ConfigError(f"{file} is not a readable CSV file: {explain(error)}") from None
    for number, row in enumerate(rows, start=2):
        photo, label, said = ((row.get(name) or "").strip() for name in ("photo", "label", "answer"))
        if not photo or not label or said.casefold() not in ANSWERS:
            raise ConfigError(f"{file}, line {number}: expected the columns photo, label, answer (yes or no)")
        yield label, Path(photo), ANSWERS[said.casefold()]


def _add(options: TeachOptions, library: Library, photos: list[Path]) -> None:
    """Tag photos that are not in the library with its last label list, and add them."""
    if not photos:
        return
    tagger = open_tagger(replace(options, labels=library.last_labels()), cache=library.kept)
    intake = Intake(library)
    intake.begin(tagger, use=False)
    seen = {photo: stamp(photo) for photo in photos}
    given = (intake.photo(photo, seen[photo], lambda file: file) for photo in photos)
    for photo, tags in zip(photos, tagger.stream(given), strict=True):
        if tags.error is not None:
            raise ImageError(tags.error)
        intake.add({"image": str(photo)}, seen[photo], tags)
    intake.finish(())
