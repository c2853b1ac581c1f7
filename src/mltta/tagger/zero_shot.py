"""A tagger with the interface of ``transformers.pipeline("zero-shot-image-classification")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mltta.errors import ConfigError, ImageError
from mltta.tagger.tagger import Tagger, Tags

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: number of label lists whose taggers are cached
KEPT = 8


class ZeroShotPipeline:
    """Scores candidate labels that are given with each call; scores need not sum to one.

    >>> pipe = ZeroShotPipeline()                                              # doctest: +SKIP
    >>> pipe("photo.jpg", candidate_labels=["dog", "sofa"])                    # doctest: +SKIP
    [{'score': 0.71, 'label': 'dog'}, {'score': 0.25, 'label': 'sofa'}]

    The scores of transformers' pipeline sum to one, so two labels that are both present get half each. Here every score
    estimates the probability that its label is present; a tagger shows labels that score at least 0.3. Labels with
    nearly the same meaning still compete: combine them as synonyms, "dog | puppy".
    """

    task = "zero-shot-image-classification"

    def __init__(self, model: str | Backbone | None = "mini", method: str = "auto", **options: Any):
        """Args:
        model: a name, or a backbone from ``load_backbone``.
        method: method name; online methods learn only from the images of one call.
        options: arguments of ``Tagger`` except labels and template.
        """
        for name, where in (("labels", "candidate_labels"), ("template", "hypothesis_template")):
            if name in options:
                raise ConfigError(f"{name} is not an option of the pipeline: pass {where}=… with each call")
        if model is None or isinstance(model, str):
            from mltta.model.load import load_backbone

            model = load_backbone(model)
        self.backbone = model
        self._method, self._options = method, options
        self._taggers: dict[tuple[tuple[str, ...], str | None], Tagger] = {}

    def __call__(
        self, image: Any, candidate_labels: Sequence[str] | str, hypothesis_template: str | None = None
    ) -> list[Any]:
        """Score one image, or a list of them.

        Args:
            image: a path, PIL image, array, bytes, URL (with ``allow_urls=True``), or a list of these.
            candidate_labels: a list, or a comma-separated string.
            hypothesis_template: a sentence with {} for the label (default: the template of the method).

        Returns:
            ``[{"score": …, "label": …}, …]``, best first; for a list of images, a list of such lists.
        """
        names = candidate_labels.split(",") if isinstance(candidate_labels, str) else candidate_labels
        labels = tuple(name.strip() for name in names)
        if not any(labels):
            raise ConfigError("candidate_labels is empty: give at least one label")
        tagger = self._tagger(labels, hypothesis_template)
        if isinstance(image, (list, tuple)):
            return [_answer(tags) for tags in tagger.stream(image)]
        return _answer(next(tagger.stream([image])))

    def _tagger(self, labels: tuple[str, ...], template: str | None) -> Tagger:
        """Return the tagger for a label list, cached for later calls."""
        key = (labels, template)
        found = self._taggers.pop(key, None)
        if found is None:
            found = Tagger(self.backbone, list(labels), self._method, template=template, **self._options)
        self._taggers[key] = found  # most recently used
        while len(self._taggers) > KEPT:
            del self._taggers[next(iter(self._taggers))]
        return found


def _answer(tags: Tags) -> list[dict[str, Any]]:
    if tags.error is not None:
        raise ImageError(tags.error)
    return [{"score": item["score"], "label": item["label"]} for item in tags]
