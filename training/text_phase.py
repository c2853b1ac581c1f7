"""First phase: the text tower alone is distilled from MiniLM."""

from __future__ import annotations

import hashlib
import time

import numpy as np
from safetensors.torch import load_file, save_file

from training import losses
from training.material import Material
from training.optimise import Optimiser
from training.progress import Log
from training.recipe import Recipe
from training.towers import Towers


def learn_texts(towers: Towers, material: Material, recipe: Recipe, log: Log, deadline: float) -> None:
    """Train the text tower, or load the cached result of an identical run on the same pack.

    Args:
        deadline: latest end, as `time.time()`.
    """
    sentences = material.sentences
    settings = (
        recipe.start, recipe.text_steps, recipe.text_batch, recipe.lr_text_alone, recipe.decay, recipe.warmup,
        recipe.text_width, recipe.text_layers, len(sentences),
    )  # fmt: skip
    kept = material.folder / f"text-{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}.safetensors"
    if kept.exists():
        towers.model.load_state_dict(load_file(kept), strict=False)
        log(phase="text", taken=kept.name)
        return
    rng, begin = np.random.default_rng(recipe.start), time.time()
    optimiser = Optimiser(
        towers.parameters(), towers.free, lr=recipe.lr_text_alone, lr_image=0.0,
        decay=recipe.decay, warmup=recipe.warmup,
    )  # fmt: skip
    for step in range(recipe.text_steps):
        progress = max((step + 1) / recipe.text_steps, (time.time() - begin) / max(deadline - begin, 1e-9))
        optimiser.rate(progress)
        rows = sentences.drawn(recipe.text_batch, rng)
        loss = losses.follow(towers.encode(rows), sentences.goal(rows))
        optimiser.step(loss)
        towers.limit_scale()
        if step % 100 == 0 or progress >= 1:
            log(phase="text", step=step, loss=loss.item())
        if progress >= 1:
            break
    if step + 1 == recipe.text_steps:
        state = towers.model.state_dict()
        save_file({k: v.contiguous() for k, v in state.items() if not k.startswith("visual.")}, kept)
