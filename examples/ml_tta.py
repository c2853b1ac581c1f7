"""ML-TTA in one file: the paper's procedure, on the embedded model.

    python examples/ml_tta.py examples/photos/cat.jpg
    python examples/ml_tta.py photo.jpg "dog, cat, sofa"

The paper is "Multi-Label Test-Time Adaptation with Bound Entropy Minimization", ICLR 2025,
https://openreview.net/forum?id=75PhjtbBdr. Sections, equations and Algorithm 1 below refer to it. Only the weights,
captions and label lists of mltta are used. `tests/test_example.py` compares these scores with those of
`mltta.create_method("ml-tta", …)`, an optimized implementation for many images at once.

One image at a time. N views, K captions per view, C labels, M context tokens of width W, features of width D.
"""

from __future__ import annotations

import math
import random
import re
import sys

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

import mltta

# The paper's settings (Sec. 4.1).
VIEWS, CAPTIONS_PER_VIEW, SELECT_RATIO = 64, 16, 0.1
LR_VIEW, LR_CAPTION = 1e-2, 1e-3
TEMPLATE = "a photo of a"


# ---------------------------------------------------------------- Sec. 3.3.1: views, and captions paired with them


def make_views(photo: Image.Image, count: int, size: int, seed: int = 0) -> list[Image.Image]:
    """The whole image, then random crops, possibly mirrored: the set X of Eq. 4."""
    draw = random.Random(seed)
    views = [photo.resize((size, size), Image.Resampling.BICUBIC)]
    while len(views) < count:
        # A crop covers 8% to 100% of the image, with an aspect ratio of 3:4 to 4:3.
        area = photo.width * photo.height * draw.uniform(0.08, 1.0)
        aspect = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if width > photo.width or height > photo.height:
            continue
        left, top = draw.randint(0, photo.width - width), draw.randint(0, photo.height - height)
        box = (left, top, left + width, top + height)
        view = photo.resize((size, size), Image.Resampling.BILINEAR, box=box)
        views.append(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else view)
    return views


def to_pixels(views: list[Image.Image], mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Pixels (N, 3, S, S) for the image encoder."""
    levels = torch.from_numpy(np.stack([np.asarray(view) for view in views])).float() / 255
    return ((levels - torch.tensor(mean)) / torch.tensor(std)).permute(0, 3, 1, 2)


def strong_label_sets(texts: list[str], labels: mltta.LabelSet) -> list[set[int]]:
    """The labels that each caption names (Sec. 3.3.2, noun filtering), by matching their words."""
    sayings = enumerate(zip(labels.texts, labels.synonyms, strict=True))
    label_of = {word.lower(): label for label, (text, others) in sayings for word in (text, *others)}
    longest = sorted(label_of, key=len, reverse=True)  # a hot dog is not a dog
    named = re.compile(rf"\b({'|'.join(map(re.escape, longest))})(s|es)?\b")
    return [{label_of[found[1]] for found in named.finditer(text.lower())} for text in texts]


def retrieve(views: Tensor, captions: Tensor, count: int) -> Tensor:
    """The captions (N, K) most similar to each view, nearest first: R of Eq. 4."""
    return (views @ captions.T).topk(count).indices


# ---------------------------------------------------------------- the text encoder with a tunable prompt


def tokenize(tokenizer, labels: tuple[str, ...]) -> tuple[Tensor, int]:
    """Token ids (C, L) of every label after the template, and the number M of template tokens."""
    tokens = tokenizer([f"{TEMPLATE} {label}." for label in labels])
    return tokens, len(tokenizer.encode(TEMPLATE))


def encode_labels(model, tokens: Tensor, context: Tensor) -> Tensor:
    """Unit features (C, D) of the labels, with context vectors (M, W) instead of the template's words."""
    words = model.token_embedding(tokens)  # (C, L, W): start, template, label, end
    context = context.expand(len(tokens), -1, -1)
    x = torch.cat([words[:, :1], context, words[:, 1 + context.shape[1] :]], dim=1)
    x = model.transformer(x + model.positional_embedding, attn_mask=model.attn_mask)
    end = tokens.argmax(dim=-1)  # the end-of-text token has the highest id
    x = model.ln_final(x)[torch.arange(len(x)), end] @ model.text_projection
    return F.normalize(x, dim=-1)


# ---------------------------------------------------------------- Sec. 3.2 and 3.3.2: bound entropy minimization


def bind(logits: Tensor, k: Tensor) -> Tensor:
    """Algorithm 1, Eq. 6: set the k highest logits of each row (R, C) to its maximum, keeping their own gradients."""
    highest = logits.max(dim=-1, keepdim=True).values
    a = (highest - logits).detach()
    rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)  # 0 is the highest
    return torch.where(rank < k[:, None], a + logits, logits)


