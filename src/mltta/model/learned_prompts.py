"""Learned prompts of CoOp and MaPLe, and their files."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from torch import Tensor

from mltta.errors import ConfigError, WeightsError
from mltta.model.state_dict import tensors_by_name
from mltta.storage import atomic, checksums, hub
from mltta.storage.reading import explain
from mltta.storage.tensors import read_file, to_bytes

if TYPE_CHECKING:
    from mltta.labels import LabelSet
    from mltta.model.backbone import Backbone

FORMAT = "mltta-prompts-2"
#: older format, without a checksum
UNCHECKED = "mltta-prompts-1"
#: plausible maximum of learned vectors; word vectors of CLIP stay below 1
LARGEST = 1000.0
_LEARNER = "prompt_learner."
log = logging.getLogger("mltta")


@dataclass(frozen=True, eq=False)
class LearnedPrompts:
    """Learned tensors, named as in the released checkpoints, with their metadata."""

    tensors: Mapping[str, Tensor]
    #: metadata of our files: the model and the hash of its text tower, the labels, the training
    about: Mapping[str, Any] = field(default_factory=dict)
    source: str = "learned prompts"
    kind: ClassVar[str]
    #: name in tables
    title: ClassVar[str]

    @property
    def context(self) -> Tensor:
        """The vectors (M, W) in front of a label; CoOp's may be (C, M, W), one context per label."""
        return self.tensors["ctx"]

    @cached_property
    def digest(self) -> str:
        """Hash of the prompts' values, which identifies results computed with them."""
        digest = hashlib.blake2b(self.kind.encode(), digest_size=8)
        for name, value in sorted(self.tensors.items()):
            digest.update(f"{name} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def for_labels(self, labels: LabelSet) -> Tensor:
        """The context for a label list."""
        return self.context

    def check(self, backbone: Backbone) -> None:
        """Raise if these prompts cannot have been learned for a backbone."""
        if not backbone.tower.tunable:
            raise ConfigError(f"{backbone.name}: this text tower does not accept context vectors")
        if self.context.shape[-1] != backbone.tower.width:
            raise ConfigError(
                f"{self.source} was learned for another model: its vectors have width {self.context.shape[-1]}, but "
                f"the text tower of {backbone.name} has width {backbone.tower.width}"
            )
        own = self.about.get("text_tower")
        if own is not None and own != backbone.text_fingerprint:
            raise ConfigError(
                f"{self.source} was learned for {self.about.get('model', 'another model')} (weights {own[:8]}), but "
                f"{backbone.name} has weights {backbone.text_fingerprint[:8]}: use prompts learned for this model"
            )


@dataclass(frozen=True, eq=False)
class CoOp(LearnedPrompts):
    """Vectors that replace the template's words; image encoding is unchanged."""

    kind: ClassVar[str] = "coop"
    title: ClassVar[str] = "CoOp"

    def __post_init__(self) -> None:
        if self.context.ndim not in (2, 3) or not self.context.numel():
            raise WeightsError(
                f"{self.source}: CoOp's context is (tokens, width) or (labels, tokens, width), not "
                f"{tuple(self.context.shape)}"
            )

    def for_labels(self, labels: LabelSet) -> Tensor:
        """One context for all labels, or one per label if their number matches."""
        if self.context.ndim == 2:
            return self.context
        if len(self.context) != len(labels):
            raise ConfigError(
                f"{self.source} has one context for each of {len(self.context)} labels, which does not fit a list of "
                f"{len(labels)}: use the labels it was trained with, in order, or a checkpoint whose context "
                "is shared by all labels"
            )
        trained = self.about.get("labels")
        if trained is not None and tuple(trained) != labels.names:
            message = f"{self.source} has one context per label, but was trained with other labels"
            raise ConfigError(message)
        return self.context


@dataclass(frozen=True, eq=False)
class MaPLe(LearnedPrompts):
    """Vectors in front of the labels and, via linear layers, after the image patches; deeper blocks add more to both.

    ``ctx`` (M, W), ``proj.weight`` (W', W), ``proj.bias`` (W',); for each deeper block i ``compound_prompts_text.i``
    (M, W), ``compound_prompt_projections.i.weight`` (W', W) and ``.bias`` (W',).
    """

    kind: ClassVar[str] = "maple"
    title: ClassVar[str] = "MaPLe"

    def __post_init__(self) -> None:
        tensors = self.tensors
        if self.context.ndim != 2 or tensors["proj.weight"].ndim != 2:
            raise WeightsError(f"{self.source}: MaPLe's context and projection must be matrices")
        shape, layer = self.context.shape, tensors["proj.weight"].shape
        wanted = {"ctx": shape, "proj.weight": (layer[0], shape[1]), "proj.bias": (layer[0],)}
        for i in range(self.deeper):
            wanted[f"compound_prompts_text.{i}"] = shape
            for part in ("weight", "bias"):
                wanted[f"compound_prompt_projections.{i}.{part}"] = wanted[f"proj.{part}"]
        for name in {**wanted, **tensors}:
            found = tuple(tensors[name].shape) if name in tensors else "missing"
            if name not in wanted or found != tuple(wanted[name]):
                said = f"should be {tuple(wanted[name])}" if name in wanted else "is unexpected"
                raise WeightsError(f"{self.source} is not a MaPLe checkpoint: {name} {said}, found {found}")

    @property
    def deeper(self) -> int:
        """How many blocks after the first have their own prompts."""
        return sum(name.startswith("compound_prompts_text.") for name in self.tensors)


AnyPrompts: TypeAlias = CoOp | MaPLe


def load_prompts(path: str | os.PathLike[str]) -> AnyPrompts:
    """Load prompts from one of our files, a released checkpoint (``model.pth.tar-50``), a bare tensor of context
    vectors, or "hf-hub:ORG/NAME" (a repository with one such safetensors file).

    Only tensors are read; no code in the file is executed.
    """
    file = _fetched(os.fspath(path)) if os.fspath(path).startswith(hub.PREFIX) else Path(path)
    about, header = _about(file)
    found, _ = read_file(file)
    sum_ = header.pop(checksums.CHECKSUM, None)
    if sum_ is not None and sum_ != checksums.of_tensors(found, header):
        raise WeightsError(f"{file} is damaged: its checksum does not match. Download it again.")
    held = tensors_by_name({"ctx": found} if isinstance(found, Tensor) else found)
    if not held:
        raise WeightsError(f"{file} contains no prompts: neither tensors nor a checkpoint with a state_dict")
    if len(held) == 1 and not about:  # a bare tensor with any name
        held = {"ctx": next(iter(held.values()))}
    names = {key.removeprefix(_LEARNER): value for key, value in held.items()}
    maple = any(name.startswith("compound_prompt") for name in names) or "proj.weight" in names
    learned = ("ctx", "proj.", "compound_prompt")
    own = [name for name in names if (name.startswith(learned) if maple else name == "ctx")]
    tensors = {name: names[name].detach().float().contiguous() for name in own}
    if "ctx" not in tensors:
        lack = f"it has no tensor named ctx or {_LEARNER}ctx, as in CoOp and MaPLe"
        raise WeightsError(f"{file} contains no prompts: {lack}")
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise WeightsError(f"{file} contains values that are not finite, so it cannot be used")
        if value.numel() and value.abs().max() > LARGEST:
            raise WeightsError(
                f"{file}: {name} has values up to {float(value.abs().max()):g}, too large for learned prompts: it "
                "is damaged or contains something else"
            )
    if maple and "proj.weight" not in tensors:
        raise WeightsError(f"{file} is not a MaPLe checkpoint: {_LEARNER}proj.weight is missing")
    return (MaPLe if maple else CoOp)(tensors, about, str(file))


def _fetched(name: str) -> Path:
    """Fetch the prompts file of a repository on the hub."""
    files = sorted(hub.pull(name).glob("*.safetensors"))
    if len(files) != 1:
        raise WeightsError(
            f"{name} has {len(files)} safetensors files; expected a repository with exactly one"
        )
    return files[0]


def push_prompts(prompts: AnyPrompts, name: str, private: bool = False) -> str:
    """Upload prompts to ORG/NAME on the hub, creating it if needed, and return its address."""
    with tempfile.TemporaryDirectory() as folder:
        save_prompts(prompts, Path(folder) / "prompts.safetensors")
        return hub.push(folder, name, private, what=prompts.source or "the prompts")


def save_prompts(prompts: AnyPrompts, path: str | os.PathLike[str]) -> Path:
    """Save prompts to a safetensors file; their metadata is JSON in its header."""
    file = Path(path)
    if file.suffix != ".safetensors":
        raise ConfigError(f"{file}: prompts are saved as .safetensors; change the extension")
    header = {"mltta": json.dumps({"format": FORMAT, "kind": prompts.kind, **prompts.about})}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(file, to_bytes({k: v.contiguous() for k, v in prompts.tensors.items()}, header))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    return file


def _about(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Metadata and raw header of one of our files; empty for any other file."""
    from safetensors import SafetensorError, safe_open

    if file.suffix != ".safetensors" or not file.is_file():
        return {}, {}
    try:
        with safe_open(file, "pt") as opened:
            header: dict[str, str] = opened.metadata() or {}
        said = header.get("mltta")
        about = {} if said is None else json.loads(said)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{file} is not a readable prompts file: {explain(error)}") from error
    if not isinstance(about, dict) or about.get("format", FORMAT) not in (FORMAT, UNCHECKED):
        raise WeightsError(f"{file} is not a prompts file of a supported version")
    if about and checksums.CHECKSUM not in header:
        if about.get("format") == FORMAT:
            raise WeightsError(f"{file} is damaged: its checksum is missing. Download it again.")
        log.info("%s has no checksum (older format), so damage cannot be detected", file)
    for name, kind in (("model", str), ("text_tower", str), ("labels", list)):
        if name in about and not isinstance(about[name], kind):
            raise WeightsError(f"{file} is not a readable prompts file: invalid {name}")
    return {name: value for name, value in about.items() if name not in ("format", "kind")}, header
