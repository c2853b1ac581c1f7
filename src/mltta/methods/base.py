"""The interface of a method: encoded views in, one score per label out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from array_api_compat import array_namespace

from mltta.arrays import Array, clamp, sigmoid, softmax
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec
from mltta.labels import LabelSet
from mltta.methods.config import Config
from mltta.methods.registry import register as register
from mltta.model.encoded import Encoded, union
from mltta.model.prompts import DEFAULT_TEMPLATE, TemplateSource

if TYPE_CHECKING:
    from mltta.methods.words import Words
    from mltta.model.backbone import Backbone
    from mltta.model.context_views import Views
    from mltta.model.label_encoder import LabelEncoder

#: type of a method's branches: logits (softmax over labels), probabilities that add up to one, or log-odds per label
Emits = Literal["logits", "probabilities", "odds"]
#: how branches are combined into one score
Merging = Literal["sum", "minmax"]
#: what a method may require: captions; a tunable context in front of the labels; synonyms and everyday words besides
#: the labels; a teacher model; or rendering views again
Required = Literal["captions", "context", "words", "teacher", "pixels"]


@dataclass(frozen=True)
class Teacher:
    """A second model that judges the same views; without a backbone it is the student itself."""

    text: Array  # (C, D') unit features of the labels' prompts
    backbone: Backbone | None = None


@dataclass(frozen=True)
class Problem:
    """The input of every method: the labels' text features and the temperature; captions and a teacher if required.

    The backbone is for methods that insert a prompt into its image tower.
    """

    text: LabelEncoder
    logit_scale: float
    captions: LabelledCaptions | None = None
    teacher: Teacher | None = None
    backbone: Backbone | None = None
    words: Words | None = None
    #: the labels and their templates, for methods that encode further texts
    labels: LabelSet | None = None
    template: TemplateSource = DEFAULT_TEMPLATE
    #: the method whose scores another method starts from (``over``)
    inner: Method | None = None


class Method(ABC):
    """Turns encoded views into label scores. Episodic methods are pure: they keep no state between images."""

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type[Config]] = Config
    #: what the method requires; if only some settings need captions, see ``needs_captions``
    requires: frozenset[Required] = frozenset()
    #: default prompt template, or name of a set of templates
    default_template: ClassVar[str] = DEFAULT_TEMPLATE
    #: whether it is written against the array API, and so runs without PyTorch
    array_api: ClassVar[bool] = False
    #: whether the method learns from earlier images (an OnlineMethod)
    online: ClassVar[bool] = False
    #: whether it answers only after all images (a TransductiveMethod)
    transductive: ClassVar[bool] = False
    #: whether it was implemented from a description because no code is public; marked in tables
    reconstruction: bool = False

    def __init__(self, problem: Problem, config: Any):
        if "context" in self.requires and not problem.text.tunable:
            raise ConfigError(
                f"{self.name} tunes the words in front of a label, but this tower or template has no context. "
                "Use --method clip, or a template such as 'a photo of a {}.'."
            )
        if self.needs_captions(config) and problem.captions is None:
            raise ConfigError(f"{self.name} needs captions")
        if "teacher" in self.requires and problem.teacher is None:
            raise ConfigError(
                f"{self.name} needs a teacher: another model such as ViT-L-14:openai, or 'self' for the model itself"
            )
        self.text, self.logit_scale = problem.text, problem.logit_scale
        self.problem, self.config = problem, config
        needed = problem.captions if self.needs_captions(config) else None
        #: only captions that name a label, if the method requires captions
        self.captions = None if needed is None else needed.named()
        if "context" in self.requires and problem.backbone is not None and problem.backbone.reads_context:
            self.requires = self.requires | {"pixels"}

    @classmethod
    def needs_captions(cls, config: Any) -> bool:
        """Whether the method retrieves captions with these settings; binding labels always does."""
        return "captions" in cls.requires or getattr(config, "bind", False)

    @property
    def needs(self) -> tuple[AnySpec, ...]:
        """The views that this method needs (default: those of its settings)."""
        specs: tuple[AnySpec, ...] = self.config.specs(self.side)
        return specs

    @property
    def price(self) -> float:
        """Cost of the image tower per image, in passes at native resolution; a teacher is not included."""
        return sum(spec.price(self.side) for spec in union(self.needs))

    @property
    def side(self) -> int:
        """Side of the model's native input, in pixels."""
        backbone = self.problem.backbone
        return 224 if backbone is None else backbone.preprocess.size

    @abstractmethod
    def branches(self, encoded: Encoded) -> dict[str, Array]:
        """Logits (B, C) by branch, such as the method's prompts, or its text and its memory."""

    @property
    def branch_names(self) -> list[str]:
        """Names of the branches, in order."""
        return ["view"]

    @property
    def emits(self) -> Emits:
        """Type of the branches."""
        return "logits"

    @property
    def merging(self) -> Merging:
        """How branches become scores: summed, or min-max scaled over the whole dataset and averaged."""
        return "sum"

    def merge(self, branches: Mapping[str, Array]) -> Array:
        """Final scores (B, C) from the branches of any number of images."""
        return merge_branches(_stacked(branches), self.merging)

    def probabilities(self, branches: Mapping[str, Array]) -> Array:
        """Probabilities (B, C) of each image on its own, from the branches; each row adds up to one."""
        return branch_probabilities(_stacked(branches), self.emits)

    def __call__(self, encoded: Encoded) -> Array:
        """Scores (B, C), float32; higher means more likely present."""
        return self.merge(self.branches(encoded))

    @property
    def spoken_of(self) -> tuple[LabelledCaptions | None, Sequence[int]]:
        """The captions that a calibrated method listens to, and which of their labels each label of the list is."""
        return self.problem.captions, range(len(self.text))

    def where(self, encoded: Encoded) -> Array | None:
        """Heat maps (B, C, H, W), one per label, if the method supports them."""
        return None

    def views(self, encoded: Encoded) -> Views:
        """The required views, spec by spec; view 0 is the clean one."""
        from mltta.model.context_views import Views

        backbone = self.problem.backbone
        return Views.of(encoded, self.needs) if backbone is None else backbone.views(encoded, self.needs)

    def logits(self, views: Array, text: Array) -> Array:
        """Logits (B, R, C) of rows (B, R, D) for label features (C, D) or (B, C, D)."""
        return self.logit_scale * views @ array_namespace(text).matrix_transpose(text)


