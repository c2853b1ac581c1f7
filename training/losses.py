"""The losses of the recipe, each a function of features or logits in float32."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from training.rule import confident_mean


def soft_cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with a distribution per row as target; rows that sum to 0 do not count."""
    rows = target.sum(1) > 0
    loss = -(target * F.log_softmax(logits, 1)).sum(1)
    return (loss * rows).sum() / rows.sum().clamp(min=1)


def contrastive(
    logits: torch.Tensor, similarity: torch.Tensor, temperature: float, softness: float
) -> torch.Tensor:
    """CLIP's symmetric loss; a share `softness` of the target goes to captions that mean nearly the same.

    Args:
        logits: scaled cosines, image i against caption j.
        similarity: cosines of the captions among each other in MiniLM's space.
    """
    soft = F.softmax(similarity / temperature, 1)
    target = (1 - softness) * torch.eye(len(logits), device=logits.device) + softness * soft
    return (soft_cross_entropy(logits, target) + soft_cross_entropy(logits.T, target)) / 2


def follow(text: torch.Tensor, target: torch.Tensor, relational: float = 10.0) -> torch.Tensor:
    """Text features follow MiniLM: each by its cosine, all by the matrix of their similarities."""
    apart = 1 - (text * target).sum(1).mean()
    return apart + relational * F.mse_loss(text @ text.T, target @ target.T)


def asymmetric(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gamma: float, margin: float
) -> torch.Tensor:
    """Sigmoid loss per image and noun in which easy and doubtful negatives fade (ASL, Ridnik et al. 2021).

    Args:
        target: probability that the noun applies.
        weight: importance of each pair, 0 where nothing is known.
        gamma: focusing exponent of the negatives.
        margin: probability under which a negative costs nothing.
    """
    positive = -target * F.logsigmoid(logits)
    p = (torch.sigmoid(logits) - margin).clamp(min=0)
    negative = -(1 - target) * p.detach() ** gamma * torch.log((1 - p).clamp(min=1e-6))
    return ((positive + negative) * weight).sum() / (target * weight).sum().clamp(min=1)


def ranking(logits: torch.Tensor, target: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Softmax over nouns: the present ones share the probability, the unknown ones stand aside."""
    present = (target > 0.5).float() * known
    shares = present / present.sum(1, keepdim=True).clamp(min=1)
    return soft_cross_entropy(logits.masked_fill((known == 0) & (present == 0), -1e4), shares)


def sentences(logits: torch.Tensor, fits: torch.Tensor) -> torch.Tensor:
    """Images against label sentences, in both directions; `fits` says which image has all labels of which."""
    fits = fits.float()
    to_text = fits / fits.sum(1, keepdim=True).clamp(min=1)
    to_image = fits.T / fits.T.sum(1, keepdim=True).clamp(min=1)
    return (soft_cross_entropy(logits, to_text) + soft_cross_entropy(logits.T, to_image)) / 2


def followed(logits: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    """Windows follow the classifier: cross-entropy with its softmax, weighted by the square of its confidence.

    Args:
        logits: (n, V, classes).
        probability: the classifier's in the same windows (n, V, classes).
    """
    weight = probability.amax(-1).square()
    loss = -(probability * F.log_softmax(logits, -1)).sum(-1)
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6)


def somewhere(logits: torch.Tensor) -> torch.Tensor:
    """Evidence (n, C) that a noun is in one of the windows (n, V, C): log-sum-exp less half the log of their number.

    All windows agreeing on l give l + log(V) / 2, one window alone l - log(V) / 2.
    """
    return logits.logsumexp(1) - 0.5 * math.log(logits.shape[1])


def answered(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, rare: torch.Tensor, even: float
) -> torch.Tensor:
    """The answer to a list of labels out of windows: present labels share it, and without one it is even.

    A window's softmax counts by its confidence, as where local views are read. An absent label competes as far as its
    absence is known; an unknown one stands aside.

    Args:
        logits: (n, V, C) of the labels on the list, at the scale of the reading.
        target: (n, C) probability that the label applies.
        weight: (n, C) from 0, unknown, to 1.
        rare: (C,) in what proportion present labels share the answer, more the rarer they are: or the label that
            most pictures show would learn to be the answer to all of them.
        even: weight of a picture that shows nothing on the list.
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
