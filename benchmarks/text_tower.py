"""Speed of the label encoder compared with open_clip's encode_text at full length, and the numerical difference.

    python benchmarks/text_tower.py [--model ViT-B/16] [--labels coco] [--repeat 3] [--device cpu]

Times one forward and backward pass of the labels' text features with respect to the context, both ways in one
run, on an untrained model (speed does not depend on the weights).
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F

from mltta import LabelSet, load_backbone
from mltta.model.backbone import Backbone


def encode_text_with_context(backbone: Backbone, tokens: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """open_clip's own encode_text, 77 tokens per label, with the context in place of its words."""
    embed = backbone.tower.root.token_embedding
    words = embed(tokens)
    length = context.shape[0]
    rows = torch.cat([words[:, :1], context.expand(len(tokens), -1, -1), words[:, 1 + length :]], dim=1)
    hook = embed.register_forward_hook(lambda *_: rows)
    try:
        return F.normalize(backbone.model.encode_text(tokens), dim=-1)
    finally:
        hook.remove()


def timed(function, repeat: int, sync) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        sync()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def compare(model: str, labels: str, repeat: int, device: str) -> dict[str, float]:
    """Relative errors of features and gradients, seconds of both ways, and their ratio."""
    torch.manual_seed(0)
    backbone = load_backbone(model, random_weights=True, device=device)
    encoder = backbone.encode_labels(LabelSet.of(labels))
    tokens = encoder._prompts.tokens.to(backbone.device)
    weight = torch.randn(encoder.features.shape, device=backbone.device)
    sync = torch.cuda.synchronize if backbone.device.type == "cuda" else lambda: None

    def full() -> tuple[torch.Tensor, torch.Tensor]:
        context = encoder.context.clone().requires_grad_()
        features = encode_text_with_context(backbone, tokens, context)
        return features.detach(), torch.autograd.grad(features, context, weight)[0]

    def fast() -> tuple[torch.Tensor, torch.Tensor]:
        features, pull_back = encoder.linearize(encoder.context[None])
        return features[0], pull_back(weight[None])[0]

    (want, want_grad), (got, got_grad) = full(), fast()
    slow, quick = timed(full, repeat, sync), timed(fast, repeat, sync)
    return {
        "feature error": float((got - want).norm() / want.norm()),
        "gradient error": float((got_grad - want_grad).norm() / want_grad.norm()),
        "encode_text, s": slow,
        "label encoder, s": quick,
        "times faster": slow / quick,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ViT-B/16")
    parser.add_argument("--labels", default="coco")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    print(f"{args.model}, {len(LabelSet.of(args.labels))} labels, forward + backward")
    for name, value in compare(args.model, args.labels, args.repeat, args.device).items():
        print(f"{name:>18}  {value:.3g}")


if __name__ == "__main__":
    main()
