"""`mltta prompts`: train context vectors in place of a template's words, look at a file of them, share it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltta.cli import options
from mltta.cli.progress import bar_on_terminal
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.evaluation.train_prompts import Examples
    from mltta.labels import LabelSet
    from mltta.model.backbone import Backbone

app = typer.Typer(
    no_args_is_help=True, help="Train learned prompts (CoOp), look at a file of them, or share it."
)

TRAIN_HELP = """Train context vectors for a label list, on captions or on labelled images.

**Examples**

`mltta prompts train --labels voc --out voc.safetensors` trains on the embedded captions: no image is needed

`mltta prompts train --labels labels.txt --images shots/ --shots 16 --epochs 50 --lr 2e-3 --out mine.safetensors`

`mltta tag photo.jpg --labels voc --prompts voc.safetensors`

IMAGES holds one folder a label, or a labels.csv or labels.jsonl beside the images. A tenth of the examples is held
out, and the mAP on them is printed for the template and for the trained prompts.
"""


@app.command("train", help=TRAIN_HELP)
def train(
    labels: Annotated[
        str, typer.Option("--labels", "-l", help="coco, voc, nuswide, a label file, or 'dog, cat, sofa'.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Written as .safetensors.")],
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Labelled images; without them, captions are used.")
    ] = None,
    captions: options.Captions = None,
    model: options.Model = None,
    weights: options.Weights = None,
    tokens: Annotated[
        int, typer.Option(min=1, help='Context vectors: 4 start as "a photo of a", others at random.')
    ] = 4,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the examples.")] = 10,
    shots: Annotated[int | None, typer.Option(min=1, help="At most so many images of each label.")] = None,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam, with a cosine schedule.")] = 2e-4,
    noise: Annotated[
        float | None,
        typer.Option(min=0, help="Length of the noise on each unit feature; 1 for captions, 0 for images."),
    ] = None,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(help="Chooses what is held out, the order and the noise.")] = 0,
    quick_gelu: options.QuickGelu = None,
    allow_torchscript: options.AllowTorchscript = False,
) -> None:
    from mltta.evaluation.train_prompts import Training, train_prompts
    from mltta.labels import LabelSet
    from mltta.model.learned_prompts import save_prompts

    if out.suffix != ".safetensors":
        raise ConfigError(f"--out {out}: prompts are saved as .safetensors, name the file so")
    if out.exists():
        raise ConfigError(f"--out {out} is there already: remove it or give another name")
    if not os.access(next(folder for folder in out.absolute().parents if folder.exists()), os.W_OK):
        raise ConfigError(f"--out {out} cannot be written there: choose another folder")
    if images is not None and captions is not None:
        raise ConfigError("give --images or --captions, not both")
    if shots is not None and images is None:
        raise ConfigError("--shots counts images: give --images too")
    settings = Training(tokens=tokens, epochs=epochs, lr=lr, noise=noise, seed=seed)
    table = LabelSet.of(labels)
    backbone = options.open_backbone(model, weights, device, quick_gelu, allow_torchscript)
    if images is None:
        examples = from_captions(backbone, table, captions)
    else:
        examples = from_images(backbone, table, images, shots, seed)
    typer.echo(f"training on {examples.source}", err=True)
    with bar_on_terminal() as bar:
        task = bar.add_task("training", total=None)
        done = train_prompts(
            backbone,
            table,
            examples,
            settings,
            progress=lambda ready, total: bar.update(task, completed=ready, total=total),
        )
    save_prompts(done.prompts, out)
    if done.before is not None and done.after is not None:
        typer.echo(
            f"mAP on {done.held_out} held-out examples: template {done.before:.2f}, trained {done.after:.2f}"
        )
    typer.echo(f"wrote {out}", err=True)


def from_captions(backbone: Backbone, labels: LabelSet, captions: str | None) -> Examples:
    """Captions of a base, the embedded ones when none is given."""
    from mltta.captions.open import open_captions
    from mltta.captions.store import default_captions
    from mltta.evaluation.train_prompts import caption_examples

    base = default_captions(backbone) if captions is None else open_captions(captions, backbone)
    return caption_examples(backbone, labels, base)


def from_images(backbone: Backbone, labels: LabelSet, folder: Path, shots: int | None, seed: int) -> Examples:
    """Labelled images: with a file of labels beside them, or in one folder a label."""
    from mltta.data.class_folders import load_class_folders
    from mltta.data.own_folder import has_labels, load_folder
    from mltta.evaluation.train_prompts import image_examples

    data = load_folder(folder, labels=labels) if has_labels(folder) else load_class_folders(folder, labels)
    with bar_on_terminal() as bar:
        task = bar.add_task("encoding", total=None)
        return image_examples(
            backbone, data, shots, seed, lambda ready, total: bar.update(task, completed=ready, total=total)
        )


@app.command("push")
def push(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ours, CoOp's or MaPLe's.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="Where to on the Hugging Face hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="Only you and your organisation see it.")
    ] = False,
) -> None:
    """Share prompts on the Hugging Face hub; log in with `hf auth login` first.

    Everyone then uses them as `--prompts hf-hub:ORG/NAME`. Sent are the tensors and what is known about them.
    """
    from mltta.model.learned_prompts import load_prompts, push_prompts
    from mltta.storage import hub

    url = push_prompts(load_prompts(file), name, private)
    typer.echo(f"sent to {url}: --prompts {hub.PREFIX}{name}")


@app.command("info")
def info(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ours, CoOp's, MaPLe's, or hf-hub:ORG/NAME.")],
) -> None:
    """Say what a file of prompts holds and what it was trained on: `mltta prompts info voc.safetensors`."""
    from mltta.model.learned_prompts import MaPLe, load_prompts

    prompts = load_prompts(file)
    *labels, tokens, width = prompts.context.shape
    each = f", one for each of {labels[0]} labels" if labels else ""
    typer.echo(f"{prompts.title} prompts {prompts.digest}")
    typer.echo(f"context: {tokens} tokens, {width} wide{each}")
    if isinstance(prompts, MaPLe):
        wide = prompts.tensors["proj.weight"].shape[0]
        typer.echo(f"image tower: {wide} wide; blocks with prompts: {1 + prompts.deeper}")
    for name, value in prompts.about.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {inner}" for key, inner in value.items())
        typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
