"""Create a method from names: combines a backbone, labels, their words, and captions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import CaptionBase, default_captions
from mltta.errors import ConfigError
from mltta.labels import LabelSet
from mltta.methods.base import Method, Problem, Teacher
from mltta.methods.registry import method_class
from mltta.methods.words import label_words
from mltta.model.prompts import (
    DEFAULT_TEMPLATE,
    DescriptionSource,
    TemplateSource,
    list_templates,
    load_descriptions,
)

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone


def create_method(
    name: str,
    backbone: Backbone,
    labels: Any,
    *,
    template: TemplateSource | None = None,
    descriptions: DescriptionSource | None = None,
    captions: CaptionBase | LabelledCaptions | Literal[False] | None = None,
    teacher: Backbone | str | None = None,
    preset: str = "paper",
    **options: Any,
) -> Method:
    """Create a method that scores encoded views for a label list.

    Args:
        name: one of ``list_methods()``, or a file of your own that registers a method: "my_method.py" or
            "my_method.py:name".
        backbone: the frozen model; its learned prompts, if any, initialize the context (``with_prompts``).
        labels: anything ``LabelSet.of`` takes.
        template: a prompt with one {} (default: the method's own); the words in front of {} initialize the context.
            Or several prompts, or the name of a set, "openai" or "simple": a label's feature is then their mean.
            Only for methods without a tuned context.
        descriptions: sentences by label, or a JSON file of them, included in the mean; see ``load_descriptions``.
        captions: a caption base of this backbone (default: the one included in the package). Captions for labels that
            it does not mention are generated from templates. Or captions already labelled for this list. False disables
            captions, for methods that do not need them.
        teacher: a second model (a backbone or its name) for methods that need one, or "self".
        preset: "paper", or "released" to match the authors' code.
        options: fields of the method's config.
    """
    cls = method_class(name)
    if not (cls.array_api or backbone.any_method):
        raise ConfigError(f"{cls.name} does not run on ONNX Runtime: --engine torch")
    config = cls.Config.make(preset, **options)
    inner = None
    if over := getattr(config, "over", ""):
        shared: dict[str, Any] = {"captions": captions, "template": template, "descriptions": descriptions}
        inner = create_method(over, backbone, labels, teacher=teacher, **shared)
    labels = LabelSet.of(labels)
    if template is None:
        template = DEFAULT_TEMPLATE if backbone.prompts is not None else cls.default_template
    template = list_templates(template)
    if descriptions is not None:
        descriptions = load_descriptions(descriptions, labels)
    if "context" in cls.requires and (len(template) > 1 or descriptions):
        raise ConfigError(
            f"{cls.name} tunes the words in front of a label, so it needs a single template without descriptions, "
            f"such as {DEFAULT_TEMPLATE!r}. For several templates use a method that does not tune a context, "
            "such as clip"
        )
    needed, labelled = cls.needs_captions(config), None
    if needed and captions is False:
        raise ConfigError(f"{cls.name} needs captions: use the included captions, or pass a caption base")
    if isinstance(captions, LabelledCaptions):
        labelled = captions
    elif needed:
        labelled = label_captions(labels, backbone, captions or default_captions(backbone))
    words = None
    if "words" in cls.requires:
        base = None if captions is False or isinstance(captions, LabelledCaptions) else captions
        if captions is None:
            base = default_captions(backbone)
        words = label_words(backbone, labels, template, base)
    text = backbone.encode_labels(labels, template, descriptions=descriptions)
    judge = None
    if "teacher" in cls.requires and teacher:
        own = open_teacher(
            teacher, backbone
        )  # the teacher's prompts are not tuned; learned ones are used if present
        seen = own.encode_labels(labels, template, descriptions=descriptions).features
        judge = Teacher(seen, None if own is backbone else own)
    problem = Problem(text, backbone.logit_scale, labelled, judge, backbone, words, labels, template, inner)
    return cls(problem, config)


def open_teacher(teacher: Backbone | str, student: Backbone) -> Backbone:
    """Load a second model by name if needed; "self" is the student."""
    if not isinstance(teacher, str):
        return teacher
    if teacher == "self":
        return student
    from mltta.model.load import load_backbone

    return load_backbone(teacher, device=student.device)
