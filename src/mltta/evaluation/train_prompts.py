"""Train CoOp's context vectors: on a few labelled images, or on captions that stand for images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.captions.labelled import label_captions
from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.errors import ConfigError, ImageError
from mltta.images.specs import ViewSpec
from mltta.labels import LabelSet
from mltta.metrics import mean_average_precision
from mltta.model.backbone import Backbone
from mltta.model.label_encoder import LabelEncoder
from mltta.model.learned_prompts import CoOp, coop
from mltta.model.prompts import random_context
from mltta.session.features import Pipeline
from mltta.session.prepare import Photo


@dataclass(frozen=True)
class Examples:
    """What is trained on: unit features, of captions or of images, and the labels of each."""

    features: Tensor  # (K, D)
    targets: Tensor  # (K, C) of zeros and ones, at least a one in each row
    source: str
    #: the noise that suits them, see ``Training``
    noise: float = 0.0

    def __len__(self) -> int:
        return len(self.features)

    def part(self, rows: Tensor) -> Examples:
        """Some of them."""
        rows = rows.to(self.features.device)
        return Examples(self.features[rows], self.targets[rows], self.source, self.noise)


@dataclass(frozen=True)
class Training:
    """How to train. Adam with a cosine schedule, one context for all labels.

    The loss is the cross-entropy between the softmax over the labels, at the model's own temperature, and the
    example's label set, each of its labels weighing the same. The defaults are for captions, and stay close to the
    words: the further the context moves, the better it fits sentences and the worse it fits images (docs/prompts.md).
    """

    tokens: int = 4
    epochs: int = 10
    batch: int = 128
    lr: float = 2e-4
    #: length of the random vector added to each unit feature, every time it is seen; by default 1 for captions, as
    #: features of sentences and of images lie apart, and 0 for images
    noise: float | None = None
    #: share of the examples that is not trained on, to measure on
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("tokens", 1), ("epochs", 1), ("batch", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} = {getattr(self, name)}: give at least {least}")
        if not 0 < self.lr < float("inf") or not (self.noise or 0) >= 0 or not 0 <= self.held_out < 1:
            raise ConfigError("give lr above 0, noise of 0 or more and held_out from 0 to below 1")


@dataclass(frozen=True)
class Trained:
    """The prompts, and mAP in percent on the held-out examples with the template and with them; None if none were."""

    prompts: CoOp
    before: float | None
    after: float | None
    held_out: int


def caption_examples(backbone: Backbone, labels: LabelSet, base: CaptionBase) -> Examples:
    """The captions of a base that name labels, each in the place of an image that shows them."""
    all_captions = label_captions(labels, backbone, base)
    composed, captions = len(all_captions) - len(base), all_captions.named()
    every = torch.arange(len(captions), device=captions.embeddings.device)
    source = f"{len(captions):,} captions"
    if composed:
        source += f", {composed:,} of them composed for labels that no other names"
    return Examples(captions.embeddings, captions.multi_hot(every), source, noise=1.0)


def image_examples(
    backbone: Backbone,
    dataset: Dataset,
    shots: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Examples:
    """The clean views of a labelled dataset's images, or of ``shots`` images of each label, drawn by the seed."""
    present = dataset.targets == 1
    order = np.random.default_rng(seed).permutation(len(dataset))
    chosen = sorted({int(i) for c in range(present.shape[1]) for i in order[present[order, c]][:shots]})
    if not chosen:
        raise ConfigError(f"{dataset.name}: no image carries a label, so there is nothing to train on")
    pipeline = Pipeline(
        backbone, [ViewSpec(count=1)], fetch=lambda i: Photo(i, dataset.ids[i], dataset.images[i])
    )
    features: list[Tensor] = []
    for batch in pipeline(chosen):
        for item in batch:
            if item.errors:
                raise ImageError(next(iter(item.errors.values())))
        features += pipeline.encoded(batch).features(ViewSpec(count=1))[:, 0]
        if progress is not None:
            progress(len(features), len(chosen))
    targets = torch.from_numpy(present[chosen].astype(np.float32)).to(backbone.device)
    return Examples(torch.stack(features), targets, f"{len(chosen):,} images of {dataset.name}")


def train_prompts(
    backbone: Backbone,
    labels: LabelSet,
    examples: Examples,
    settings: Training | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trained:
    """Learn the words in front of the labels; the same seed gives the same ones.

    They start as the words "a photo of a" where four are asked for, else at random.
    """
    how = settings or Training()
    noise = examples.noise if how.noise is None else how.noise
    if not backbone.tower.tunable:
        raise ConfigError(f"{backbone.name}: context vectors cannot be put into this text tower")
    generator = torch.Generator().manual_seed(how.seed)
    order = torch.randperm(len(examples), generator=generator)
    kept = int(len(examples) * how.held_out)
    held, trained_on = examples.part(order[:kept]), examples.part(order[kept:])
    words = backbone.encode_labels(labels)
    start = None
    if not words.tunable or words.context.shape != (how.tokens, backbone.tower.width):
        start = random_context(how.tokens, backbone.tower.width, how.seed)
    text = words if start is None else backbone.encode_labels(labels, context=start)
    context = _descend(text, trained_on, backbone.logit_scale, how, noise, generator, progress)
    about: dict[str, Any] = {
        "model": backbone.name,
        "text_tower": backbone.text_fingerprint,
        "labels": list(labels.names),
        "trained_on": examples.source,
        "training": asdict(how) | {"noise": noise},
    }
    scores = [
        _score(features, held, backbone.logit_scale) for features in (words.features, text(context[None])[0])
    ]
    about["held_out_map"] = {"template": scores[0], "trained": scores[1]}
    return Trained(coop(context, **about), scores[0], scores[1], len(held))


def _descend(
    text: LabelEncoder,
    examples: Examples,
    scale: float,
    how: Training,
    noise: float,
    generator: torch.Generator,
    progress: Callable[[int, int], None] | None,
) -> Tensor:
    """The context (M, W) after all epochs."""
    share = examples.targets / examples.targets.sum(dim=1, keepdim=True)
    context = text.context.clone().requires_grad_()
    optimizer = torch.optim.Adam([context], lr=how.lr)
    steps = how.epochs * -(-len(examples) // how.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    done = 0
    for _ in range(how.epochs):
        order = torch.randperm(len(examples), generator=generator)
        for start in range(0, len(order), how.batch):
            rows = order[start : start + how.batch].to(share.device)
            features = _shaken(examples.features[rows], noise, generator)
            labels, pull_back = text.linearize(context[None])
            leaf = labels[0].detach().requires_grad_()
            with torch.enable_grad():
                loss = F.cross_entropy(scale * features @ leaf.T, share[rows])
                (gradient,) = torch.autograd.grad(loss, leaf)
            context.grad = pull_back(gradient[None])[0]
            optimizer.step()
            schedule.step()
            done += 1
            if progress is not None:
                progress(done, steps)
    return context.detach()


def _shaken(features: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Unit features with a random vector of about this length added."""
    if not noise:
        return features
    drawn = torch.randn(features.shape, generator=generator).to(features.device)
    return F.normalize(features + noise * drawn / features.shape[1] ** 0.5, dim=-1)


def _score(text: Tensor, examples: Examples, scale: float) -> float | None:
    """mAP in percent by softmax over the labels that occur."""
    if not len(examples):
        return None
    probabilities = (scale * examples.features @ text.T).softmax(dim=-1).cpu().numpy()
    return mean_average_precision(probabilities, examples.targets.cpu().numpy().astype(int), absent="skip")
