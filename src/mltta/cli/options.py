"""Options that several commands share, so that they are called and explained alike."""

from __future__ import annotations

import logging
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltta.errors import ConfigError
from mltta.storage import atomic

if TYPE_CHECKING:
    from mltta.labels import LabelSet, LabelSource
    from mltta.model.backbone import Backbone

#: panels of a command's help, below what is needed first
MODEL, MACHINE = "Model and method", "Machine"

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="mini (embedded, offline), ViT-B/16, any open_clip NAME:TAG, hf-hub:ORG/NAME[@REVISION], or a folder.",
    ),
]
Weights = Annotated[
    str | None, typer.Option(help="A pretrained tag or a local weights file.", rich_help_panel=MODEL)
]
Preset = Annotated[str, typer.Option(help="paper, or released for the authors' code.", rich_help_panel=MODEL)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="A method's setting, e.g. views=16.", rich_help_panel=MODEL
    ),
]
EverySettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="A setting of every method that has it, e.g. views=16; or of one: ml-tta.views=16.",
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file with settings by method: `ml-tta: {views: 16}`.")
]
Teacher = Annotated[
    str | None,
    typer.Option(
        help="Second model for methods that ask one (rlcf), or self for the model itself.",
        rich_help_panel=MODEL,
    ),
]
Captions = Annotated[
    str | None,
    typer.Option(
        help="A caption base, hf-hub:ORG/NAME, a file of captions (.txt, .jsonl, .csv, COCO's .json, .gz), or none.",
        rich_help_panel=MODEL,
    ),
]
Synonyms = Annotated[
    Path | None,
    typer.Option(
        help='Further words that captions may use: JSON {"sofa": ["settee"]}, or CSV lines: sofa,settee.',
        rich_help_panel=MODEL,
    ),
]
Wordnet = Annotated[
    bool, typer.Option("--wordnet", help="Also WordNet's synonyms (mltta[wordnet]).", rich_help_panel=MODEL)
]
Template = Annotated[
    str | None,
    typer.Option(
        help="Prompt with {} for the label; openai or simple: open_clip's sets, for methods that tune no prompt.",
        show_default="the method's own",
        rich_help_panel=MODEL,
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Learned prompts in place of the template's words: ours, CoOp's, MaPLe's, or hf-hub:ORG/NAME.",
        rich_help_panel=MODEL,
    ),
]
DescriptionFile = Annotated[
    Path | None,
    typer.Option(
        "--descriptions",
        help="JSON file {label: [sentences]}, averaged with the template.",
        rich_help_panel=MODEL,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="Precision of the image tower: float32, bfloat16 or float16. Chosen by the device.",
        rich_help_panel=MACHINE,
    ),
]
Compile = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the image tower; by default on a GPU for long runs.",
        rich_help_panel=MACHINE,
    ),
]
Accelerate = Annotated[
    str | None,
    typer.Option(
        metavar="all|none|TRICKS",
        help="Only speed: all tricks, none of them, or some by name (docs/speed.md).",
        rich_help_panel=MACHINE,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps …", rich_help_panel=MACHINE)]
Seed = Annotated[int, typer.Option(help="Chooses the random views.", rich_help_panel=MODEL)]
QuickGelu = Annotated[
    bool | None,
    typer.Option(
        "--quick-gelu/--no-quick-gelu", help="Activation of a local weights file.", rich_help_panel=MODEL
    ),
]
AllowTorchscript = Annotated[
    bool,
    typer.Option(
        "--allow-torchscript",
        help="Open OpenAI's original .pt archive, which is a program.",
        rich_help_panel=MODEL,
    ),
]
AllowRemoteCode = Annotated[
    bool,
    typer.Option(
        "--allow-remote-code",
        help="Run the Python that a model folder's or repository's tokenizer brings.",
        rich_help_panel=MODEL,
    ),
]


def _tell_more(asked: bool) -> None:
    if asked:
        logging.getLogger("mltta").setLevel(logging.DEBUG)


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", callback=_tell_more, help="Say what is chosen: device, precision, batch …"
    ),
]


class TableFormat(str, Enum):
    text = "text"
    markdown = "markdown"
    csv = "csv"
    json = "json"
    latex = "latex"


def open_backbone(
    model: str | None,
    weights: str | None,
    device: str,
    quick_gelu: bool | None = None,
    allow_torchscript: bool = False,
    prompts: str | None = None,
    dtype: str | None = None,
    accelerate: str | None = None,
    allow_remote_code: bool = False,
) -> Backbone:
    """The model that the options name, the embedded one when they name none."""
    from mltta.model.load import load_backbone

    return load_backbone(
        model or (None if weights else "mini"),
        weights,
        device=device,
        image_dtype=dtype,
        quick_gelu=quick_gelu,
        allow_torchscript=allow_torchscript,
        allow_remote_code=allow_remote_code,
        prompts=prompts,
        accelerate=accelerate,
    )


def with_synonyms(labels: LabelSource, synonyms: Path | None, wordnet: bool) -> LabelSet:
    """The labels, with the further words that the options name."""
    from mltta.labels import LabelSet
    from mltta.labels.synonyms import add_synonyms, read_synonyms, wordnet_synonyms

    found = LabelSet.of(labels)
    if synonyms is not None:
        found = add_synonyms(found, read_synonyms(synonyms))
    return add_synonyms(found, wordnet_synonyms(found)) if wordnet else found


def write_text(path: Path, text: str) -> None:
    """Write a file, or say why it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text.encode(errors="surrogateescape"), durable=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
