"""Options that several commands share, in groups, and functions that open what they describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mltta.cli.options import Options, argument, option

if TYPE_CHECKING:
    from mltta.labels import LabelSet, LabelSource
    from mltta.model.backbone import Backbone
    from mltta.session.execution import Execution

LABELS, METHOD, PERFORMANCE = "Labels and captions", "Method", "Performance"


class DeviceOptions(Options, panel=PERFORMANCE):
    device: str = option("auto", "Device: auto, cpu, cuda, cuda:1, mps …")
    dtype: str | None = option(None, "Precision: float32, bfloat16 or float16 (default: by device).")
    engine: Literal["auto", "onnx", "torch"] = option(
        "auto", "onnx (no PyTorch), torch, or auto: the faster one that can run the method."
    )
    accelerate: str | None = option(
        None, "Optimizations to enable (docs/speed.md). Results are unchanged.", metavar="all|none|NAMES"
    )


class FileOptions(DeviceOptions, panel="Model"):
    quick_gelu: bool | None = option(None, "Whether a local weights file uses QuickGELU.")
    allow_torchscript: bool = option(False, "Allow OpenAI's original .pt archive (may execute code).")
    allow_remote_code: bool = option(False, "Allow Python code in the model's tokenizer (executes code).")


class WeightsOptions(FileOptions, panel="Model"):
    weights: str | None = option(None, "Pretrained tag or local weights file.")
    prompts: str | None = option(
        None,
        "Learned prompts instead of a template: file (mltta, CoOp, MaPLe) or hf-hub:ORG/NAME.",
        metavar="FILE",
    )


class ModelOptions(WeightsOptions, panel=None):
    model: str | None = option(
        None,
        "mini (default, included), ViT-B/16, open_clip NAME:TAG, hf-hub:ORG/NAME[@REVISION], or a folder.",
        "-m",
    )


class SynonymOptions(Options, panel=LABELS):
    synonyms: Path | None = option(None, 'Synonyms: JSON {"sofa": ["settee"]}, or CSV lines sofa,settee.')
    wordnet: bool = option(False, "Also use WordNet synonyms (requires mltta[wordnet]).")


class CaptionOptions(Options, panel=LABELS):
    captions: str | None = option(
        None,
        "Captions: a caption base, hf-hub:ORG/NAME, a file (.txt .jsonl .csv, COCO's .json, .gz), or none "
        "(default: the included captions).",
    )


class PromptOptions(SynonymOptions, panel=LABELS):
    template: str | None = option(
        None,
        "Prompt with {} for the label, or open_clip's set openai or simple (not for methods that tune prompts).",
        show_default="the method's own",
    )
    descriptions: Path | None = option(None, "JSON file {label: [sentences]}; averaged with the template.")


class QuestionOptions(CaptionOptions, PromptOptions, panel=LABELS):
    """How labels are put to a model."""


class MethodOptions(Options, panel=METHOD):
    set: tuple[str, ...] = option(
        (),
        "Method setting, e.g. views=16, or ml-tta.views=16 for one of several methods. May be repeated.",
        "-s",
        metavar="NAME=VALUE",
    )
    preset: str = option("paper", "Variant of the method: paper, or released (the authors' code).")
    teacher: str | None = option(None, "Second model for methods that need one (rlcf); self uses --model.")
    seed: int = option(0, "Random seed for the views.")
    #: settings by method, from a YAML file; ``set`` overrides them
    settings: dict[str, Any] = field(default_factory=dict)


class AnswerOptions(QuestionOptions, MethodOptions, ModelOptions, panel=None):
    """Options that results depend on besides the image."""


class HubOptions(Options):
    name: str = argument("ORG/NAME", "Repository on the Hugging Face Hub.")
    private: bool = option(False, "Create a private repository.")


class RunOptions(Options, panel=PERFORMANCE):
    """Execution options; results do not depend on them."""

    batch_size: int | None = option(None, "Images per batch (default: chosen automatically).", min=1)
    compile: bool | None = option(None, "Compile the image tower (default: on a GPU, for long runs).")

    @property
    def execution(self) -> Execution:
        """Return the options as a session takes them."""
        from mltta.session.execution import Execution

        return Execution(self.batch_size, getattr(self, "workers", None), self.compile)


class DatasetRunOptions(RunOptions):
    """Execution options of a run over a dataset, and the part of it to use."""

    workers: int | None = option(
        None, "Processes that decode images (default: threads instead).", min=0, panel=PERFORMANCE
    )
    first: int | None = option(None, "Use only this many images from the start of the dataset.", min=1)
    corrupt: str | None = option(
        None,
        "fog, motion-blur, noise, low-contrast or jpeg; severity 1-3 (default: 3).",
        metavar="KIND[:SEVERITY]",
    )


class SpreadOptions(Options, panel="Cluster"):
    ray: str | None = option(
        None,
        "Run on Ray: the cluster at ADDRESS (default: a running cluster, or this machine).",
        metavar="[ADDRESS]",
    )
    ray_workers: int | None = option(None, "Number of workers (default: all CPUs or GPUs).", min=1)
    ray_threads: int | None = option(None, "Concurrent photos per worker.", min=1)


class RayOptions(SpreadOptions, panel="Cluster"):
    ray_gpus: float = option(0.0, "GPUs per worker; fractions share a GPU.", min=0)
    shard_size: int | None = option(None, "Photos per shard (default: 32, growing to 1,024).", min=1)


def open_backbone(
    options: DeviceOptions, model: str | None = None, methods: Sequence[str] | None = None, **more: Any
) -> Backbone:
    """Open the model that the options name, or the one named here, with more options (default: the included model).

    Args:
        methods: what will use it, by default any method.
    """
    from mltta.methods.registry import all_array_api
    from mltta.model.load import load_backbone

    kinds = (WeightsOptions, FileOptions, DeviceOptions)
    group = next(kind for kind in kinds if isinstance(options, kind))
    given = options.chosen(*(one.name for one in fields(group))) | more
    name = model or getattr(options, "model", None) or (None if given.get("weights") else "mini")
    given["any_method"] = methods is None or not all_array_api(methods)
    return load_backbone(name, image_dtype=given.pop("dtype"), **given)


def asked(options: Options) -> dict[str, Any]:
    """Return the arguments that ``Tagger`` and ``evaluate`` have in common."""
    return options.chosen("captions", "template", "descriptions", "teacher", "seed", "execution")


def with_synonyms(labels: LabelSource, options: SynonymOptions) -> LabelSet:
    """Return the labels with the synonyms that the options add."""
    from mltta.labels import LabelSet
    from mltta.labels.synonyms import add_synonyms, read_synonyms, wordnet_synonyms

    found = LabelSet.of(labels)
    if options.synonyms is not None:
        found = add_synonyms(found, read_synonyms(options.synonyms))
    return add_synonyms(found, wordnet_synonyms(found)) if options.wordnet else found
