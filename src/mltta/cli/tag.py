"""`mltta tag`: images in, labels out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mltta.cli.on_ray import refuse_with_ray, tag_on_ray
from mltta.cli.tag_options import TagOptions, open_tagger
from mltta.errors import ConfigError, MlttaError

if TYPE_CHECKING:
    from mltta.cli.closing import Closing
    from mltta.cli.tagging import Effect
    from mltta.output.sorting import Sorting


def tag(options: TagOptions) -> None:
    """Tag images, or convert what a cluster has tagged."""
    from mltta.cli.inputs import refuse_missing

    refuse_missing(options.images)
    if options.ray is not None:
        refuse_with_ray(
            options, "annotate", "where", "watch", "keywords", "copy_to", "link_to", "format", "wide"
        )
        raise typer.Exit(tag_on_ray(options))
    from mltta.output.partitions import is_partitions
    from mltta.output.tag_formats import format_of
    from mltta.storage.filesystems import is_remote

    output = one_output(options)
    format = format_of(options.format, output)
    if all(map(is_partitions, options.images)):
        from mltta.cli.read_back import read_back

        how = {"wide": options.wide, "overwrite": options.overwrite, "quiet": options.quiet}
        raise typer.Exit(read_back(options.images, format, output, **how))
    far = next(filter(is_remote, options.images), None)
    if far is not None:
        raise ConfigError(f"{far}: only workers read photos from object storage: add --ray")
    raise typer.Exit(tag_here(options, output, format))


def tag_here(options: TagOptions, output: Path | None, format: str) -> int:
    """Tag on this machine; the exit code."""
    from mltta.cli.closing import Closing
    from mltta.cli.early import Early, loading
    from mltta.cli.inputs import Sources, open_others, stamp
    from mltta.cli.tagging import Run, carry_out, open_sink
    from mltta.output.gallery import thumbnail_folder

    others = open_others(options.images, options.allow_urls)
    paths = [Path(path) for path in options.images if path not in others.names]
    missing = [path for path in paths if not path.exists()]
    if len(missing) < len(options.images):  # what is there is tagged; what is not is listed as failed
        paths = [path for path in paths if path not in missing]
    closing = Closing(failed=[f"{path}: no such file or folder" for path in missing])
    sortings = sortings_of(options, paths)
    effects = effects_of(options, sortings, closing)
    own_folders = [options.annotate, options.where, *(sorting.home for sorting in sortings)]
    if format == "html":
        from mltta.cli.pictures import Thumbnails

        effects.append(Thumbnails())
        own_folders.append(None if output is None else thumbnail_folder(output))
    others.check(effects=bool(effects), output=output is not None)
    sources = Sources(paths, [own for own in own_folders if own is not None], others.sources)
    files = sources.find()
    if not files and not options.watch:
        also = f"; {sources.skipped}" if sources.skipped else ""
        raise MlttaError(f"no images in {', '.join(map(str, paths))}{also}")
    if sources.skipped and not options.quiet:
        typer.echo(sources.skipped, err=True)
    with open_sink(format, output, options.wide, options.overwrite) as sink:
        early = Early(
            () if options.watch else files,
            lambda file: not options.overwrite and sink.done(str(file), stamp(file)),
        )
        with loading(), early:  # the libraries that take seconds to load are imported here
            tagger = open_tagger(options)
        if options.watch and tagger.method.online:
            raise ConfigError(
                f"--watch does not support online methods such as {tagger.method.name}, because their results "
                "depend on image order"
            )
        options.execution.prepare(tagger.backbone, len(files))
        sink.begin(tagger.about(), tagger.labels.names)
        run = Run(tagger, sources, sink, effects=effects, quiet=options.quiet, closing=closing, early=early)
        return carry_out(run, files, options.watch) or closing.code


def one_output(options: TagOptions) -> Path | None:
    """Where the tags go."""
    return options.output[0] if options.output else None


def sortings_of(options: TagOptions, paths: list[Path]) -> list[Sorting]:
    """The folders that photos are copied or linked into."""
    from mltta.output.sorting import Sorting

    if options.dry_run and not (options.keywords or options.copy_to or options.link_to):
        raise ConfigError("--dry-run needs --keywords, --copy-to or --link-to")
    given = (options.copy_to, False), (options.link_to, True)
    sortings = [Sorting(own, link) for own, link in given if own is not None]
    if any(sorting.home.resolve() == path.resolve() for sorting in sortings for path in paths):
        raise ConfigError("--copy-to and --link-to need a folder other than the one that is tagged")
    return sortings


def effects_of(options: TagOptions, sortings: list[Sorting], closing: Closing) -> list[Effect]:
    """What is done with each photo besides writing its tags; copies come last, so that they have the keywords."""
    from mltta.cli.into_photos import Keywords, Sorted
    from mltta.cli.pictures import Pictures

    effects: list[Effect] = []
    if options.keywords is not None:
        effects.append(Keywords(options.keywords, options.dry_run, closing.unwritten))
    effects += [Sorted(sorting, options.dry_run) for sorting in sortings]
    pictures = (options.annotate, False), (options.where, True)
    return effects + [Pictures(own, heat=heat) for own, heat in pictures if own is not None]
