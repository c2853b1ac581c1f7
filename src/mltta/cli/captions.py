"""`mltta captions`: generate, build, inspect, search, merge and share captions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltta.cli import generate, options
from mltta.cli.caption_report import about, print_table, show
from mltta.errors import CaptionError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from mltta.captions.quality import Quality
    from mltta.captions.store import CaptionBase
    from mltta.labels import LabelSet
    from mltta.model.backbone import Backbone

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Generate, build, inspect, search, merge and share captions: the sentences that methods retrieve.",
)
app.command("generate", help=generate.HELP)(generate.generate)

#: marks a folder whose base is still being written
UNFINISHED = ".mltta-unfinished"
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the base.")]
ForLabels = Annotated[
    str | None, typer.Option("--labels", "-l", help="Report how well the captions cover these labels.")
]

BUILD_HELP = """Embed captions once, for one model or several.

**Examples**

`mltta captions build captions.txt --out base`

`mltta captions build captions_train2017.json more.jsonl.gz --model ViT-B/16 --model RN50 --out base --labels coco`

`mltta captions build hf:ORG/NAME:train:caption --out base`

SOURCE is a file: .txt (one caption a line), .jsonl, .csv, .tsv, COCO's captions .json, each also as .gz; a folder
that `save_to_disk` of `datasets` wrote; or `hf:ORG/NAME[:SPLIT][:COLUMN]`. Blank and repeated captions are left out.

A base belongs to the model that embedded it. With several models, each gets a folder of its own inside `--out`;
`--captions` then takes `--out` whole and finds the one that fits.
"""

SEARCH_HELP = """Show the captions nearest to a text or an image, and the labels they name.

**Examples**

`mltta captions search "a dog on a sofa"`

`mltta captions search photo.jpg --captions base --model ViT-B/16 -n 5 --labels voc`

This is what a method retrieves for an image: captions that name nothing of the kind mean that the base does not
cover it.
"""


@app.command("build", help=BUILD_HELP)
def build(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE…", help="Files or datasets of captions.")],
    out: Out,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="One or several; mini when none is given.")
    ] = None,
    weights: options.Weights = None,
    field: Annotated[
        str | None, typer.Option(help="Field or column of the captions, if not caption or text.")
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="One byte a number: a quarter of the size.")
    ] = False,
    labels: ForLabels = None,
    synonyms: options.Synonyms = None,
    wordnet: options.Wordnet = False,
    as_json: AsJson = False,
    device: options.Device = "auto",
    quick_gelu: options.QuickGelu = None,
) -> None:
    from mltta.captions.read import read_texts
    from mltta.captions.store import CaptionBase

    models: list[str | None] = list(model) if model else [None]
    if weights is not None and len(models) > 1:
        raise ConfigError("--weights belongs to one model: build the others with a command each")
    folders = [out / folder_name(name) if name and len(models) > 1 else out for name in models]
    if len(set(folders)) < len(folders):
        raise ConfigError("--model: the same model is given twice")
    for folder in folders:
        refuse_used(folder)
    wanted = None if labels is None else options.with_synonyms(labels, synonyms, wordnet)
    texts = list(dict.fromkeys(text for source in sources for text in read_texts(source, field)))
    said = []
    with unfinished(folders):
        for name, folder in zip(models, folders, strict=True):
            base = CaptionBase.build(texts, options.open_backbone(name, weights, device, quick_gelu))
            save(base, folder, compact)
            said.append(about(base, folder))
    show(said, report(texts, wanted), as_json)


@app.command("info")
def info(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="A caption base, or hf-hub:ORG/NAME.")],
    labels: ForLabels = None,
    synonyms: options.Synonyms = None,
    wordnet: options.Wordnet = False,
    as_json: AsJson = False,
) -> None:
    """Say what a caption base is, and with `--labels` how well it covers a label set.

    `mltta captions info base --labels coco` counts the captions that name each label, lists the labels that none
    names and shows how many labels a caption names. Words of your own count too: `--synonyms words.json`.
    """
    from mltta.captions.store import CaptionBase

    wanted = None if labels is None else options.with_synonyms(labels, synonyms, wordnet)
    bases = [(CaptionBase.load(folder), folder) for folder in folders_of(source)]
    texts = list(dict.fromkeys(text for base, _ in bases for text in base.texts))
    show([about(base, folder) for base, folder in bases], report(texts, wanted), as_json)


@app.command("search", help=SEARCH_HELP)
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A text, or the path of an image.")],
    captions: options.Captions = None,
    model: options.Model = None,
    weights: options.Weights = None,
    n: Annotated[int, typer.Option("--number", "-n", min=1, help="How many captions.")] = 10,
    labels: Annotated[
        str, typer.Option("--labels", "-l", help="coco, voc, nuswide, a label file, or 'dog, cat, sofa'.")
    ] = "coco",
    synonyms: options.Synonyms = None,
    wordnet: options.Wordnet = False,
    as_json: AsJson = False,
    device: options.Device = "auto",
    quick_gelu: options.QuickGelu = None,
) -> None:
    from mltta.captions.nouns import label_matches
    from mltta.captions.open import open_captions
    from mltta.captions.store import default_captions

    wanted = options.with_synonyms(labels, synonyms, wordnet)
    backbone = options.open_backbone(model, weights, device, quick_gelu)
    base = default_captions(backbone) if captions is None else open_captions(captions, backbone)
    found = base.nearest(query_feature(query, backbone), n)
    named = label_matches([text for _, text in found], wanted)
    rows = [
        (similarity, text, [wanted.names[i] for i in labels_of])
        for (similarity, text), labels_of in zip(found, named, strict=True)
    ]
    if as_json:
        keys = ("similarity", "caption", "labels")
        typer.echo(
            json.dumps([dict(zip(keys, row, strict=True)) for row in rows], ensure_ascii=False, indent=1)
        )
        return
    print_table(
        ("similarity", "caption", "labels"),
        [(f"{similarity:.3f}", text, ", ".join(names)) for similarity, text, names in rows],
    )


@app.command("merge")
def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="A B…", help="Caption bases of one model.")],
    out: Out,
    compact: Annotated[
        bool, typer.Option("--compact", help="One byte a number: a quarter of the size.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Join caption bases of the same model into one, without embedding anything again.

    `mltta captions merge base-coco base-mine --out base-both`. A caption that several hold is kept once.
    """
    from mltta.captions.store import CaptionBase

    refuse_used(out)
    bases = [CaptionBase.load(base) for folder in folders for base in folders_of(str(folder))]
    merged = CaptionBase.merge(bases)
    with unfinished([out]):
        save(merged, out, compact)
    show([about(merged, out) | {"dropped": sum(map(len, bases)) - len(merged)}], None, as_json)


