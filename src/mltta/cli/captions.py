"""`mltta captions`: build, inspect, search, merge and share captions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mltta.cli import groups
from mltta.cli.caption_report import about, print_json, print_table, show
from mltta.cli.options import Options, argument, option
from mltta.errors import CaptionError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from mltta.labels import LabelSet
    from mltta.model.backbone import Backbone

#: marks a folder with an unfinished base
UNFINISHED = ".mltta-unfinished"


class ReportOptions(Options):
    json: bool = option(False, "Print JSON.")


class CoverOptions(ReportOptions, groups.SynonymOptions):
    labels: str | None = option(None, "Report how well the captions cover these labels.", "-l")


class FolderOptions(Options):
    out: Path = option(MISSING, "Output folder.", "-o", metavar="DIR")
    compact: bool = option(False, "Store embeddings with 8 bits per value (a quarter of the size).")


class BuildOptions(FolderOptions, CoverOptions, groups.WeightsOptions):
    """Embed captions for one or more models.

    **Examples**

    - `mltta captions build captions.txt --out base`
    - `mltta captions build captions_train2017.json more.jsonl.gz -m ViT-B/16 -m RN50 --out base --labels coco`
    - `mltta captions build hf:ORG/NAME:train:caption --out base`

    SOURCE is a file (.txt with one caption per line, .jsonl, .csv, .tsv or COCO captions .json, optionally with .gz), a
    dataset folder from `save_to_disk`, or `hf:ORG/NAME[:SPLIT][:COLUMN]`. Blank and duplicate captions are skipped.

    A base works only with the model that embedded it. With several models, `--out` contains one folder per model; pass
    `--out` to `--captions`, which selects the matching folder.
    """

    sources: tuple[str, ...] = argument("SOURCE…", "Caption files or datasets.")
    model: tuple[str, ...] = option((), "Model, as in `mltta tag` (default: mini). May be repeated.", "-m")
    field: str | None = option(None, "Field or column with the captions (default: caption or text).")


class InfoOptions(CoverOptions):
    """Show the properties of a caption base and, with `--labels`, how well it covers a label set.

    `mltta captions info base --labels coco` counts the captions that mention each label, lists labels that are never
    mentioned and shows the number of labels per caption. `--synonyms words.json` adds your own synonyms.
    """

    source: str = argument("FOLDER", "A caption base, or hf-hub:ORG/NAME.")


class SearchOptions(ReportOptions, groups.CaptionOptions, groups.SynonymOptions, groups.ModelOptions):
    """Show the captions most similar to a text or image, and the labels they mention.

    **Examples**

    - `mltta captions search "a dog on a sofa"`
    - `mltta captions search photo.jpg --captions base --model ViT-B/16 -n 5 --labels voc`

    Methods retrieve the same captions. If none describes the image, the base does not cover it.
    """

    query: str = argument("QUERY", "Text or path to an image.")
    number: int = option(10, "Number of captions to show.", "-n", min=1)
    labels: str = option(
        "coco", "coco, voc, nuswide, a label file, or 'dog, cat, sofa'.", "-l", panel=groups.LABELS
    )


class MergeOptions(FolderOptions, ReportOptions):
    """Merge caption bases of the same model without embedding again.

    `mltta captions merge base-coco base-mine --out base-both`. Duplicate captions are kept once.
    """

    folders: tuple[str, ...] = argument("A B…", "Caption bases of the same model.")


class PushOptions(ReportOptions, groups.HubOptions):
    """Upload a caption base to the Hugging Face Hub; log in with `hf auth login` first.

    `mltta captions push base my-name/street-captions`. Others can then use it with
    `--captions hf-hub:my-name/street-captions`. Only texts, embeddings and config.json are uploaded.
    """

    folder: Path = argument("FOLDER", "Caption base, or folder of caption bases.")


def build(options: BuildOptions) -> None:
    from mltta.captions.read import read_texts
    from mltta.captions.store import CaptionBase

    models: dict[Path, str | None] = {options.out: next(iter(options.model), None)}
    if len(options.model) > 1:
        models = {
            options.out / (re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"): name
            for name in options.model
        }
        if options.weights is not None:
            raise ConfigError("--weights applies to one model: use a separate command per model")
        if len(models) < len(options.model):
            raise ConfigError("--model: the same model was given twice")
    for folder in models:
        refuse_used(folder)
    wanted, said = covered(options), []
    texts = list(dict.fromkeys(text for one in options.sources for text in read_texts(one, options.field)))
    with writing(*models):
        for folder, name in models.items():
            base = CaptionBase.build(texts, groups.open_backbone(options, name))
            base.save(folder, options.compact)
            said.append(about(base, folder))
    show(said, options.json, texts, wanted)


def info(options: InfoOptions) -> None:
    from mltta.captions.store import CaptionBase

    wanted = covered(options)
    bases = [(CaptionBase.load(folder), folder) for folder in folders_of(options.source)]
    texts = list(dict.fromkeys(text for base, _ in bases for text in base.texts))
    show([about(base, folder) for base, folder in bases], options.json, texts, wanted)


def search(options: SearchOptions) -> None:
    from mltta.captions.nouns import label_matches
    from mltta.captions.store import default_captions, open_captions

    wanted = groups.with_synonyms(options.labels, options)
    backbone = groups.open_backbone(options)
    source = options.captions
    base = default_captions(backbone) if source is None else open_captions(source, backbone)
    near = base.nearest(query_feature(options.query, backbone), options.number)
    matches = label_matches([text for _, text in near], wanted)
    named = ([wanted.names[i] for i in match] for match in matches)
    names, rows = (
        ("similarity", "caption", "labels"),
        [(*one, own) for one, own in zip(near, named, strict=True)],
    )
    if options.json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(*names, rows=[(f"{score:.3f}", text, ", ".join(found)) for score, text, found in rows])


def merge(options: MergeOptions) -> None:
    from mltta.captions.store import CaptionBase

    refuse_used(options.out)
    bases = [CaptionBase.load(base) for folder in options.folders for base in folders_of(folder)]
    merged = CaptionBase.merge(bases)
    with writing(options.out):
        merged.save(options.out, options.compact)
    show([about(merged, options.out) | {"dropped": sum(map(len, bases)) - len(merged)}], options.json)


def push(options: PushOptions) -> None:
    from mltta.captions.store import FILES, CaptionBase
    from mltta.storage import hub

    bases = folders_of(str(options.folder))
    for base in bases:
        CaptionBase.load(base)  # raises if the base is damaged
    files = [str((base / file).relative_to(options.folder)) for base in bases for file in FILES]
    url = hub.push(options.folder, options.name, options.private, files=files)
    said = f"uploaded to {url}; use it with --captions {hub.PREFIX}{options.name}"
    typer.echo(json.dumps({"url": url}) if options.json else said)


def covered(options: CoverOptions) -> LabelSet | None:
    """Return the labels whose coverage to report, or None."""
    return None if options.labels is None else groups.with_synonyms(options.labels, options)


def query_feature(query: str, backbone: Backbone) -> Tensor:
    """Return the unit feature (D) of an image if the query is a path to one, otherwise of the text."""
    from mltta.images.decode import load_image
    from mltta.images.find import SUFFIXES
    from mltta.images.specs import ViewSpec
    from mltta.images.views import render_views

    path = Path(query)
    if not query.strip() or path.is_dir():
        raise ConfigError(f"expected a text or a path to an image, got {query!r}")
    if path.suffix.casefold() not in SUFFIXES and not path.is_file():
        return backbone.encode_texts([query])[0]
    return backbone.encode_images(render_views(load_image(query), ViewSpec(count=1), backbone.preprocess))[0]


def folders_of(source: str) -> list[Path]:
    """Return the bases in a folder or on the hub, at least one."""
    from mltta.captions.store import base_folders

    found = base_folders(source)
    if not found:
        made = "is not a caption base. Build one from captions with `mltta captions build`"
        gone = f"no such file or folder: {source}. Check the spelling of the path"
        raise CaptionError(f"{source} {made}" if Path(source).exists() else gone)
    return found


@contextmanager
def writing(*folders: Path) -> Iterator[None]:
    """Mark folders as unfinished while bases are written, so that a rerun can replace them if it is killed."""
    from mltta.captions.store import FILES

    done = False
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / UNFINISHED).touch()
        yield
        done = True
    except OSError as error:
        raise CaptionError(f"{error.filename or folders[0]} cannot be written: {error.strerror}") from error
    finally:
        for folder in folders:
            if done or not any((folder / name).exists() for name in FILES):
                with suppress(OSError):
                    (folder / UNFINISHED).unlink()


def refuse_used(folder: Path) -> None:
    """Refuse to overwrite a base or files with the same names."""
    from mltta.captions.store import FILES

    if folder.exists() and not folder.is_dir():
        raise CaptionError(f"--out {folder} is a file: give a folder")
    held = next((name for name in reversed(FILES) if (folder / name).exists()), None)
    if held and not (folder / UNFINISHED).exists():  # left by a killed run
        raise CaptionError(f"{folder} already contains {held}: remove it or choose another --out")
