"""The hand-written AdamW step against torch's own optimizer."""

from __future__ import annotations

import pytest
import torch

from mltta.methods.tuning import adamw


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adamw_gives_the_context_of_torchs_optimizer(steps, weight_decay):
    generator = torch.Generator().manual_seed(steps)
    context = torch.randn(3, 4, 8, generator=generator, dtype=torch.float64)
    gradients = torch.randn(steps, 3, 4, 8, generator=generator, dtype=torch.float64) * 1e-3
    gradients[0, 0, 0, 0] = 0.0  # an untouched coordinate only decays
    parameter = torch.nn.Parameter(context.clone())
    optimizer = torch.optim.AdamW([parameter], lr=1e-2, weight_decay=weight_decay)
    ours, moments = context, None
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
        ours, moments = adamw(ours, gradient, 1e-2, weight_decay, moments)
    torch.testing.assert_close(ours, parameter.detach(), atol=1e-12, rtol=0)


def test_the_first_step_moves_every_coordinate_by_about_the_learning_rate():
    context, gradient = torch.zeros(5), torch.tensor([1e-3, -2.0, 5.0, -1e-4, 0.0])
    moved, _ = adamw(context, gradient, 0.01, 0.01, None)
    torch.testing.assert_close(moved, -0.01 * gradient.sign(), atol=2e-6, rtol=0)
