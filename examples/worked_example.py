"""ML-TTA by numbers: the effect of binding on three logits, and of one step on the scores.

    python examples/worked_example.py

Uses the paper's three-class example: a view has scores 0.9, 0.7 and 0.3, and its nearest caption names
two labels, so k = 2. Plain entropy minimization raises only the first label; bound entropy minimization
raises both. Then the whole method runs on a synthetic image: 64 views around two of four labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from mltta.objectives import bind_labels, bound_entropy, entropy


def step(logits: torch.Tensor, k: int | None, lr: float = 1.0) -> torch.Tensor:
    """One gradient step on the entropy of a row of logits."""
    leaf = logits.clone().requires_grad_()
    loss = entropy(leaf if k is None else bind_labels(leaf, torch.tensor(k)))
    return logits - lr * torch.autograd.grad(loss, leaf)[0]


def row(name: str, values: torch.Tensor) -> None:
    print(f"  {name:<34}" + "".join(f"{v:>9.3f}" for v in values.tolist()))


def main() -> None:
    logits = torch.tensor([0.9, 0.7, 0.3])
    print("\nOne view, three labels, k = 2")
    row("logits", logits)
    row("bound logits", bind_labels(logits, torch.tensor(2)))
    for name, k in (("plain entropy", None), ("bound entropy", 2)):
        after = step(logits, k)
        row(f"{name}: change of logits", after - logits)
        row(f"{name}: probability after", after.softmax(-1))
    row("probability before", logits.softmax(-1))

    print("\n64 views of an image that shows the first two of four labels; the labels' features are tuned")
    generator = torch.Generator().manual_seed(0)
    labels = F.normalize(torch.eye(4) + 0.3, dim=-1)
    views = F.normalize(1.2 * labels[0] + labels[1] + 0.5 * torch.randn(64, 4, generator=generator), dim=-1)
    before = 10 * views[0] @ labels.T
    row("scores before", before)
    for name, k in (("plain entropy", None), ("bound entropy", torch.full((64,), 2))):
        leaf = labels.clone().requires_grad_()
        loss = bound_entropy(10 * views @ leaf.T, k)
        tuned = labels - 0.05 * torch.autograd.grad(loss, leaf)[0].sign()
        after = 10 * views[0] @ F.normalize(tuned, dim=-1).T
        row(f"{name}: scores after one step", after)
        row(f"{name}: change", after - before)


if __name__ == "__main__":
    main()