def _stacked(branches: Mapping[str, Array]) -> Array:
    parts = list(branches.values())
    return array_namespace(*parts).stack(parts, axis=1)


def merge_branches(branches: Array, how: str = "sum") -> Array:
    """Scores (N, C) from branches (N, branches, C): summed, or min-max scaled over all N and averaged."""
    xp = array_namespace(branches)
    if how == "sum":
        return xp.sum(branches, axis=1)
    low, high = (end(branches, axis=(0, 2), keepdims=True) for end in (xp.min, xp.max))
    return xp.mean((branches - low) / clamp(high - low, 1e-12), axis=1)


def branch_probabilities(branches: Array, emits: str = "logits") -> Array:
    """Softmax (N, C) over labels of the mean branch (N, branches, C); for log-odds, the sigmoid of each label."""
    xp = array_namespace(branches)
    mean = xp.mean(branches, axis=1)
    if emits == "odds":
        return sigmoid(mean)
    return softmax(mean) if emits == "logits" else mean / clamp(xp.sum(mean, axis=-1, keepdims=True), 1e-12)


def z_scores(scores: Array) -> Array:
    """Scores (N, C) standardized per image: minus its mean, divided by its standard deviation (SPARC's first step).

    A single label has no distribution and keeps its score.
    """
    if scores.shape[-1] == 1:
        return scores
    xp = array_namespace(scores)
    spread = clamp(xp.std(scores, axis=-1, correction=1, keepdims=True), 1e-12)
    return (scores - xp.mean(scores, axis=-1, keepdims=True)) / spread


#: state of an online method: arrays by name, so that it can be saved
State = dict[str, Array]


class OnlineMethod(Method):
    """Learns from the stream: an explicit fold over the images, in order, with no other state."""

    online = True

    @abstractmethod
    def start(self) -> State:
        """The state before the first image."""

    @abstractmethod
    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Array], State]:
        """Branches (1, C) of the next image, and the new state; may modify the given state in place."""

    def fold(self, state: State, encoded: Encoded) -> tuple[dict[str, Array], State]:
        """Branches (B, C) of the next images, in order, and the new state."""
        found = []
        for image in range(len(encoded)):
            branches, state = self.step(state, encoded[image])
            found.append(branches)
        xp = array_namespace(*found[0].values())
        return {name: xp.concat([one[name] for one in found]) for name in found[0]}, state

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        """Score a batch as a complete stream, from the start state."""
        return self.fold(self.start(), encoded)[0]


class TransductiveMethod(Method):
    """Answers at the end: keeps one row per image, and computes all results from all rows.

    It is an online method whose state is those rows, and it returns nothing until the end. Image order has no effect.
    """

    transductive = True

    @abstractmethod
    def keep(self, encoded: Encoded) -> Array:
        """Rows (B, K) of some images; each depends only on its own image."""

    @abstractmethod
    def finish(self, kept: Array) -> dict[str, Array]:
        """Branches (N, C) of all images, from their rows (N, K)."""

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        """Score a batch as a complete dataset."""
        return self.finish(self.keep(encoded))