@app.command("push")
def push(
    folder: Annotated[Path, typer.Argument(help="A caption base, or a folder of some.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="Where to on the Hugging Face hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="Only you and your organisation see it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Share a caption base on the Hugging Face hub; log in with `hf auth login` first.

    `mltta captions push base my-name/street-captions`. Everyone then uses it as
    `--captions hf-hub:my-name/street-captions`. Sent are texts, embeddings and config.json, nothing else.
    """
    from mltta.captions.store import FILES, CaptionBase
    from mltta.storage import hub

    bases = folders_of(str(folder))
    for base in bases:
        CaptionBase.load(base)  # a damaged one is not sent
    files = [str((base / file).relative_to(folder)) for base in bases for file in FILES]
    url = hub.push(folder, name, private, files=files)
    typer.echo(json.dumps({"url": url}) if as_json else f"sent to {url}: --captions {hub.PREFIX}{name}")


def query_feature(query: str, backbone: Backbone) -> Tensor:
    """The unit feature (D) of an image, if the query is called like one, or else of a text."""
    from mltta.images.decode import load_image
    from mltta.images.kinds import SUFFIXES
    from mltta.images.specs import ViewSpec
    from mltta.images.views import render_views

    path = Path(query)
    if not query.strip() or path.is_dir():
        raise ConfigError(f"{query!r} is neither a text nor an image: give one of them")
    if path.suffix.casefold() not in SUFFIXES and not path.is_file():
        return backbone.encode_texts([query])[0]
    return backbone.encode_images(render_views(load_image(query), ViewSpec(count=1), backbone.preprocess))[0]


def folder_name(model: str) -> str:
    """A model's name as the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model"


def folders_of(source: str) -> list[Path]:
    """The bases in a folder or on the hub, at least one."""
    from mltta.captions.open import base_folders

    found = base_folders(source)
    if not found and not Path(source).exists():
        raise CaptionError(f"there is nothing at {source}: check the spelling of the path")
    if not found:
        raise CaptionError(
            f"{source} is not a caption base: `mltta captions build` makes one from a file of captions"
        )
    return found


@contextmanager
def unfinished(folders: Sequence[Path]) -> Iterator[None]:
    """Mark folders until all of them are written: what a kill leaves behind is known for ours, and written over."""
    from mltta.captions.store import FILES

    marks = [folder / UNFINISHED for folder in folders]
    try:
        for mark in marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
    except OSError as error:
        raise CaptionError(f"{mark.parent} cannot be written: {error.strerror}") from error
    done = False
    try:
        yield
        done = True
    finally:
        for mark in marks:
            if done or not any((mark.parent / name).exists() for name in FILES):
                with suppress(OSError):
                    mark.unlink()


def refuse_used(folder: Path) -> None:
    """Keep a base that took long to embed, and files of the same names, from being written over."""
    from mltta.captions.store import FILES

    if folder.exists() and not folder.is_dir():
        raise CaptionError(f"--out {folder} is a file: give a folder")
    if (folder / UNFINISHED).exists():
        return  # of an earlier call that was killed
    for name in reversed(FILES):
        if (folder / name).exists():
            raise CaptionError(f"{folder} holds {name} already: remove it or give another --out")


def save(base: CaptionBase, folder: Path, compact: bool) -> None:
    """Write a base, or say why it cannot be."""
    try:
        base.save(folder, compact)
    except OSError as error:
        raise CaptionError(f"{folder} cannot be written: {error.strerror}") from error


def report(texts: list[str], labels: LabelSet | None) -> Quality | None:
    """How well the captions cover the labels, if any were asked for."""
    from mltta.captions.quality import quality

    return None if labels is None else quality(texts, labels)
