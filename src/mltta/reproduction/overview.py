"""The paper's Figure 2, drawn from one image: what ML-TTA sees, retrieves, binds and scores on the way."""

from __future__ import annotations

from collections.abc import Mapping
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
from mltta.objectives import bind_labels, entropy, select_confident
from mltta.reproduction.rerun import Bench, open_captions
from mltta.session.features import encode_images
from mltta.session.question import Question
from mltta.tables.svg import PALETTE, Drawing, drawing, to_svg

VIEWS, LABELS = 4, 6


def overview(place: Bench, recipe: Recipe, options: Mapping[str, Any]) -> Drawing:
    """The image with the most labels on its way through ML-TTA; the scores are those of the method itself.

    Args:
        options: of the run, as `evaluate` takes them.
    """
    backbone, data, labels, seed = (
        place.backbone,
        place.dataset,
        place.dataset.labels.names,
        options.get("seed", 0),
    )
    asked = {name: options.get(name) for name in ("template", "descriptions")}
    question = Question(backbone, data.labels, captions=open_captions(place.captions, backbone), **asked)
    method = question.method(recipe.method, recipe.preset, **recipe.options)
    if not isinstance(method, MLTTA) or not isinstance(spec := method.needs[0], ViewSpec):
        raise ConfigError("the drawing needs ml-tta with crops")
    row = int((data.targets == 1).sum(axis=1).argmax())
    source, title = data.images[row], f"{data.ids[row]} through ML-TTA, {place.title}"
    encoded = encode_images(backbone, [source], method.needs, seed=seed)
    views = method.views(encoded).features[0]  # (N, D)
    nearest = method.retrieve(views[None])[0, :, 0]
    k, raw = method.captions.k(nearest), method.logits(views, method.text.features).detach()
    bound = bind_labels(raw, k)
    own = entropy(bound)
    kept = select_confident(own, method.config.select_ratio).nonzero()[:, 0].tolist()
    kept.sort(key=own.tolist().__getitem__)
    chosen, texts = kept[:VIEWS], [method.captions.texts[i] for i in nearest.tolist()]
    said = [f"the image, and {len(kept[:VIEWS])} of the\n{len(kept)} most confident of {len(views)} views"]
    said += [f"“{texts[view]}”\nk = {int(k[view])}, entropy {own[view]:.2f}" for view in chosen]
    after = {name: scores[0].float().cpu().numpy() for name, scores in method.branches(encoded).items()}
    shown = max(chosen, key=k.tolist().__getitem__)
    before, view = (
        raw[0].cpu().numpy(),
        {"logit": raw[shown].cpu().numpy(), "bound": bound[shown].cpu().numpy()},
    )
    changes = {name: scores - before for name, scores in after.items()}
    both = {"CLIP": before, "ML-TTA": sum(after.values()) / len(after)}
    panels = (
        (f"a view with k = {int(k[shown])}: logits, and bound", view, view["logit"]),
        ("the image: change after one step, by prompt", changes, before),
        ("the image: logits, mean of the prompts", both, before),
    )
    with drawing():
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=[1.15, 1])
        above, below = parts
        frames = above.subplots(1, 1 + VIEWS)
        for frame, text in zip(frames, said, strict=False):
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
                text.set_fontweight("bold" if data.targets[row, i] == 1 else "normal")
            axes.invert_yaxis()
            axes.set_title(name, fontsize=8)
            axes.legend(loc="best", fontsize=7)
        figure.suptitle(fill(title, 90))
        photo, look = load_image(source, working=True), backbone.preprocess
        pixels = render_views(photo, spec, look, seed=seed, indices=chosen).transpose(0, 2, 3, 1)
        levels = (255 * (pixels * look.std + look.mean).clip(0, 1)).round().astype(np.uint8)
        pictures = [photo, *map(Image.fromarray, levels)]
        return to_svg(figure, title, dict(zip(frames, pictures, strict=False)))
