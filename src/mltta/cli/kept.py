"""`mltta cache`, `mltta prompts` and `mltta keywords`: list, share or remove stored files."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from mltta.cli.groups import HubOptions
from mltta.cli.options import Options, argument, option
from mltta.cli.progress import say
from mltta.errors import ConfigError, MlttaError
from mltta.storage.reading import escaped


class ListOptions(Options):
    """List cached features: model, views, images, size."""


def list_(options: ListOptions) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    from mltta.session.cache import feature_folder, list_stores

    name = Column("name", no_wrap=True, min_width=16)  # never truncated, because `clear` needs it
    table = Table(name, "model", "views", "AugMix", "seed", "precision", "images", "size")
    for store in (stores := list_stores()):
        key, augmix = store.key, "yes" if store.spec.augmix else "no"
        row = (store.folder.name, key["model"], store.views, augmix, key["seed"], key["arithmetic"])
        table.add_row(*(escape(escaped(str(cell))) for cell in row), f"{store.images:,}", _size(store.size))
    console = Console(file=getattr(sys.stdout, "styled", sys.stdout))
    if stores:
        console.print(table)
    size = _size(sum(store.size for store in stores))
    plural = "s" * (len(stores) != 1)
    console.print(f"{len(stores)} feature set{plural}, {size}, in {feature_folder()}", soft_wrap=True)


class ClearOptions(Options):
    """Remove cached features by name, or all of them."""

    names: tuple[str, ...] = argument("NAME…", "Names shown by `mltta cache list`.", ())
    all: bool = option(False, "Remove everything.")


def clear(options: ClearOptions) -> None:
    from mltta.session import cache

    stores = {store.folder.name: store for store in cache.list_stores()}
    unknown = [name for name in options.names if name not in stores]
    if unknown:
        raise ConfigError(f"no cached features named {', '.join(unknown)}; see `mltta cache list`")
    if not options.names and not options.all:
        raise ConfigError("give the names to remove (see `mltta cache list`), or --all")
    chosen = [stores[name] for name in (stores if options.all else dict.fromkeys(options.names))]
    freed = sum(store.size for store in chosen)
    for store in chosen:
        cache.clear(store)
    typer.echo(f"removed {len(chosen)} feature set{'s' * (len(chosen) != 1)}, {_size(freed)}")


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


class InfoOptions(Options):
    """Show the contents and training data of a prompt file: `mltta prompts info voc.safetensors`."""

    file: str = argument("FILE", "Prompt file of mltta, CoOp or MaPLe, or hf-hub:ORG/NAME.")


class PushOptions(HubOptions):
    """Upload prompts to the Hugging Face Hub; log in with `hf auth login` first.

    Others can then use them with `--prompts hf-hub:ORG/NAME`. Only tensors and metadata are uploaded.
    """

    file: str = argument("FILE", "Prompt file of mltta, CoOp or MaPLe.")


def push(options: PushOptions) -> None:
    from mltta.model.learned_prompts import load_prompts, push_prompts
    from mltta.storage import hub

    url = push_prompts(load_prompts(options.file), options.name, options.private)
    typer.echo(f"uploaded to {url}; use it with --prompts {hub.PREFIX}{options.name}")


def info(options: InfoOptions) -> None:
    from mltta.model.learned_prompts import MaPLe, load_prompts

    prompts = load_prompts(options.file)
    *labels, tokens, width = prompts.context.shape
    each = f", one per label ({labels[0]})" if labels else ""
    typer.echo(f"{prompts.title} prompts {prompts.digest}")
    typer.echo(f"context: {tokens} tokens of width {width}{each}")
    if isinstance(prompts, MaPLe):
        wide = prompts.tensors["proj.weight"].shape[0]
        typer.echo(f"image tower: width {wide}; blocks with prompts: {1 + prompts.deeper}")
    for name, value in prompts.about.items():
        parts = [f"{key} {inner}" for key, inner in value.items()] if isinstance(value, dict) else value
        typer.echo(f"{name}: {', '.join(parts) if isinstance(parts, list) else parts}")


class UndoOptions(Options):
    """Remove keywords added by mltta from photos and sidecar files. Other keywords are kept."""

    paths: tuple[Path, ...] = argument("PATH…", "Photos or folders of photos.")
    dry_run: bool = option(False, "Only print which keywords would be removed.")


def undo(options: UndoOptions) -> None:
    from mltta.images.find import find_images
    from mltta.output.keywords import write

    photos, changed, failed = find_images(options.paths), 0, []
    for photo in photos:
        try:
            found = write.undo(photo, options.dry_run)
        except MlttaError as error:
            failed.append(f"  {error}")
            continue
        changed += bool(found)
        if found:
            typer.echo(escaped(f"{photo}: {', '.join(found)}"))
    would = "would be removed from" if options.dry_run else "removed from"
    for line in [f"keywords {would} {changed:,} of {len(photos):,} photos", *failed]:
        say(line)
    raise typer.Exit(int(bool(failed)))
