"""Options that several commands share, so that they are called and explained alike."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mltta.errors import ConfigError
from mltta.storage import atomic
from mltta.storage.reading import shorten

if TYPE_CHECKING:
    from rich.progress import Progress

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


def settings(method: str, pairs: Sequence[str]) -> dict[str, Any]:
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


def whole_number(text: str, option: str) -> int:
    """A number out of a longer option, or a message that says which."""
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a whole number") from None


def settings_of(
    methods: Sequence[str], pairs: Sequence[str], config: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Settings of several methods: from a file, then from pairs, which go to every method that has the name."""
    found = read_config(config, methods) if config is not None else {method: {} for method in methods}
    for pair in pairs:
        owner, dot, _ = pair.partition("=")[0].partition(".")
        if dot and owner in methods:
            found[owner] |= settings(owner, [pair.partition(".")[2]])
            continue
        name = owner.strip().replace("-", "_")
        takers = [method for method in methods if name in _names(method)]
        if not takers:
            raise ConfigError(
                f"--set {pair}: none of {', '.join(methods)} has this setting; see `mltta methods`"
            )
        for method in takers:
            found[method] |= settings(method, [pair])
    return found


def read_config(path: Path, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Settings by method from a YAML file; methods it does not name keep the paper's."""
    import yaml

    from mltta.storage.reading import SETTINGS, explain, read_bytes

    try:
        held = yaml.safe_load(read_bytes(path, SETTINGS, ConfigError).decode()) or {}
    except FileNotFoundError:
        raise ConfigError(f"no config file at {path}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is not a YAML file that can be read: {explain(error)}") from error
    if not isinstance(held, dict) or not all(
        isinstance(value, (dict, type(None))) for value in held.values()
    ):
        raise ConfigError(f"{path}: give settings by method, such as `ml-tta: {{views: 16}}`")
    unknown = [name for name in held if name not in methods]
    if unknown:
        raise ConfigError(
            f"{path} has settings for {', '.join(map(shorten, unknown[:5]))}, but {', '.join(methods)} is run"
        )
    return {method: _typed(method, held.get(method) or {}) for method in methods}


def _typed(method: str, values: Mapping[Any, Any]) -> dict[str, Any]:
    """A file's settings; YAML takes 5e-3 for a word, because it has no point, where the method wants a number."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        found[name] = value
        if isinstance(value, str) and name in _numbers(method):
            with contextlib.suppress(ValueError):
                found[name] = float(value)
    return found


def write_text(path: Path, text: str) -> None:
    """Write a file, or say why it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text.encode(errors="surrogateescape"), durable=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _numbers(method: str) -> list[str]:
    from mltta.methods import method_class

    return [f.name for f in dataclasses.fields(method_class(method).Config) if type(f.default) is float]


def _names(method: str) -> list[str]:
    from mltta.methods import method_class

    return [field.name for field in dataclasses.fields(method_class(method).Config)]


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


def progress() -> Progress:
    """A bar on the error stream, so that results can be piped."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=60)
