"""Options that several commands share, in groups, and what is opened from them in one place."""

from __future__ import annotations

from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltta.cli.options import Options, argument, option

if TYPE_CHECKING:
    from mltta.labels import LabelSet, LabelSource
    from mltta.model.backbone import Backbone
    from mltta.session.execution import Execution

LABELS, METHOD, PERFORMANCE = "Labels and captions", "Method", "Performance"


class DeviceOptions(Options, panel=PERFORMANCE):
    device: str = option("auto", "auto, cpu, cuda, cuda:1, mps …")
    dtype: str | None = option(None, "Image tower: float32, bfloat16 or float16 (default: by device).")
    accelerate: str | None = option(
        None, "Optimizations to enable (docs/speed.md). Results are unchanged.", metavar="all|none|NAMES"
    )


class FileOptions(DeviceOptions, panel="Model"):
    quick_gelu: bool | None = option(None, "Whether a local weights file was trained with QuickGELU.")
    allow_torchscript: bool = option(False, "Open OpenAI's original .pt archive (may execute code).")
    allow_remote_code: bool = option(False, "Run the tokenizer code of a model folder or repository.")


class WeightsOptions(FileOptions, panel="Model"):
    weights: str | None = option(None, "A pretrained tag or a local weights file.")
    prompts: str | None = option(
        None,
        "Learned prompts instead of a template: CoOp's, MaPLe's or ours, or hf-hub:ORG/NAME.",
        metavar="FILE",
    )


class ModelOptions(WeightsOptions, panel=None):
    model: str | None = option(
        None,
        "mini (included), ViT-B/16, an open_clip NAME:TAG, hf-hub:ORG/NAME[@REVISION], or a folder.",
        "-m",
    )


class SynonymOptions(Options, panel=LABELS):
    synonyms: Path | None = option(None, 'Synonyms: JSON {"sofa": ["settee"]}, or CSV lines sofa,settee.')
    wordnet: bool = option(False, "Also use WordNet's synonyms (mltta[wordnet]).")


class CaptionOptions(Options, panel=LABELS):
    captions: str | None = option(
        None, "Caption base, hf-hub:ORG/NAME, caption file (.txt .jsonl .csv, COCO's .json, .gz), or none."
    )


class PromptOptions(SynonymOptions, panel=LABELS):
    template: str | None = option(
        None,
        "Prompt with {} for the label; openai or simple: open_clip's sets, for methods that tune no prompt.",
        show_default="the method's own",
    )
    descriptions: Path | None = option(None, "JSON file {label: [sentences]}, averaged with the template.")


class QuestionOptions(CaptionOptions, PromptOptions, panel=LABELS):
    """How labels are put to a model."""


class MethodOptions(Options, panel=METHOD):
    set: tuple[str, ...] = option(
        (),
        "A setting, e.g. views=16; of one of several methods: ml-tta.views=16.",
        "-s",
        metavar="NAME=VALUE",
    )
    preset: str = option("paper", "paper, or released for the authors' code.")
    teacher: str | None = option(
        None, "Second model for methods that need one (rlcf); self: the model itself."
    )
    seed: int = option(0, "Random seed for the views.")
    #: settings by method, which a YAML file has under the method's name; ``set`` overrides them
    settings: dict[str, Any] = field(default_factory=dict)


class AnswerOptions(QuestionOptions, MethodOptions, ModelOptions, panel=None):
    """What an answer depends on besides the image."""


class HubOptions(Options):
    name: str = argument("ORG/NAME", "Repository on the Hugging Face hub.")
    private: bool = option(False, "Visible only to you and your organisation.")


class RunOptions(Options, panel=PERFORMANCE):
    """How a run is carried out; no result depends on it."""

    batch_size: int | None = option(None, "Images per batch on a GPU.", min=1)
    compile: bool | None = option(None, "Compile the image tower (default: on a GPU, for long runs).")

    @property
    def execution(self) -> Execution:
        """What these options mean for a session."""
        from mltta.session.execution import Execution

        return Execution(self.batch_size, getattr(self, "workers", None), self.compile)


class DatasetRunOptions(RunOptions):
    """How a run over a dataset is carried out, and over how much of it."""

    workers: int | None = option(
        None, "Processes that decode images, instead of threads.", min=0, panel=PERFORMANCE
    )
    first: int | None = option(None, "Only the first images of a dataset.", min=1)
    corrupt: str | None = option(
        None, "fog, motion-blur, noise, low-contrast or jpeg; severity 1 to 3.", metavar="KIND[:SEVERITY]"
    )


class SpreadOptions(Options, panel="Cluster"):
    ray: str | None = option(
        None,
        "Use Ray: the cluster at ADDRESS (default: a running one, or this machine).",
        metavar="[ADDRESS]",
    )
    ray_workers: int | None = option(None, "Number of workers (default: all CPUs or GPUs).", min=1)
    ray_threads: int | None = option(None, "Concurrent photos per worker.", min=1)


class RayOptions(SpreadOptions, panel="Cluster"):
    ray_gpus: float = option(0.0, "GPUs per worker; fractions share a GPU.", min=0)
    shard_size: int | None = option(None, "Photos per shard (default: 32, growing to 1,024).", min=1)


def open_backbone(options: DeviceOptions, model: str | None = None, **more: Any) -> Backbone:
    """The model that the options name, or one of several, with more options; by default the embedded one."""
    from mltta.model.load import load_backbone

    kinds = (WeightsOptions, FileOptions, DeviceOptions)
    group = next(kind for kind in kinds if isinstance(options, kind))
    given = options.chosen(*(one.name for one in fields(group))) | more
    name = model or getattr(options, "model", None) or (None if given.get("weights") else "mini")
    return load_backbone(name, image_dtype=given.pop("dtype"), **given)


def asked(options: Options) -> dict[str, Any]:
    """How labels are put to a model, and how that is carried out, as ``Tagger`` and ``evaluate`` take it."""
    return options.chosen("captions", "template", "descriptions", "teacher", "seed", "execution")


def with_synonyms(labels: LabelSource, options: SynonymOptions) -> LabelSet:
    """The labels, with the further words that the options name."""
    from mltta.labels import LabelSet
    from mltta.labels.synonyms import add_synonyms, read_synonyms, wordnet_synonyms

    found = LabelSet.of(labels)
    if options.synonyms is not None:
        found = add_synonyms(found, read_synonyms(options.synonyms))
    return add_synonyms(found, wordnet_synonyms(found)) if options.wordnet else found
