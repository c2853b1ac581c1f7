"""A tagger that is called as ``transformers.pipeline("zero-shot-image-classification")`` is, and answers alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mltta.errors import ConfigError, ImageError
from mltta.methods.registry import method_class
from mltta.tagger.tagger import Tagger, Tags

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: label lists whose tagger is kept ready
KEPT = 8


class ZeroShotPipeline:
    """Scores for candidate labels that are named with each call; they need not add up to one.

    >>> pipe = ZeroShotPipeline()                                              # doctest: +SKIP
    >>> pipe("photo.jpg", candidate_labels=["dog", "sofa"])                    # doctest: +SKIP
    [{'score': 0.71, 'label': 'dog'}, {'score': 0.25, 'label': 'sofa'}]

    The scores of transformers' pipeline add up to one, so two labels that are both there get half each. Here every
    score says how sure the model is that its label is there; a tagger shows those of at least 0.3. Labels that mean
    nearly the same still compete: give them as one, "dog | puppy".
    """

    task = "zero-shot-image-classification"

    def __init__(self, model: str | Backbone | None = "mini", method: str = "auto", **options: Any):
        """Args:
        model: a name, or a backbone from ``load_backbone``.
        method: how to look, or to adapt; one that learns from the images before it sees those of one call.
        options: whatever ``Tagger`` takes, but labels and template.
        """
        for name, where in (("labels", "candidate_labels"), ("template", "hypothesis_template")):
            if name in options:
                raise ConfigError(f"{name} is said with each call, as {where}=…")
        if model is None or isinstance(model, str):
            from mltta.model.load import load_backbone

            array_api, engine = method_class(method).array_api, options.pop("engine", "auto")
            model = load_backbone(model, engine=engine, any_method=not array_api)
        self.backbone = model
        self._method, self._options = method, options
        self._taggers: dict[tuple[tuple[str, ...], str | None], Tagger] = {}

    def __call__(
        self, image: Any, candidate_labels: Sequence[str] | str, hypothesis_template: str | None = None
    ) -> list[Any]:
        """Score one image, or a list of them.

        Args:
            image: a path, PIL image, array or bytes; an address, if ``allow_urls=True`` was given; or a list of these.
            candidate_labels: a list, or one string with commas.
            hypothesis_template: a sentence with {} for the label, by default the method's own.

        Returns:
            ``[{"score": …, "label": …}, …]``, best first; for a list of images a list of these.
        """
        names = candidate_labels.split(",") if isinstance(candidate_labels, str) else candidate_labels
        labels = tuple(name.strip() for name in names)
        if not any(labels):
            raise ConfigError("candidate_labels is empty: name at least one label")
        tagger = self._tagger(labels, hypothesis_template)
        if isinstance(image, (list, tuple)):
            return [_answer(tags) for tags in tagger.stream(image)]
        return _answer(next(tagger.stream([image])))

    def _tagger(self, labels: tuple[str, ...], template: str | None) -> Tagger:
        """The tagger of a list, kept for the next call with the same list."""
        key = (labels, template)
        found = self._taggers.pop(key, None)
        if found is None:
            found = Tagger(self.backbone, list(labels), self._method, template=template, **self._options)
        self._taggers[key] = found  # as the last one used
        while len(self._taggers) > KEPT:
            del self._taggers[next(iter(self._taggers))]
        return found


def _answer(tags: Tags) -> list[dict[str, Any]]:
    if tags.error is not None:
        raise ImageError(tags.error)
    return [{"score": item["score"], "label": item["label"]} for item in tags]