def entropy(logits: Tensor) -> Tensor:
    """Eq. 1: the entropy (R,) of each row's softmax."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)


def bound_entropy(logits: Tensor, k: Tensor) -> Tensor:
    """Eq. 7: bind the rows, keep the fraction tau with the lowest entropy (confidence selection), average entropies."""
    each = entropy(bind(logits, k))
    kept = max(1, math.floor(SELECT_RATIO * len(each)))
    return each.sort().values[:kept].mean()


# ---------------------------------------------------------------- Sec. 3.3.3: complete ML-TTA for one image


def ml_tta(model, tokens: Tensor, n_context: int, views: Tensor, captions: Tensor, k: Tensor) -> Tensor:
    """Scores (C,) of an image.

    Args:
        views: (N, D) unit features of the views; the first is the image itself.
        captions: (T, D) unit features of the text description base.
        k: (T,) number of labels that each caption names: the size of its strong label set.
    """
    scale = model.logit_scale.exp().detach()
    # Two identical prompts, V and C, start from the words "a photo of a"; the encoders are frozen.
    start = model.token_embedding(tokens[0, 1 : 1 + n_context]).detach()  # (M, W)
    view_prompt, caption_prompt = start.clone().requires_grad_(), start.clone().requires_grad_()

    # A view's weak label set is the strong label set of its nearest caption. Captions serve as pseudo-views.
    nearest = retrieve(views, captions, CAPTIONS_PER_VIEW)  # (N, K)
    paired = nearest.flatten()

    # Eq. 5: logits of the views with V, of the captions with C.
    view_logits = scale * views @ encode_labels(model, tokens, view_prompt).T  # (N, C)
    caption_logits = scale * captions[paired] @ encode_labels(model, tokens, caption_prompt).T  # (N K, C)

    # Eq. 8: the sum of both losses, and one step of AdamW, with fresh state for every image.
    loss = bound_entropy(view_logits, k[nearest[:, 0]]) + bound_entropy(caption_logits, k[paired])
    optimizer = torch.optim.AdamW(
        [{"params": [view_prompt], "lr": LR_VIEW}, {"params": [caption_prompt], "lr": LR_CAPTION}]
    )
    loss.backward()
    optimizer.step()

    # Inference: similarities of the image with both tuned prompts, added.
    with torch.no_grad():
        tuned = [encode_labels(model, tokens, prompt) for prompt in (view_prompt, caption_prompt)]
        return sum(scale * views[0] @ text.T for text in tuned)


def main(photo: str, names: str = "coco") -> None:
    """Print the labels of a photo, most likely first."""
    backbone = mltta.load_backbone("mini", device="cpu")
    model, labels = backbone.model, mltta.LabelSet.of(names)  # an open_clip model; frozen
    base = mltta.default_captions(backbone)
    sets = strong_label_sets(base.texts, labels)
    named = [i for i, own in enumerate(sets) if own]
    captions = torch.from_numpy(base.embeddings[named])
    k = torch.tensor([len(sets[i]) for i in named])

    wants = backbone.preprocess
    views = make_views(Image.open(photo).convert("RGB"), VIEWS, wants.size)
    with torch.no_grad():
        features = model.encode_image(to_pixels(views, wants.mean, wants.std), normalize=True)
    tokens, n_context = tokenize(backbone.tokenizer, labels.texts)
    scores = ml_tta(model, tokens, n_context, features, captions, k)
    for label in scores.argsort(descending=True)[:5].tolist():
        print(f"{scores[label]:8.3f}  {labels.names[label]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
