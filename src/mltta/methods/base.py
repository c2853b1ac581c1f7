"""What a method is: encoded views in, one score per label out. And where methods are registered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec
from mltta.labels import LabelSet
from mltta.methods.config import Config
from mltta.methods.plugins import load_installed, method_in_file
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded, union
from mltta.model.label_encoder import LabelEncoder
from mltta.model.prompts import DEFAULT_TEMPLATE, TemplateSource

if TYPE_CHECKING:
    from mltta.methods.words import Words
    from mltta.model.backbone import Backbone

#: what a method's branches are: logits that compete over the labels, probabilities that do, or log-odds of each label
Emits = Literal["logits", "probabilities", "odds"]
#: how the scores of a method's branches become one
Merging = Literal["sum", "minmax"]


@dataclass(frozen=True)
class Teacher:
    """A second model that judges the same views; without a backbone it is the student itself."""

    text: Tensor  # (C, D') unit features of the labels' prompts
    backbone: Backbone | None = None


@dataclass(frozen=True)
class Problem:
    """What every method is given: the labels' text features, the temperature; captions and a teacher if it asks.

    The backbone is for the methods that put a prompt into its image tower.
    """

    text: LabelEncoder
    logit_scale: float
    captions: LabelledCaptions | None = None
    teacher: Teacher | None = None
    backbone: Backbone | None = None
    words: Words | None = None
    #: the labels themselves and their templates, for methods that put further texts beside them
    labels: LabelSet | None = None
    template: TemplateSource = DEFAULT_TEMPLATE


class Method(ABC):
    """Turns encoded views into label scores. Episodic methods are pure: no state between images."""

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type[Config]] = Config
    #: whether the method retrieves captions; where only some settings do, ``needs_captions`` says which
    uses_captions: ClassVar[bool] = False
    #: whether the method tunes the context in front of the labels
    tunes_context: ClassVar[bool] = False
    #: whether the method looks for synonyms too, and compares labels with a background of everyday words
    uses_words: ClassVar[bool] = False
    #: the prompt template, or set of them, that it is used with unless told otherwise
    default_template: ClassVar[str] = DEFAULT_TEMPLATE
    #: whether the method asks a second model
    uses_teacher: ClassVar[bool] = False
    #: whether the method asks for the pixels of views again; then Encoded must be able to render them
    looks_again: bool = False
    #: whether the method learns from the images before; then it is an OnlineMethod
    online: ClassVar[bool] = False
    #: whether it answers only when it has seen all images; then it is a TransductiveMethod
    transductive: ClassVar[bool] = False
    #: whether it is written from a description, for want of public code; tables mark it
    reconstruction: ClassVar[bool] = False

    def __init__(self, problem: Problem, config: Any):
        if self.tunes_context and not problem.text.tunable:
            raise ConfigError(
                f"{self.name} tunes the words in front of a label, and here there are none to tune: this text tower "
                "or template has no context. Use --method clip, or a template such as 'a photo of a {}.'."
            )
        if self.needs_captions(config) and problem.captions is None:
            raise ConfigError(f"{self.name} needs captions")
        if self.uses_teacher and problem.teacher is None:
            raise ConfigError(
                f"{self.name} needs a teacher: another model, such as ViT-L-14:openai, or 'self' for the model itself"
            )
        self.text = problem.text
        self.logit_scale = problem.logit_scale
        self.problem = problem
        self.config = config
        if self.tunes_context and problem.backbone is not None and problem.backbone.reads_context:
            self.looks_again = True

    @classmethod
    def needs_captions(cls, config: Any) -> bool:
        """Whether the method retrieves captions under these settings."""
        return cls.uses_captions

    @property
    def needs(self) -> tuple[AnySpec, ...]:
        """The views this method looks at, by default those that its settings name."""
        specs: tuple[AnySpec, ...] = self.config.specs(self.side)
        return specs

    @property
    def price(self) -> float:
        """Arithmetic of the image tower for one image, in passes of the model's own view; a teacher's is not in it."""
        return sum(spec.price(self.side) for spec in union(self.needs))

    @property
    def side(self) -> int:
        """Of the views that the model is made for, in pixels."""
        backbone = self.problem.backbone
        return 224 if backbone is None else backbone.preprocess.size

    @abstractmethod
    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        """Logits (B, C) by branch: of each of the method's prompts, or of its text and its memory."""

    @property
    def branch_names(self) -> list[str]:
        """Names of the branches, in their order."""
        return ["view"]

    @property
    def emits(self) -> Emits:
        """What the branches are."""
        return "logits"

    @property
    def merging(self) -> Merging:
        """How branches become scores: added, or scaled by their extremes over a whole dataset and averaged."""
        return "sum"

    def merge(self, branches: Mapping[str, Tensor]) -> Tensor:
        """Final scores (B, C) from the branches of any number of images."""
        return merge_branches(torch.stack(list(branches.values()), dim=1), self.merging)

    def probabilities(self, branches: Mapping[str, Tensor]) -> Tensor:
        """What the branches make of each image on its own: (B, C), adding up to one."""
        return branch_probabilities(torch.stack(list(branches.values()), dim=1), self.emits)

    def __call__(self, encoded: Encoded) -> Tensor:
        """Scores (B, C), float32, higher is more present."""
        return self.merge(self.branches(encoded))

    def where(self, encoded: Encoded) -> Tensor | None:
        """How much each part of an image speaks for each label, (B, C, H, W), if the method can tell."""
        return None

    def views(self, encoded: Encoded) -> Views:
        """The needed views, one spec after another; view 0 is the clean one."""
        backbone = self.problem.backbone
        return Views.of(encoded, self.needs) if backbone is None else backbone.views(encoded, self.needs)

    def logits(self, views: Tensor, text: Tensor) -> Tensor:
        """Logits (B, R, C) of rows (B, R, D) against label features (C, D) or (B, C, D)."""
        return self.logit_scale * views @ text.transpose(-1, -2)


