"""From names to a method ready to score: backbone, labels and captions brought together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import CaptionBase, default_captions
from mltta.errors import ConfigError
from mltta.labels import LabelSet, with_known_words
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
    """A method ready to score encoded views against a label list.

    Args:
        name: one of ``list_methods()``, or a file of your own that registers one: "my_method.py" or
            "my_method.py:name".
        backbone: the frozen model; learned prompts that it reads start the context (``with_prompts``).
        labels: anything ``LabelSet.of`` takes.
        template: prompt with one {}, by default the method's own; the words in front of it start the context. Or
            several prompts, or the name of a set, "openai" or "simple": a label's feature is then their mean, for
            methods that tune no context.
        descriptions: sentences by label, or a JSON file of them, that join the mean; see ``load_descriptions``.
        captions: a caption base of this backbone; by default the one that ships with the package. Labels that
            no caption mentions get composed ones. Or captions labelled already, for these labels. False: none, for the
            methods that can do without.
        teacher: a second model for the methods that ask one (a backbone or its name), or "self".
        preset: "paper", or "released" for what the authors' code does differently.
        options: fields of the method's config.
    """
    cls = method_class(name)
    config = cls.Config.make(preset, **options)
    labels = LabelSet.of(labels)
    if template is None:
        template = DEFAULT_TEMPLATE if backbone.prompts is not None else cls.default_template
    template = list_templates(template)
    if descriptions is not None:
        descriptions = load_descriptions(descriptions, labels)
    if "context" in cls.requires and (len(template) > 1 or descriptions):
        raise ConfigError(
            f"{cls.name} tunes the words in front of a label, and an ensemble of templates has no single context: "
            f"give one template such as {DEFAULT_TEMPLATE!r} and no descriptions, or use a method that tunes none, "
            "such as clip"
        )
    words = None
    if "words" in cls.requires:
        labels = with_known_words(labels)
        words = label_words(backbone, labels, template)
    text = backbone.encode_labels(labels, template, descriptions=descriptions)
    labelled = None
    if cls.needs_captions(config):
        if captions is False:
            raise ConfigError(
                f"{cls.name} cannot do without captions: leave them to those that ship, or name a base"
            )
        labelled = _labelled(labels, backbone, captions)
    elif "words" in cls.requires and captions is not False:
        labelled = _labelled(labels, backbone, captions, apart=True)
    judge = None
    if "teacher" in cls.requires and teacher:
        judge = make_teacher(teacher, backbone, labels, template, descriptions)
    problem = Problem(text, backbone.logit_scale, labelled, judge, backbone, words, labels, template)
    return cls(problem, config)


def _labelled(
    labels: LabelSet, backbone: Backbone, captions: CaptionBase | LabelledCaptions | None, apart: bool = False
) -> LabelledCaptions:
    if isinstance(captions, LabelledCaptions):
        return captions
    return label_captions(labels, backbone, captions or default_captions(backbone), apart=apart)


def make_teacher(
    teacher: Backbone | str,
    student: Backbone,
    labels: LabelSet,
    template: TemplateSource = DEFAULT_TEMPLATE,
    descriptions: DescriptionSource | None = None,
) -> Teacher:
    """The labels in the teacher's eyes; its prompts stay as they start, with its own learned ones if it has some."""
    if teacher == "self" or teacher is student:
        return Teacher(student.encode_labels(labels, template, descriptions=descriptions).features)
    if isinstance(teacher, str):
        from mltta.model.load import load_backbone

        teacher = load_backbone(teacher, device=student.device)
    return Teacher(teacher.encode_labels(labels, template, descriptions=descriptions).features, teacher)
