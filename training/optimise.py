"""The optimizer, its schedule and weight averaging."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

LOGARITHMS = 10.0  # learning-rate factor of scales and biases


class Optimiser:
    """AdamW over parameter groups of the towers, with warm-up, cosine decay and gradient clipping.

    Args:
        parameters: by name; the image tower without its projection uses `lr_image`. With 0 the image side is frozen.
        free: scales and biases.
        layer_decay: factor of the learning rate from one block of the image tower to the block before it.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], free: Iterable[nn.Parameter], *,
        lr: float, lr_image: float, decay: float, warmup: float, layer_decay: float = 1.0,
    ) -> None:  # fmt: skip
        self.warmup = warmup
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        blocks = sum(name.startswith("visual.") and name.endswith("ln_1.weight") for name in parameters)
        for name, parameter in parameters.items():
            on_image_side = name.startswith("visual.")
            if not parameter.requires_grad or (on_image_side and lr_image == 0):
                continue
            rate, fade = lr, decay if parameter.ndim > 1 else 0.0
            if on_image_side and name != "visual.proj":
                rate = lr_image * layer_decay ** (blocks - 1 - _block(name, blocks))
            groups.setdefault((rate, fade), []).append(parameter)
        groups[LOGARITHMS * lr, 0.0] = list(free)
        made = [{"params": p, "lr": r, "peak": r, "weight_decay": d} for (r, d), p in groups.items()]
        self.parameters = [p for own in groups.values() for p in own]
        fused = self.parameters[0].device.type == "cuda"
        self.adam = torch.optim.AdamW(made, betas=(0.9, 0.98), fused=fused)

    def rate(self, progress: float) -> None:
        """Set the learning rates for a progress between 0 and 1."""
        warm = min(1.0, progress / self.warmup) if self.warmup else 1.0
        factor = warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
        for group in self.adam.param_groups:
            group["lr"] = group["peak"] * factor

    def step(self, loss: Tensor) -> None:
        """One optimizer step for a loss."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.adam.step()


def _block(name: str, blocks: int) -> int:
    """The number of a parameter's block in the image tower, counted from 0; the last norm belongs to the last one."""
    found = re.search(r"resblocks\.(\d+)\.", name)
    return int(found[1]) if found else blocks - 1 if "ln_post" in name else 0


class Average:
    """Exponential moving average of the weights; this is what is saved."""

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.memory, self.steps = memory, 0
        self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self, model: nn.Module) -> None:
        """Update the average with the model's current weights."""
        keep = min(self.memory, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        state = model.state_dict()
        floats = [k for k, v in state.items() if v.is_floating_point()]
        with torch.no_grad():
            torch._foreach_lerp_([self.state[k] for k in floats], [state[k] for k in floats], 1 - keep)