def merge_branches(branches: Tensor, how: str = "sum") -> Tensor:
    """Scores (N, C) from branches (N, branches, C): added, or each scaled by its extremes over all N and averaged."""
    if how == "sum":
        return branches.sum(dim=1)
    low, high = branches.amin(dim=(0, 2), keepdim=True), branches.amax(dim=(0, 2), keepdim=True)
    return ((branches - low) / (high - low).clamp(min=1e-12)).mean(dim=1)


def branch_probabilities(branches: Tensor, emits: str = "logits") -> Tensor:
    """Softmax (N, C) over the labels of the mean of the branches (N, branches, C); of log-odds each label's own."""
    mean = branches.mean(dim=1)
    if emits == "odds":
        return mean.sigmoid()
    return (
        mean.softmax(dim=-1) if emits == "logits" else mean / mean.sum(dim=-1, keepdim=True).clamp(min=1e-12)
    )


def z_scores(scores: Tensor) -> Tensor:
    """Scores (N, C) less their image's mean, over its standard deviation (SPARC's first step).

    One label alone has nothing to be compared with and keeps its score.
    """
    if scores.shape[-1] == 1:
        return scores
    spread = scores.std(dim=-1, keepdim=True).clamp(min=1e-12)
    return (scores - scores.mean(dim=-1, keepdim=True)) / spread


#: all that an online method remembers: tensors by name, so that it can be saved
State = dict[str, Tensor]


class OnlineMethod(Method):
    """Learns from the stream: an explicit fold over the images, in order, that keeps nothing outside its state."""

    online = True

    @abstractmethod
    def start(self) -> State:
        """The state before the first image."""

    @abstractmethod
    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        """Branches (1, C) of the next image and the state after it; the state given may be written into."""

    def fold(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        """Branches (B, C) of the next images, in their order, and the state after them."""
        found = []
        for image in range(len(encoded)):
            branches, state = self.step(state, encoded[image])
            found.append(branches)
        return {name: torch.cat([one[name] for one in found]) for name in found[0]}, state

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        """The images of a batch as a whole stream, from the start."""
        return self.fold(self.start(), encoded)[0]


class TransductiveMethod(Method):
    """Answers at the end: what it keeps of each image is a row, and its answers are made of the rows of all.

    It is an online method whose state is those rows and that says nothing on the way; in any order the same.
    """

    transductive = True

    @abstractmethod
    def keep(self, encoded: Encoded) -> Tensor:
        """Rows (B, K) of some images, each of its own image alone."""

    @abstractmethod
    def finish(self, kept: Tensor) -> dict[str, Tensor]:
        """Branches (N, C) of all images, from their rows (N, K)."""

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        """The images of a batch as a whole dataset."""
        return self.finish(self.keep(encoded))


_REGISTRY: dict[str, type[Method]] = {}
#: names of what a tagger or `create_method` is given beside a method's own settings
TAKEN = frozenset(
    [
        "name",
        "model",
        "backbone",
        "labels",
        "method",
        "captions",
        "template",
        "descriptions",
        "teacher",
        "preset",
        "presence",
        "seed",
        "execution",
        "where",
        "explain",
        "allow_urls",
    ]
)
M = TypeVar("M", bound=type[Method])


def register(name: str, summary: str) -> Callable[[M], M]:
    """Class decorator: make a method known by name."""

    def add(cls: M) -> M:
        if name in _REGISTRY:
            raise ConfigError(f"a method called {name!r} is registered already")
        taken = sorted(TAKEN.intersection(field.name for field in fields(cls.Config)))
        if taken:
            raise ConfigError(
                f"{name}: a setting cannot be called {taken[0]!r}: taggers take something else by that name"
            )
        cls.name, cls.summary = name, summary
        _REGISTRY[name] = cls
        return cls

    return add


def method_class(name: str) -> type[Method]:
    """The class registered under a name, or by a user's own file: ``my_method.py``, ``my_method.py:name``."""
    if name not in _REGISTRY:
        found = method_in_file(name, _REGISTRY)
        if found is not None:
            return found
        load_installed(_REGISTRY)
    if name not in _REGISTRY:
        raise ConfigError(
            f"no method {name!r}; there are {', '.join(list_methods())}, or give a file, my_method.py"
        )
    return _REGISTRY[name]


def list_methods() -> list[str]:
    """Names of all registered methods, those of installed packages too."""
    load_installed(_REGISTRY)
    return sorted(_REGISTRY)
