"""The command line: `mltta tag`, `mltta methods`, `mltta models`."""

from __future__ import annotations

import dataclasses
import logging
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mltta.errors import ConfigError, MlttaError

if TYPE_CHECKING:
    from rich.progress import Progress

app = typer.Typer(
    help="Tag images with many labels at once, adapting a frozen CLIP-style model to every single image.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


def show_version(asked: bool) -> None:
    if asked:
        from mltta import __version__

        typer.echo(f"mltta {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tag images with many labels at once, adapting a frozen CLIP-style model to every single image."""


class Format(str, Enum):
    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


TAG_HELP = """Tag images and folders of images.

**Examples**

`mltta tag photo.jpg`

`mltta tag photo.jpg --labels "dog, cat, sofa"`

`mltta tag holidays/ --labels coco --format csv -o tags.csv`

`mltta tag photo.jpg --labels my_labels.txt --top-k 5 --annotate out/`

A label file has one label a line; `sofa | couch | settee` adds synonyms that captions may use.

**Exit code**: 0 all images tagged, 1 some could not be read (they are listed), 2 wrong usage.
"""


@app.command(help=TAG_HELP)
def tag(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Images, or folders that hold some.")],
    labels: Annotated[
        str, typer.Option("--labels", "-l", help="coco, voc, nuswide, a label file, or 'dog, cat, sofa'.")
    ] = "coco",
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="mini (embedded, offline), ViT-B/16, any open_clip NAME:TAG, or a folder."
        ),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="A pretrained tag or a local weights file.")] = None,
    method: Annotated[str, typer.Option(help="How to adapt; `mltta methods` lists them.")] = "ml-tta",
    preset: Annotated[str, typer.Option(help="paper, or released for the authors' code.")] = "paper",
    option: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="A method's setting, e.g. views=16."),
    ] = None,
    captions: Annotated[
        Path | None, typer.Option(help="A caption base, or a text file with one caption a line.")
    ] = None,
    template: Annotated[str, typer.Option(help="Prompt with {} for the label.")] = "a photo of a {}.",
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Show at most this many labels, best first.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Show the labels that score at least this; with --top-k, both hold."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print.")] = Format.table,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of the screen.")
    ] = None,
    annotate: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each image with its label bars here.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images at once on a GPU.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses the random views.")] = 0,
    quick_gelu: Annotated[
        bool | None, typer.Option("--quick-gelu/--no-quick-gelu", help="Activation of a local weights file.")
    ] = None,
    allow_torchscript: Annotated[
        bool,
        typer.Option("--allow-torchscript", help="Open OpenAI's original .pt archive, which is a program."),
    ] = False,
) -> None:
    from mltta.images import find_images
    from mltta.tagger import Tagger
    from mltta.writers import Writer

    missing = [path for path in paths if not path.exists()]
    if len(missing) < len(paths):  # what is there is tagged; what is not is listed with the rest that failed
        paths = [path for path in paths if path not in missing]
    files = find_images(paths)
    if annotate is not None:
        make_folder(annotate)
    if not files:
        raise MlttaError(f"no images in {', '.join(map(str, paths))}")
    tagger = Tagger(
        model or (None if weights else "mini"),
        labels,
        method=method,
        weights=weights,
        captions=captions,
        template=template,
        preset=preset,
        device=device,
        batch_size=batch_size,
        seed=seed,
        quick_gelu=quick_gelu,
        allow_torchscript=allow_torchscript,
        **settings(method, option or []),
    )
    failed = [f"{path}: no such file or folder" for path in missing]
    used: set[Path] = set()
    with Writer(format.value, output, top_k, threshold) as writer, progress() as bar:
        task = bar.add_task("tagging", total=len(files), visible=len(files) > 1)
        for tags in tagger.stream(files):
            writer.write(tags)
            if tags.error is not None:
                failed.append(tags.error)
            elif annotate is not None:
                save_picture(tags, annotate, used)
            bar.advance(task)
    if failed:
        from rich.console import Console

        err = Console(stderr=True, highlight=False)
        err.print(f"[bold]{len(failed)} of {len(files) + len(missing)} could not be tagged:[/bold]")
        for error in failed:
            err.print(f"  {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1)


@app.command()
def methods() -> None:
    """List the methods and their settings, with the paper's defaults."""
    from rich.console import Console
    from rich.table import Table

    from mltta.methods import list_methods, method_class

    table = Table("method", "what it does", "settings (--set NAME=VALUE)")
    for name in list_methods():
        cls = method_class(name)
        fields = dataclasses.fields(cls.Config)
        table.add_row(name, cls.summary, "\n".join(f"{f.name}={f.default}" for f in fields) or "none")
    Console().print(table)


@app.command()
def models(
    all: Annotated[bool, typer.Option("--all", help="Every model and tag that open_clip knows.")] = False,
    match: Annotated[str, typer.Option("--filter", help="Only names that contain this.")] = "",
) -> None:
    """List models that can be named with --model."""
    from mltta.weights import PAPER_MODELS

    names = ["mini", *(f"{name}:openai" for name in PAPER_MODELS)]
    if all:
        import open_clip

        names = [f"{name}:{tag}" for name, tag in open_clip.list_pretrained()]
    for name in names:
        if match.lower() in name.lower():
            typer.echo(name)


def settings(method: str, pairs: list[str]) -> dict[str, Any]:
    """Turn NAME=VALUE pairs into the types of the method's config."""
    from mltta.methods import method_class

    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(method_class(method).Config)}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in defaults:
            raise ConfigError(
                f"--set {pair}: {method} takes {', '.join(defaults) or 'no settings'}, as NAME=VALUE"
            )
        kind: Any = type(defaults[name])
        try:
            found[name] = _BOOLS[value.lower()] if kind is bool else kind(value)
        except (ValueError, KeyError) as error:
            wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
            raise ConfigError(f"--set {pair}: give {wanted}") from error
    return found


_BOOLS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def make_folder(folder: Path) -> None:
    """Make a folder for pictures before any work is done, or say why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlttaError(f"{folder} cannot be used for pictures: {error.strerror}") from error


def save_picture(tags: Any, folder: Path, used: set[Path]) -> None:
    """Write an annotated copy under the image's own name; names that clash within a run get a number."""
    from mltta.images import load_image
    from mltta.picture import annotate

    stem, n = Path(tags.image).stem, 1
    while (target := folder / (f"{stem}.png" if n == 1 else f"{stem}-{n}.png")) in used:
        n += 1
    used.add(target)
    annotate(load_image(tags.image), tags).save(target)


def progress() -> Progress:
    """A bar on the error stream, so that results can be piped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def main() -> None:
    """Run the command line; our own errors become one line and exit code 2."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("mltta").setLevel(logging.INFO)
    try:
        app()
    except MlttaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
