"""The training loop of a phase: weighted losses and a schedule that ends on time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from training.optimise import Average, Optimiser
from training.progress import Log
from training.recipe import Recipe
from training.towers import Towers

Losses = dict[str, Tensor]
#: called at the end with the number of steps and the averaged weights
Finish = Callable[[int, dict[str, Tensor]], None]


def make_steps(
    phase: str,
    steps: int,
    losses: Callable[[], Losses],
    towers: Towers,
    optimiser: Optimiser,
    recipe: Recipe,
    log: Log,
    deadline: float,
    finish: Finish,
    between: Mapping[float, Callable[[], dict[str, float]]] = MappingProxyType({}),
) -> None:
    """Run the steps; the schedule is shortened to end by `deadline` (`time.time()`).

    Args:
        phase: name of the phase in the log.
        losses: returns all losses of one step, each weighted by the setting ``w_`` plus its name.
        between: what is done once when a progress is reached; its figures are logged.
    """
    waiting = dict(between)
    begin, average = time.time(), Average(towers.model, recipe.ema)
    for step in range(steps):
        progress = max((step + 1) / steps, (time.time() - begin) / max(deadline - begin, 1e-9))
        optimiser.rate(progress)
        for due in [own for own in waiting if 0 < own <= progress < 1]:
            log(phase=phase, step=step, **waiting.pop(due)())
        parts = losses()
        loss = sum(
            (getattr(recipe, f"w_{k}") * v for k, v in parts.items()), torch.zeros((), device=towers.device)
        )
        optimiser.step(loss)
        towers.limit_scale()
        average.update(towers.model)
        last = progress >= 1
        if step % 50 == 0 or last:
            scales = {
                "scale": towers.model.logit_scale.exp().item(),
                "noun scale": towers.noun_scale.exp().item(),
            }
            log(phase=phase, step=step, loss=loss.item(), **{k: v.item() for k, v in parts.items()}, **scales)
            if not math.isfinite(loss.item()):
                raise FloatingPointError(f"the loss is not finite at step {step}")
        if last:
            finish(step, average.state)
            break
