"""Output of `mltta search`, `similar` and `duplicates`: lists, JSON and galleries."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from mltta.cli.groups import open_backbone
from mltta.errors import ConfigError
from mltta.library import duplicates as copies
from mltta.library import lookup
from mltta.library.index import File, Library
from mltta.library.lookup import records_of, shown_path
from mltta.output.exchange import write_tags
from mltta.output.formats import Page, printable
from mltta.storage import atomic

if TYPE_CHECKING:
    from mltta.cli.library import DuplicatesOptions, FoundOptions, SearchOptions, SimilarOptions


def search(options: SearchOptions) -> None:
    for name, given in options.chosen("since", "until").items():
        if not re.fullmatch(r"(\d{4}(-\d\d){0,2})?", given):
            raise ConfigError(f"--{name} {given}: give a date such as 2024, 2024-05 or 2024-05-31")
    wanted = options.chosen("text", "has", "threshold", "since", "until", "folder", "count")
    model = partial(open_backbone, options, methods=["auto"])  # opened only if needed
    with Library(options.library) as library:
        show(library, lookup.search(library, model, **wanted), options)


def similar(options: SimilarOptions) -> None:
    model = partial(open_backbone, options, methods=["auto"])
    with Library(options.library) as library:
        show(library, lookup.similar(library, options.photo, options.count, model), options)


def duplicates(options: DuplicatesOptions) -> None:
    with Library(options.library) as library:
        least = copies.ALIKE if options.similarity is None else options.similarity
        show_groups(library, copies.duplicates(library, least), options)


def show(library: Library, hits: Sequence[lookup.Hit], options: FoundOptions) -> None:
    """Print what was found, or write a gallery of it."""
    files = [hit.file for hit in hits]
    if not write_gallery(library, files, options) and options.format == "json":
        found = zip(hits, records_of(library, files), strict=True)
        records = [{**record, "match": round(hit.score, 6)} for hit, record in found]
        typer.echo(printable(json.dumps(records, indent=1, ensure_ascii=False)))
    elif options.output is None:
        scored = options.format == "table" and any(hit.score for hit in hits)
        for hit in hits:
            typer.echo(printable(f"{hit.score:.2f}  " * scored + shown_path(hit.file)))
    if not hits:
        typer.echo("No photos match", err=True)


def show_groups(library: Library, groups: Sequence[Sequence[File]], options: FoundOptions) -> None:
    """Print groups of copies, or write a gallery of them."""
    paths = [[printable(shown_path(file)) for file in group] for group in groups]
    if not write_gallery(library, [file for group in groups for file in group], options):
        if options.format == "json":
            typer.echo(json.dumps(paths, indent=1, ensure_ascii=False))
        elif paths:
            typer.echo("\n\n".join(map("\n".join, paths)))
    count = sum(map(len, groups)) - len(groups)
    typer.echo(f"{count:,} near duplicates of {len(groups):,} photos", err=True)


def write_gallery(library: Library, files: Sequence[File], options: FoundOptions) -> bool:
    """Write a gallery of photos with their labels, in order, if the options ask for one."""
    path = options.output
    if path is None:
        return False
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: -o writes a gallery, so its name must end in .html; or use -f json")
    _, about = library.last_list()
    page = Page(path, len(files), about["shown_as"], synonyms=about["synonyms"])
    with atomic.writing(path), atomic.replacing(path) as part:
        write_tags(part, "html", records_of(library, files), page)
    typer.echo(f"written to {path}", err=True)
    return True
