"""Measures on Flickr8k images kept out of training: what a recipe or checkpoint may be chosen by."""

from __future__ import annotations

import numpy as np
import torch
from data import Texts
from evaluate import average_precision
from model import encode_image, encode_text
from open_clip.model import CLIP
from torch.nn import functional as F


@torch.inference_mode()
def measure(
    model: CLIP, images: torch.Tensor, captions: Texts, rows: np.ndarray, labels: np.ndarray, prompts: Texts
) -> dict[str, float]:
    """Caption retrieval and noun mAP.

    Args:
        images: (n, 3, s, s) bytes.
        captions: the texts that `rows` (n, 5) points to, five captions of each image.
        labels: (n, nouns) 1, 0, -1.
        prompts: one prompt per noun.
    """
    pixels = F.interpolate(images.float(), (224, 224), mode="bilinear", antialias=True, align_corners=False)
    z = torch.cat([encode_image(model, part / 127.5 - 1) for part in pixels.split(64)])
    flat = rows.reshape(-1)
    t = torch.cat(
        [encode_text(model, *captions.batch(part)) for part in np.array_split(flat, len(flat) // 512 + 1)]
    )
    order = (z @ t.T).argsort(1, descending=True).cpu().numpy() // rows.shape[1]
    truth = np.arange(len(rows))[:, None]
    result = {f"recall@{k}": 100 * float((order[:, :k] == truth).any(1).mean()) for k in (1, 5)}
    nouns = encode_text(model, *prompts.batch(np.arange(len(prompts))))
    cosine = z @ nouns.T
    used = np.flatnonzero((labels == 1).sum(0) >= 5)
    softmax = (cosine[:, used] * model.logit_scale.exp()).softmax(1).cpu().numpy()
    raw = cosine[:, used].cpu().numpy()
    for name, scores in (("raw", raw), ("softmax", softmax)):
        aps = []
        for i, c in enumerate(used):
            known = labels[:, c] != -1
            aps.append(average_precision(scores[known, i], labels[known, c] == 1))
        result[f"noun mAP {name}"] = 100 * float(np.mean(aps)) if aps else 0.0
    return result
