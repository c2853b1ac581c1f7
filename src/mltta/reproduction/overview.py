"""The paper's Figure 2, drawn from one image: what ML-TTA sees, retrieves, binds and scores on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from mltta.errors import ConfigError
from mltta.evaluation.recipes import Recipe
from mltta.images.decode import load_image
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess, render_views
from mltta.methods.ml_tta import MLTTA
from mltta.objectives import bind_labels, entropy, select_confident
from mltta.reproduction.rerun import Bench, open_captions
from mltta.session.features import encode_images
from mltta.session.question import Question
from mltta.tables.svg import PALETTE, Drawing, drawing, to_svg

SHOWN, LABELS = 4, 6


@dataclass(frozen=True)
class Passage:
    """One image on its way through ML-TTA: the values at each step, in float32."""

    photo: Image.Image
    #: all views as pictures, and which are kept by their entropy after binding
    views: list[Image.Image]
    kept: list[int]
    captions: list[str]
    k: list[int]
    #: (N, C) of each view under the initial prompt; after binding
    logits: Any
    bound: Any
    entropies: list[float]
    #: (C,) of the clean view, by prompt after the step
    scores: dict[str, Any]


def follow_one(place: Bench, recipe: Recipe, options: Mapping[str, Any]) -> Drawing:
    """Draw what ML-TTA makes of the image with the most labels of a place.

    Args:
        options: of the run, as `evaluate` takes them.
    """
    dataset, asked = place.dataset, {name: options.get(name) for name in ("template", "descriptions")}
    question = Question(
        place.backbone, dataset.labels, captions=open_captions(place.captions, place.backbone), **asked
    )
    method = question.method(recipe.method, recipe.preset, **recipe.options)
    if not isinstance(method, MLTTA) or not isinstance(method.needs[0], ViewSpec):
        raise ConfigError("the drawing needs ml-tta with crops")
    row = int((dataset.targets == 1).sum(axis=1).argmax())
    truth = {dataset.labels.names[i] for i in (dataset.targets[row] == 1).nonzero()[0]}
    way = follow(method, dataset.images[row], options.get("seed", 0))
    return overview(
        f"{dataset.ids[row]} through ML-TTA, {place.title}", way, list(dataset.labels.names), truth
    )


def follow(method: MLTTA, source: Any, seed: int = 0) -> Passage:
    """Put one image through the method, step by step; the scores are those of the method itself."""
    backbone, (spec,) = method.problem.backbone, method.needs
    assert backbone is not None and isinstance(spec, ViewSpec)
    photo = load_image(source, working=True)
    pixels = render_views(photo, spec, backbone.preprocess, seed=seed)
    encoded = encode_images(backbone, [source], method.needs, seed=seed)
    views = method.views(encoded).features[0]  # (N, D)
    nearest = method.retrieve(views[None])[0, :, 0]
    k, logits = method.captions.k(nearest), method.logits(views, method.text.features).detach()
    bound = bind_labels(logits, k)
    own = entropy(bound)
    kept = select_confident(own, method.config.select_ratio).nonzero()[:, 0].tolist()
    texts = method.captions.texts
    branches = {name: own[0].float().cpu().numpy() for name, own in method.branches(encoded).items()}
    return Passage(
        photo,
        [_picture(view, backbone.preprocess) for view in pixels],
        sorted(kept, key=own.tolist().__getitem__),
        [texts[i] if texts else "" for i in nearest.tolist()],
        k.tolist(),
        logits.float().cpu().numpy(),
        bound.float().cpu().numpy(),
        own.tolist(),
        branches,
    )


def overview(title: str, way: Passage, labels: list[str], truth: set[str]) -> Drawing:
    """A row of views with their captions, and below them the logits before and after binding, and the scores."""
    chosen = way.kept[:SHOWN]
    with drawing():
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=[1.15, 1])
        frames = above.subplots(1, 1 + SHOWN)
        for frame in frames:
            frame.set_axis_off()
        many = f"image, and {len(chosen)} of the\n{len(way.kept)} most confident of {len(way.views)} views"
        frames[0].set_title(many, fontsize=7)
        for frame, view in zip(frames[1:], chosen, strict=False):
            said = f"“{way.captions[view]}”\nk = {way.k[view]}, entropy {way.entropies[view]:.2f}"
            frame.set_title(
                "\n".join(fill(line, 26) for line in said.splitlines()), fontsize=7, fontweight="normal"
            )
        start, view = way.logits[0], max(chosen, key=lambda view: way.k[view])
        top = np.argsort(-way.logits[view], kind="stable")[:LABELS]
        changes = {name: own - start for name, own in way.scores.items()}
        both = {"CLIP": start, "ML-TTA": sum(way.scores.values()) / len(way.scores)}
        best = np.argsort(-start, kind="stable")[:LABELS]
        panels = [
            (
                f"view with k = {way.k[view]}: logits, and bound",
                top,
                {"logit": way.logits[view], "bound": way.bound[view]},
            ),
            ("image: change after one step, by prompt", best, changes),
            ("image: logits, mean of the prompts", best, both),
        ]
        for axes, (name, rows, series) in zip(below.subplots(1, 3), panels, strict=True):
            for number, (what, values) in enumerate(series.items()):
                place = np.arange(len(rows)) + (number - (len(series) - 1) / 2) * 0.36
                axes.barh(place, values[rows], 0.34, label=what, color=PALETTE[number])
            axes.set_yticks(range(len(rows)), [labels[i][:18] for i in rows], fontsize=7)
            for text, i in zip(axes.get_yticklabels(), rows, strict=True):
                text.set_fontweight("bold" if labels[i] in truth else "normal")
            axes.invert_yaxis()
            if all((values[rows] > 0).all() for values in series.values()):
                low = min(float(values[rows].min()) for values in series.values())
                axes.set_xlim(left=low - 1)
            axes.set_title(name, fontsize=8)
            axes.legend(loc="lower right", fontsize=7)
        figure.suptitle(fill(title, 90))
        photos = dict(zip(frames, [way.photo, *(way.views[view] for view in chosen)], strict=False))
        return to_svg(figure, title, photos)


def _picture(pixels: Any, preprocess: Preprocess) -> Image.Image:
    """A view (3, S, S) as the model has it, turned back into a picture."""
    levels = pixels.transpose(1, 2, 0) * preprocess.std + preprocess.mean
    return Image.fromarray((levels.clip(0, 1) * 255).round().astype(np.uint8))
