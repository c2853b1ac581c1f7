"""Simple reference implementation of the published procedure, for measuring and checking the optimized one.

One image at a time, every prompt as a full sequence of 77 tokens, torch's AdamW, a full sort of all captions, views
rendered with Pillow, and the clean view encoded again at the end. No sharing, caching or batching over images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from benchmarks.text_tower import encode_text_with_context
from mltta.captions.labelled import LabelledCaptions
from mltta.labels import LabelSet
from mltta.model.backbone import Backbone


class Plain:
    """clip, tpt and ml-tta with the paper's settings, one image at a time.

    Args:
        autocast: run in half precision on a GPU, with scaled gradients, as in the released code; otherwise float32.
        row_by_row: bind as written in Algorithm 1.
    """

    def __init__(
        self,
        backbone: Backbone,
        labels: LabelSet,
        captions: LabelledCaptions | None = None,
        autocast: bool = False,
        row_by_row: bool = True,
    ):
        encoder = backbone.encode_labels(labels)
        self.backbone, self.autocast, self.row_by_row = backbone, autocast, row_by_row
        self._scaler = torch.amp.GradScaler("cuda", init_scale=1000, enabled=autocast)
        self.tokens = encoder._prompts.tokens.to(backbone.device)
        self.start = encoder.context.clone()
        self.captions = captions.named() if captions is not None else None

    def clip(self, pixels: Tensor) -> Tensor:
        """Scores (C,) of rendered views (N, 3, S, S)."""
        with torch.no_grad(), self._precision():
            return self._logits(self._images(pixels[:1]), self._text(self.start))[0].float()

    def tpt(self, pixels: Tensor, ratio: float = 0.1, lr: float = 5e-3) -> Tensor:
        context = self.start.clone().requires_grad_()
        optimizer = torch.optim.AdamW([context], lr=lr)
        with self._precision():
            views = self._images(pixels)
            logits = self._logits(views, self._text(context))
            loss = marginal_entropy(logits[confident(logits, ratio)])
        self._step(optimizer, loss)
        with torch.no_grad(), self._precision():
            return self._logits(self._images(pixels[:1]), self._text(context))[0].float()

    def ml_tta(
        self, pixels: Tensor, ratio: float = 0.1, lr: Sequence[float] = (1e-2, 1e-3), per_view: int = 16
    ) -> Tensor:
        assert self.captions is not None
        view_context, caption_context = (self.start.clone().requires_grad_() for _ in range(2))
        optimizer = torch.optim.AdamW(
            [{"params": [view_context], "lr": lr[0]}, {"params": [caption_context], "lr": lr[1]}]
        )
        with self._precision():
            views = self._images(pixels)
            found = (views.float() @ self.captions.embeddings.T).argsort(dim=-1, descending=True)[
                :, :per_view
            ]
            views_logits = self._logits(views, self._text(view_context))
            rows = self.captions.embeddings[found.flatten()].to(views.dtype)
            caption_logits = self._logits(rows, self._text(caption_context))
            loss = views_logits.new_zeros(())
            for logits, caption in ((views_logits, found[:, 0]), (caption_logits, found.flatten())):
                bound = bind(logits, self.captions.k(caption), self.row_by_row)
                loss = loss + mean_entropy(bound[confident(bound, ratio)])
        self._step(optimizer, loss)
        with torch.no_grad(), self._precision():
            clean = self._images(pixels[:1])
            scores = [
                self._logits(clean, self._text(context))[0] for context in (view_context, caption_context)
            ]
            return (scores[0] + scores[1]).float()

    def method(self, name: str) -> Callable[[Tensor], Tensor]:
        """One of the three methods by its registered name."""
        return {"clip": self.clip, "tpt": self.tpt, "ml-tta": self.ml_tta}[name]

    def _images(self, pixels: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.nn.functional.normalize(self.backbone.model.encode_image(pixels), dim=-1)

    def _text(self, context: Tensor) -> Tensor:
        return encode_text_with_context(self.backbone, self.tokens, context)

    def _logits(self, rows: Tensor, text: Tensor) -> Tensor:
        return self.backbone.logit_scale * rows @ text.T

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cuda", torch.float16) if self.autocast else nullcontext()

    def _step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        self._scaler.scale(loss).backward()
        self._scaler.step(optimizer)
        self._scaler.update()


def entropy(logits: Tensor) -> Tensor:
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


def mean_entropy(logits: Tensor) -> Tensor:
    return entropy(logits).mean()


def marginal_entropy(logits: Tensor) -> Tensor:
    log_mean = logits.log_softmax(-1).logsumexp(0) - torch.tensor(float(len(logits))).log()
    return -(log_mean.exp() * log_mean).sum()


def confident(logits: Tensor, ratio: float) -> Tensor:
    """The rows of lowest entropy, at least one."""
    return entropy(logits.detach().float()).argsort()[: max(1, int(len(logits) * ratio))]


def bind(logits: Tensor, k: Tensor, row_by_row: bool = True) -> Tensor:
    """Algorithm 1: bind each row's k highest logits to its maximum; the added value carries no gradient.

    Row by row, as in the paper, or all rows with one mask; the result is the same.
    """
    value = logits.detach()
    order = value.argsort(-1, descending=True)
    top = value.max(-1, keepdim=True).values
    if not row_by_row:
        labels = torch.arange(logits.shape[-1], device=k.device).expand_as(order)
        rank = torch.empty_like(order).scatter_(-1, order, labels)
        return logits + torch.where(rank < k[:, None], top - value, 0)
    added = torch.zeros_like(value)
    for i, size in enumerate(k.tolist()):
        chosen = order[i, :size]
        added[i, chosen] = top[i] - value[i, chosen]
    return logits + added
