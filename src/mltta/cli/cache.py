"""`mltta cache`: the features that evaluations keep."""

from __future__ import annotations

import typer

from mltta.cli.options import Options, argument, option
from mltta.errors import ConfigError


class ListOptions(Options):
    """List cached features: model, views, images, size."""


def list_(options: ListOptions) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from mltta.session.cache import feature_folder, list_stores

    name = Column("name", no_wrap=True, min_width=16)  # whole on a narrow screen too: `clear` asks for it
    table = Table(name, "model", "views", "AugMix", "seed", "precision", "images", "size")
    for store in (stores := list_stores()):
        key, augmix = store.key, "yes" if store.spec.augmix else "no"
        row = (store.folder.name, key["model"], store.views, augmix, key["seed"], key["arithmetic"])
        table.add_row(*map(str, row), f"{store.images:,}", _size(store.size))
    console = Console()
    if stores:
        console.print(table)
    size = _size(sum(store.size for store in stores))
    console.print(f"{len(stores)} kinds of features, {size}, in {feature_folder()}", soft_wrap=True)


class ClearOptions(Options):
    """Remove cached features: those named, or all."""

    names: tuple[str, ...] = argument("NAME…", "Names as in `mltta cache list`.", ())
    all: bool = option(False, "Remove everything.")


def clear(options: ClearOptions) -> None:
    from mltta.session import cache

    stores = {store.folder.name: store for store in cache.list_stores()}
    unknown = [name for name in options.names if name not in stores]
    if unknown:
        raise ConfigError(f"no features called {', '.join(unknown)}; `mltta cache list` shows what there is")
    if not options.names and not options.all:
        raise ConfigError("name what to remove, as `mltta cache list` shows it, or give --all")
    chosen = [stores[name] for name in (stores if options.all else dict.fromkeys(options.names))]
    freed = sum(store.size for store in chosen)
    for store in chosen:
        cache.clear(store)
    typer.echo(f"removed {len(chosen)} kinds of features, {_size(freed)}")


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
