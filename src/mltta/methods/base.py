"""What a method is: encoded views in, one score per label out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
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
    from mltta.model.backbone import Backbone
    from mltta.model.context_views import Views
    from mltta.model.label_encoder import LabelEncoder

#: what a method's branches are: logits that compete over the labels, probabilities that do, or log-odds of each label
Emits = Literal["logits", "probabilities", "odds"]
#: how the scores of a method's branches become one
Merging = Literal["sum", "minmax"]
#: what a method may require: captions; a context to tune in front of the labels; synonyms and everyday words beside the
#: labels; a second model; the pixels of views once more
Required = Literal["captions", "context", "words", "teacher", "pixels"]


@dataclass(frozen=True)
class Teacher:
    """A second model that judges the same views; without a backbone it is the student itself."""

    text: Array  # (C, D') unit features of the labels' prompts
    backbone: Backbone | None = None


@dataclass(frozen=True)
class Words:
    """Features of the labels' words and of the background, for one label list."""

    features: Array  # (J, D) unit
    owner: Array  # (J,) the label that each word stands for
    share: Array  # (J,) what it weighs: half for the label itself, half for its synonyms together
    background: Array  # (V, D) unit, of words that mean something else than every label


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
    #: the method whose scores another one goes on from (``over``)
    inner: Method | None = None


class Method(ABC):
    """Turns encoded views into label scores. Episodic methods are pure: no state between images."""

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type[Config]] = Config
    #: what the method cannot do without; where only some settings need captions, ``needs_captions`` says which
    requires: frozenset[Required] = frozenset()
    #: the prompt template, or set of them, that it is used with unless told otherwise
    default_template: ClassVar[str] = DEFAULT_TEMPLATE
    #: whether the method learns from the images before; then it is an OnlineMethod
    online: ClassVar[bool] = False
    #: whether it answers only when it has seen all images; then it is a TransductiveMethod
    transductive: ClassVar[bool] = False
    #: whether it is written from a description, for want of public code; tables mark it
    reconstruction: ClassVar[bool] = False

    def __init__(self, problem: Problem, config: Any):
        if "context" in self.requires and not problem.text.tunable:
            raise ConfigError(
                f"{self.name} tunes the words in front of a label, and here there are none to tune: this text tower "
                "or template has no context. Use --method clip, or a template such as 'a photo of a {}.'."
            )
        if self.needs_captions(config) and problem.captions is None:
            raise ConfigError(f"{self.name} needs captions")
        if "teacher" in self.requires and problem.teacher is None:
            raise ConfigError(
                f"{self.name} needs a teacher: another model, such as ViT-L-14:openai, or 'self' for the model itself"
            )
        self.text, self.logit_scale = problem.text, problem.logit_scale
        self.problem, self.config = problem, config
        needed = problem.captions if self.needs_captions(config) else None
        #: those that name a label, if the method cannot do without
        self.captions = None if needed is None else needed.named()
        if "context" in self.requires and problem.backbone is not None and problem.backbone.reads_context:
            self.requires = self.requires | {"pixels"}

    @classmethod
    def needs_captions(cls, config: Any) -> bool:
        """Whether the method retrieves captions under these settings; to bind labels, every method does."""
        return "captions" in cls.requires or getattr(config, "bind", False)

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
    def branches(self, encoded: Encoded) -> dict[str, Array]:
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

    def merge(self, branches: Mapping[str, Array]) -> Array:
        """Final scores (B, C) from the branches of any number of images."""
        return merge_branches(_stacked(branches), self.merging)

    def probabilities(self, branches: Mapping[str, Array]) -> Array:
        """What the branches make of each image on its own: (B, C), adding up to one."""
        return branch_probabilities(_stacked(branches), self.emits)

    def __call__(self, encoded: Encoded) -> Array:
        """Scores (B, C), float32, higher is more present."""
        return self.merge(self.branches(encoded))

    def where(self, encoded: Encoded) -> Array | None:
        """How much each part of an image speaks for each label, (B, C, H, W), if the method can tell."""
        return None

    def views(self, encoded: Encoded) -> Views:
        """The needed views, one spec after another; view 0 is the clean one."""
        from mltta.model.context_views import Views

        backbone = self.problem.backbone
        return Views.of(encoded, self.needs) if backbone is None else backbone.views(encoded, self.needs)

    def logits(self, views: Array, text: Array) -> Array:
        """Logits (B, R, C) of rows (B, R, D) against label features (C, D) or (B, C, D)."""
        return self.logit_scale * views @ array_namespace(text).matrix_transpose(text)


def _stacked(branches: Mapping[str, Array]) -> Array:
    parts = list(branches.values())
    return array_namespace(*parts).stack(parts, axis=1)


def merge_branches(branches: Array, how: str = "sum") -> Array:
    """Scores (N, C) from branches (N, branches, C): added, or each scaled by its extremes over all N and averaged."""
    xp = array_namespace(branches)
    if how == "sum":
        return xp.sum(branches, axis=1)
    low, high = (end(branches, axis=(0, 2), keepdims=True) for end in (xp.min, xp.max))
    return xp.mean((branches - low) / clamp(high - low, 1e-12), axis=1)


def branch_probabilities(branches: Array, emits: str = "logits") -> Array:
    """Softmax (N, C) over the labels of the mean of the branches (N, branches, C); of log-odds each label's own."""
    xp = array_namespace(branches)
    mean = xp.mean(branches, axis=1)
    if emits == "odds":
        return sigmoid(mean)
    return softmax(mean) if emits == "logits" else mean / clamp(xp.sum(mean, axis=-1, keepdims=True), 1e-12)


def z_scores(scores: Array) -> Array:
    """Scores (N, C) less their image's mean, over its standard deviation (SPARC's first step).

    One label alone has nothing to be compared with and keeps its score.
    """
    if scores.shape[-1] == 1:
        return scores
    xp = array_namespace(scores)
    spread = clamp(xp.std(scores, axis=-1, correction=1, keepdims=True), 1e-12)
    return (scores - xp.mean(scores, axis=-1, keepdims=True)) / spread


#: all that an online method remembers: arrays by name, so that it can be saved
State = dict[str, Array]


class OnlineMethod(Method):
    """Learns from the stream: an explicit fold over the images, in order, that keeps nothing outside its state."""

    online = True

    @abstractmethod
    def start(self) -> State:
        """The state before the first image."""

    @abstractmethod
    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Array], State]:
        """Branches (1, C) of the next image and the state after it; the state given may be written into."""

    def fold(self, state: State, encoded: Encoded) -> tuple[dict[str, Array], State]:
        """Branches (B, C) of the next images, in their order, and the state after them."""
        found = []
        for image in range(len(encoded)):
            branches, state = self.step(state, encoded[image])
            found.append(branches)
        xp = array_namespace(*found[0].values())
        return {name: xp.concat([one[name] for one in found]) for name in found[0]}, state

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        """The images of a batch as a whole stream, from the start."""
        return self.fold(self.start(), encoded)[0]


class TransductiveMethod(Method):
    """Answers at the end: what it keeps of each image is a row, and its answers are made of the rows of all.

    It is an online method whose state is those rows and that says nothing on the way; in any order the same.
    """

    transductive = True

    @abstractmethod
    def keep(self, encoded: Encoded) -> Array:
        """Rows (B, K) of some images, each of its own image alone."""

    @abstractmethod
    def finish(self, kept: Array) -> dict[str, Array]:
        """Branches (N, C) of all images, from their rows (N, K)."""

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        """The images of a batch as a whole dataset."""
        return self.finish(self.keep(encoded))
