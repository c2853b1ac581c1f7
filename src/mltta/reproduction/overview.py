"""The paper's Figure 2, drawn from one image: what ML-TTA sees, retrieves, binds and scores on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from mltta.errors import ConfigError
from mltta.evaluation.recipes import Recipe
from mltta.images.decode import load_image
from mltta.images.specs import ViewSpec
from mltta.images.views import render_views
from mltta.methods.ml_tta import MLTTA
from mltta.model.backbone import Backbone
from mltta.objectives import bind_labels, entropy, select_confident
from mltta.reproduction.rerun import Bench, open_captions
from mltta.session.features import encode_images
from mltta.session.question import Question
from mltta.tables.svg import PALETTE, Drawing, drawing, to_svg

VIEWS, LABELS = 4, 6


def overview(place: Bench, recipe: Recipe, options: Mapping[str, Any]) -> Drawing:
    """The image with the most labels of a place on its way through ML-TTA.

    Args:
        options: of the run, as `evaluate` takes them.
    """
    asked = {name: options.get(name) for name in ("template", "descriptions")}
    captions, data = open_captions(place.captions, place.backbone), place.dataset
    question = Question(place.backbone, data.labels, captions=captions, **asked)
    method = question.method(recipe.method, recipe.preset, **recipe.options)
    if not isinstance(method, MLTTA) or not isinstance(method.needs[0], ViewSpec):
        raise ConfigError("the drawing needs ml-tta with crops")
    row = int((data.targets == 1).sum(axis=1).argmax())
    truth = {data.labels.names[i] for i in (data.targets[row] == 1).nonzero()[0]}
    title = f"{data.ids[row]} through ML-TTA, {place.title}"
    return draw(
        title, place.backbone, method, data.images[row], data.labels.names, truth, options.get("seed", 0)
    )


def draw(
    title: str,
    backbone: Backbone,
    method: MLTTA,
    source: Any,
    labels: Sequence[str],
    truth: Collection[str],
    seed: int = 0,
) -> Drawing:
    """Put one image through the method, and draw the values of each step; the scores are the method's own."""
    encoded = encode_images(backbone, [source], method.needs, seed=seed)
    rows = method.views(encoded).features[0]  # (N, D)
    nearest = method.retrieve(rows[None])[0, :, 0]
    k, logits = method.captions.k(nearest).tolist(), method.logits(rows, method.text.features).detach()
    bound = bind_labels(logits, method.captions.k(nearest))
    own = entropy(bound)
    kept = select_confident(own, method.config.select_ratio).nonzero()[:, 0].tolist()
    kept.sort(key=own.tolist().__getitem__)
    chosen, texts = kept[:VIEWS], method.captions.texts
    said = [
        f"“{texts[nearest[view]] if texts else ''}”\nk = {k[view]}, entropy {own[view]:.2f}"
        for view in chosen
    ]
    after = {name: scores[0].float().cpu().numpy() for name, scores in method.branches(encoded).items()}
    before, (logits, bound) = logits[0].cpu().numpy(), (one.cpu().numpy() for one in (logits, bound))
    shown = max(chosen, key=k.__getitem__)
    both = {"CLIP": before, "ML-TTA": sum(after.values()) / len(after)}
    changes = {name: scores - before for name, scores in after.items()}
    panels = (
        (
            f"a view with k = {k[shown]}: logits, and bound",
            {"logit": logits[shown], "bound": bound[shown]},
            logits[shown],
        ),
        ("the image: change after one step, by prompt", changes, before),
        ("the image: logits, mean of the prompts", both, before),
    )
    with drawing():
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=[1.15, 1])
        frames = above.subplots(1, 1 + VIEWS)
        many = f"the image, and {len(chosen)} of the\n{len(kept)} most confident of {len(rows)} views"
        for frame, text in zip(frames, [many, *said], strict=False):
            frame.set_title("\n".join(fill(line, 28) for line in text.splitlines()), fontsize=7)
        for frame in frames:
            frame.set_axis_off()
        for axes, (name, series, order) in zip(below.subplots(1, 3), panels, strict=True):
            top = np.argsort(-order, kind="stable")[:LABELS]
            for number, (what, values) in enumerate(series.items()):
                places = np.arange(len(top)) + (number - (len(series) - 1) / 2) * 0.36
                axes.barh(places, values[top], 0.34, label=what, color=PALETTE[number])
            axes.set_yticks(range(len(top)), [labels[i][:18] for i in top], fontsize=7)
            for text, i in zip(axes.get_yticklabels(), top, strict=True):
                text.set_fontweight("bold" if labels[i] in truth else "normal")
            axes.invert_yaxis()
            axes.set_title(name, fontsize=8)
            axes.legend(loc="lower right", fontsize=7)
        figure.suptitle(fill(title, 90))
        photo, (spec,) = load_image(source, working=True), method.needs
        views = render_views(photo, spec, backbone.preprocess, seed=seed, indices=chosen).transpose(
            0, 2, 3, 1
        )
        levels = (
            ((views * backbone.preprocess.std + backbone.preprocess.mean).clip(0, 1) * 255)
            .round()
            .astype(np.uint8)
        )
        pictures = [photo, *map(Image.fromarray, levels)]
        return to_svg(figure, title, dict(zip(frames, pictures, strict=False)))
