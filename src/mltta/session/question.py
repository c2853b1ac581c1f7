"""The question asked of every photo: labels with synonyms, prompts and captions, resolved once for every caller."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mltta import __version__
from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import CaptionBase, chosen_captions, default_captions
from mltta.labels import LabelSet, with_known_words
from mltta.labels.branches import Branches
from mltta.labels.doubts import doubts
from mltta.labels.languages import in_english
from mltta.methods.base import Method
from mltta.methods.create import create_method, open_teacher
from mltta.methods.registry import method_class, source_digest
from mltta.model.prompts import DescriptionSource, TemplateSource, list_templates, load_descriptions

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")


class Question:
    """A label list for a backbone. Used by the tagger, the evaluator, the server and the cluster."""

    def __init__(
        self,
        backbone: Backbone,
        labels: Any,
        *,
        template: TemplateSource | None = None,
        descriptions: DescriptionSource | None = None,
        captions: CaptionBase | str | Path | Literal[False] | None = None,
        teacher: Backbone | str | None = None,
    ):
        """Args:
        labels: anything `LabelSet.of` takes; labels typed by hand get their known synonyms.
        template: a prompt template, several, or the name of a set (default: each method's own).
        descriptions: sentences by label, or a JSON file of them.
        captions: a caption base, its path, or a file of captions; False or "none" for no captions
            (default: the built-in base).
        teacher: a second model for methods that need one, or "self".
        """
        self.backbone = backbone
        given = LabelSet.of(labels)
        #: what a user should know about the labels
        self.notes: list[str] = []
        if backbone.is_embedded and not given.official:
            given, said = in_english(given)
            self.notes += [said] if said else []
            if not all(text.isascii() for text in given.texts):
                self.notes.append(
                    "the embedded model reads only English; labels in other languages get random scores"
                )
        self.notes += doubts(given)
        self.labels = given if given.official else with_known_words(given)
        self.template = None if template is None else list(list_templates(template))
        self.descriptions: Mapping[str, Sequence[str]] | None = (
            None if descriptions is None else load_descriptions(descriptions, self.labels)
        )
        self._captions = None if captions is None else chosen_captions(captions, backbone)
        self._teacher = teacher
        for note in self.notes:
            log.warning("%s", note)

    @cached_property
    def captions(self) -> CaptionBase | Literal[False]:
        """The caption base, opened on first use; False if there is none."""
        return default_captions(self.backbone) if self._captions is None else self._captions

    @cached_property
    def branches(self) -> Branches | None:
        """The tree of the default list, whose labels are shown without near-duplicates; None for other lists."""
        return Branches(self.labels.names) if self.labels.source == "everyday" else None

    @cached_property
    def teacher(self) -> Backbone | None:
        """The second model, loaded once for all methods."""
        return open_teacher(self._teacher, self.backbone) if self._teacher else None

    @cached_property
    def heard(self) -> LabelledCaptions:
        """The captions that vote for labels, for methods without calibrated scores."""
        base = self.captions or default_captions(self.backbone)
        return label_captions(self.labels, self.backbone, base)

    def votes(self, views: Any, captions_per_view: int) -> Any:
        """Share (B, C) of the captions nearest to the views (B, N, D) that name each label, averaged over the views."""
        each = self.heard.votes(views, captions_per_view, self.backbone.logit_scale)
        return each.mean(1)

    def method(self, name: str, preset: str = "paper", **options: Any) -> Method:
        """Create a method for this label list."""
        asked = [name, *filter(None, [options.get("over")])]
        return create_method(
            name,
            self.backbone,
            self.labels,
            template=self.template,
            descriptions=self.descriptions,
            captions=self._captions,
            teacher=self.teacher if any("teacher" in method_class(one).requires for one in asked) else None,
            preset=preset,
            **options,
        )

    def about(self, method: Method) -> dict[str, Any]:
        """Everything that a method's scores depend on, except the image, as plain data."""
        backbone, teacher = self.backbone, method.problem.teacher
        judge = None if teacher is None else teacher.backbone
        return {
            "method": method.name,
            "source": source_digest(type(method)),
            "config": asdict(method.config),
            "template": list(list_templates(method.problem.template)),
            "descriptions": self.descriptions,
            "captions": self.captions.digest if self.captions else "none",
            "teacher": None if teacher is None else "self" if judge is None else judge.name,
            "teacher_weights": None if judge is None else [judge.image_fingerprint, judge.text_fingerprint],
            "model": backbone.name,
            "weights": [backbone.image_fingerprint, backbone.text_fingerprint],
            "prompts": backbone.prompts and f"{backbone.prompts.title} {backbone.prompts.digest}",
            "arithmetic": backbone.arithmetic,
            "logit_scale": backbone.logit_scale,
            "preprocess": asdict(backbone.preprocess),
            "labels": list(self.labels.names),
            "prompted_as": list(self.labels.texts),
            "synonyms": [" | ".join(words) for words in self.labels.synonyms],
            "version": __version__,
        }
