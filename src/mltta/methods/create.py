"""From names to a method ready to score: backbone, labels and captions brought together."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mltta.backbone import Backbone, load_backbone
from mltta.captions.base import CaptionBase, LabelledCaptions, default_captions, label_captions
from mltta.labels import LabelSet
from mltta.methods.base import Method, Problem, Teacher, method_class
from mltta.prompts import DEFAULT_TEMPLATE


def create_method(
    name: str,
    backbone: Backbone,
    labels: Any,
    *,
    template: str = DEFAULT_TEMPLATE,
    context: Tensor | None = None,
    captions: CaptionBase | LabelledCaptions | None = None,
    teacher: Backbone | str | None = None,
    preset: str = "paper",
    **options: Any,
) -> Method:
    """A method ready to score encoded views against a label list.

    Args:
        name: "clip", "tpt", "ml-tta"; see ``list_methods()``.
        backbone: the frozen model.
        labels: anything ``LabelSet.of`` takes.
        template: prompt with one {}; the words in front of it start the context.
        context: (M, W) vectors that replace those words.
        captions: a caption base of this backbone; by default the one that ships with the package. Labels that
            no caption mentions get composed ones. Or captions labelled already, for these labels.
        teacher: a second model for the methods that ask one (a backbone or its name), or "self".
        preset: "paper", or "released" for what the authors' code does differently.
        options: fields of the method's config.
    """
    cls = method_class(name)
    config = cls.Config.make(preset, **options)
    labels = LabelSet.of(labels)
    text = backbone.encode_labels(labels, template, context)
    labelled = None
    if cls.uses_captions:
        given = captions or default_captions(backbone)
        labelled = given if isinstance(given, LabelledCaptions) else label_captions(labels, backbone, given)
    judge = make_teacher(teacher, backbone, labels, template) if cls.uses_teacher and teacher else None
    return cls(Problem(text, backbone.logit_scale, labelled, judge), config)


def make_teacher(
    teacher: Backbone | str, student: Backbone, labels: LabelSet, template: str = DEFAULT_TEMPLATE
) -> Teacher:
    """The labels in the teacher's eyes; its prompts keep their initial words."""
    if teacher == "self" or teacher is student:
        return Teacher(student.encode_labels(labels, template).features)
    if isinstance(teacher, str):
        teacher = load_backbone(teacher, device=student.device)
    return Teacher(teacher.encode_labels(labels, template).features, teacher)
