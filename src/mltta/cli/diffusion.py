"""`mltta variations`: the images that DiffTPT uses beside crops, made by a diffusion model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from mltta.cli.options import Options, argument, option
from mltta.cli.progress import counted
from mltta.errors import ConfigError

_SHARD = re.compile(r"(\d+)/(\d+)")


class VariationsOptions(Options):
    """Generate variations of photos with a diffusion model, once, for the method difftpt.

    **Examples**

    - `mltta variations photos/ -o variations`
    - `mltta variations --data voc2007=VOCdevkit --data coco2014=coco -o variations`
    - `mltta eval voc2007 --data VOCdevkit --method difftpt --variations variations`

    Photos get one folder each: `variations/beach/000.jpg` for beach.jpg. Images of a dataset are named by its ids, in
    a folder of the dataset: `variations/voc2007-test/000001/000.jpg`. One folder can hold several datasets.

    The model is the one that DiffTPT used, lambdalabs/sd-image-variations-diffusers (mltta[diffusion]). A variation
    depends on the seed, the name of the photo and its number. Runs are resumable: rerun the command to continue, or
    with a larger `--count` to add variations. On several GPUs, run `--shard 0/4` to `--shard 3/4` at the same time.

    **Exit code**: 0 all photos have their variations, 1 some photos could not be read, 2 usage error.
    """

    photos: tuple[Path, ...] = argument("[PHOTO…]", "Photos or folders of photos.", ())
    data: tuple[str, ...] = option((), "A dataset, e.g. voc2012=VOCdevkit.", "-d", metavar="NAME[:SPLIT]=DIR")
    out: Path = option(Path("variations"), "Folder for the variations.", "-o")
    count: int = option(63, "Variations per photo.", "-n", min=1)
    guidance: float = option(3.0, "How closely a variation follows its photo.", min=1)
    seed: int = option(0, "Random seed for the variations.")
    first: int | None = option(None, "Only the first photos.", min=1)
    shard: str = option("0/1", "Only every Nth photo, starting at photo K.", metavar="K/N")
    batch_size: int = option(9, "Variations generated at once.", min=1)
    device: str = option("auto", "auto, cpu, cuda, cuda:1, mps …")


def variations(options: VariationsOptions) -> None:
    share, made, lacking = _share(options.shard), 0, list[str]()
    for out, names, images in _sources(options):
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise ConfigError(
                f"several photos are named {twice!r}, and variations are kept by name: rename one"
            )
        new, without = _generate(names[: options.first][share], images[: options.first][share], out, options)
        made, lacking = made + new, lacking + [f"{out}: {name}" for name in without]
    typer.echo(f"{made:,} variations generated in {options.out}", err=True)
    if lacking:
        typer.echo("\n".join([f"photos without variations: {len(lacking):,}", *lacking[:20]]), err=True)
        raise typer.Exit(1)


def _generate(
    names: Sequence[str], images: Sequence[Any], out: Path, options: VariationsOptions
) -> tuple[int, list[str]]:
    """How many variations were generated, and the images that have too few."""
    from mltta.images.generated import lacking_variations
    from mltta.methods.variations import generate_variations

    how = options.chosen("count", "guidance", "seed", "batch_size", "device")
    with counted(out.name, len(names)) as moved:
        places, pairs = {name: i for i, name in enumerate(names, 1)}, zip(names, images, strict=True)
        made = generate_variations(pairs, out, progress=lambda name: moved(places[name]), **how)
    return made, lacking_variations(out, names, options.count)


def _sources(options: VariationsOptions) -> Iterator[tuple[Path, Sequence[str], Sequence[Any]]]:
    """Where variations go, and the names and images they are made of: photos given, then datasets."""
    from mltta.data import named_dataset
    from mltta.images.find import search_images

    if not options.photos and not options.data:
        raise ConfigError("give photos or folders of photos, or a dataset such as --data voc2007=VOCdevkit")
    if options.photos:
        files = search_images(options.photos).images
        yield options.out, [file.stem for file in files], files
    for given in options.data:
        dataset = named_dataset(given)
        typer.echo(dataset.summary(), err=True)
        yield options.out / dataset.name, dataset.ids, dataset.images


def _share(shard: str) -> slice:
    found = _SHARD.fullmatch(shard)
    if found is None or not int(found[1]) < int(found[2]):
        raise ConfigError(f"--shard {shard}: give K/N with K below N, such as 0/4")
    return slice(int(found[1]), None, int(found[2]))
