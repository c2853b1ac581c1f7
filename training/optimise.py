"""The optimizer, its schedule, weight averaging and the decay towards the classifier's weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

LOGARITHMS = 10.0  # learning-rate factor of scales and biases


class Optimiser:
    """AdamW over parameter groups of the towers, with warm-up, cosine decay and gradient clipping.

    Args:
        parameters: by name; the image tower's trunk uses `lr_image`. With 0 the image side is frozen.
        free: scales and biases.
        pull: decay of the trunk's parameters towards their initial values.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], free: Iterable[nn.Parameter], *,
        lr: float, lr_image: float, decay: float, warmup: float, pull: float = 0.0,
    ) -> None:  # fmt: skip
        self.warmup, self.pull = warmup, pull
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        self.trunk: list[Tensor] = []
        for name, parameter in parameters.items():
            on_image_side = name.startswith("visual.")
            if not parameter.requires_grad or (on_image_side and lr_image == 0):
                continue
            is_trunk = name.startswith("visual.trunk")
            if is_trunk:
                self.trunk.append(parameter)
            rate, fade = lr_image if is_trunk else lr, decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, fade), []).append(parameter)
        groups[LOGARITHMS * lr, 0.0] = list(free)
        self.origin = [p.detach().clone() for p in self.trunk] if pull else []
        made = [{"params": p, "lr": r, "peak": r, "weight_decay": d} for (r, d), p in groups.items()]
        self.parameters = [p for own in groups.values() for p in own]
        fused = self.parameters[0].device.type == "cuda"
        self.adam = torch.optim.AdamW(made, betas=(0.9, 0.98), fused=fused)
        self.lr_image = lr_image
        self.factor = 0.0

    def rate(self, progress: float) -> None:
        """Set the learning rates for a progress between 0 and 1."""
        warm = min(1.0, progress / self.warmup) if self.warmup else 1.0
        self.factor = warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
        for group in self.adam.param_groups:
            group["lr"] = group["peak"] * self.factor

    def step(self, loss: Tensor) -> None:
        """One optimizer step for a loss."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.adam.step()
        if self.pull:
            with torch.no_grad():
                torch._foreach_lerp_(self.trunk, self.origin, self.pull * self.lr_image * self.factor)


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
