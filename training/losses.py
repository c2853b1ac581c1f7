"""The losses of the recipe, as functions of features or logits in float32."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from training.rule import confident_mean


def soft_cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with a distribution per row as target; rows that sum to 0 are ignored."""
    rows = target.sum(1) > 0
    loss = -(target * F.log_softmax(logits, 1)).sum(1)
    return (loss * rows).sum() / rows.sum().clamp(min=1)


def contrastive(
    logits: torch.Tensor, similarity: torch.Tensor, temperature: float, softness: float
) -> torch.Tensor:
    """CLIP's symmetric loss; a fraction `softness` of the target is spread over captions of similar meaning.

    Args:
        logits: scaled cosines, image i with caption j.
        similarity: cosines between captions in MiniLM's space.
    """
    soft = F.softmax(similarity / temperature, 1)
    target = (1 - softness) * torch.eye(len(logits), device=logits.device) + softness * soft
    return (soft_cross_entropy(logits, target) + soft_cross_entropy(logits.T, target)) / 2


def follow(text: torch.Tensor, target: torch.Tensor, relational: float = 10.0) -> torch.Tensor:
    """Distillation of MiniLM: cosine of each text feature, and matrix of their similarities."""
    apart = 1 - (text * target).sum(1).mean()
    return apart + relational * F.mse_loss(text @ text.T, target @ target.T)


def asymmetric(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gamma: float, margin: float
) -> torch.Tensor:
    """Sigmoid loss per image and noun that down-weights easy and doubtful negatives (ASL, Ridnik et al. 2021).

    Args:
        target: probability that the noun applies.
        weight: importance of each pair, 0 if unknown.
        gamma: focusing exponent of the negatives.
        margin: probability below which a negative costs nothing.
    """
    positive = -target * F.logsigmoid(logits)
    p = (torch.sigmoid(logits) - margin).clamp(min=0)
    negative = -(1 - target) * p.detach() ** gamma * torch.log((1 - p).clamp(min=1e-6))
    return ((positive + negative) * weight).sum() / (target * weight).sum().clamp(min=1)


def ranking(logits: torch.Tensor, target: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Softmax over nouns: present ones share the probability, unknown ones are excluded."""
    present = (target > 0.5).float() * known
    shares = present / present.sum(1, keepdim=True).clamp(min=1)
    return soft_cross_entropy(logits.masked_fill((known == 0) & (present == 0), -1e4), shares)


def sentences(logits: torch.Tensor, fits: torch.Tensor) -> torch.Tensor:
    """Images and label sentences, in both directions; `fits` marks images that show all labels of a sentence."""
    fits = fits.float()
    to_text = fits / fits.sum(1, keepdim=True).clamp(min=1)
    to_image = fits.T / fits.T.sum(1, keepdim=True).clamp(min=1)
    return (soft_cross_entropy(logits, to_text) + soft_cross_entropy(logits.T, to_image)) / 2


def followed(logits: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    """Distillation of windows: cross-entropy with the classifier's softmax, weighted by its squared confidence.

    Args:
        logits: (n, V, classes).
        probability: probabilities of the classifier in the same windows (n, V, classes).
    """
    weight = probability.amax(-1).square()
    loss = -(probability * F.log_softmax(logits, -1)).sum(-1)
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6)


def somewhere(logits: torch.Tensor) -> torch.Tensor:
    """Evidence (n, C) that a noun is in any of the windows (n, V, C): log-sum-exp minus half the log of their number.

    If all windows agree on l the result is l + log(V) / 2, with one window alone l - log(V) / 2.
    """
    return logits.logsumexp(1) - 0.5 * math.log(logits.shape[1])


def answered(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, rare: torch.Tensor, even: float
) -> torch.Tensor:
    """Loss of a label list scored by windows: present labels share the probability; without one it is uniform.

    Each window's softmax is weighted by its confidence, as for local views. Absent labels compete as far as their
    absence is known; unknown ones are excluded.

    Args:
        logits: (n, V, C) of the labels on the list, at the logit scale used for local views.
        target: (n, C) probability that the label applies.
        weight: (n, C) from 0, unknown, to 1.
        rare: (C,) proportions in which present labels share the probability, higher for rare labels, so that the most
            frequent label does not become the answer for all images.
        even: weight of an image that shows nothing on the list.
    """
    present = (target > 0.5) & (weight > 0)
    part = torch.where(present, 1.0, weight.clamp(0, 1))
    p = (logits + part.clamp(min=1e-4).log()[:, None]).softmax(-1)
    share = confident_mean(p)  # (n, C), sums to 1
    some = present.any(1)
    wanted = torch.where(some[:, None], present * rare, part)
    wanted = wanted / wanted.sum(1, keepdim=True).clamp(min=1e-6)
    loss = -(wanted * share.clamp(min=1e-6).log()).sum(1)
    each = torch.where(some, 1.0, even)
    return (loss * each).sum() / each.sum().clamp(min=1e-6)
