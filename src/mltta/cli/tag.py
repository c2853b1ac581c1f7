"""`mltta tag`: images in, labels out."""

from __future__ import annotations

import typer

from mltta.cli.on_ray import refuse_with_ray, tag_on_ray
from mltta.cli.tag_options import TagOptions
from mltta.errors import ConfigError


def tag(options: TagOptions) -> None:
    """Tag images, or convert what a cluster has tagged."""
    from mltta.cli.inputs import refuse_missing

    refuse_missing(options.images)
    if options.ray is not None:
        refuse_with_ray(
            options, "annotate", "where", "watch", "keywords", "copy_to", "link_to", "format", "wide"
        )
        raise typer.Exit(tag_on_ray(options))
    from mltta.output.formats import format_of
    from mltta.output.partitions import is_partitions
    from mltta.storage.folders import is_remote

    if options.format and len(options.output) > 1:
        raise ConfigError("--format is for one output; with several, the file extensions name the formats")
    outputs = {path: format_of(options.format, path) for path in options.output or (None,)}
    if all(map(is_partitions, options.images)):
        from mltta.cli.read_back import read_back

        how = {"wide": options.wide, "overwrite": options.overwrite, "quiet": options.quiet}
        raise typer.Exit(read_back(options.images, outputs, **how))
    far = next(filter(is_remote, options.images), None)
    if far is not None:
        raise ConfigError(f"{far}: only workers read photos from object storage: add --ray")
    from mltta.cli.tagging import tag_here

    raise typer.Exit(tag_here(options, outputs))
