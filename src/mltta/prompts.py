"""Where the learnable context comes from, and how labels are laid out behind it as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mltta.errors import ConfigError, LabelError

DEFAULT_TEMPLATE = "a photo of a {}."


@dataclass(frozen=True)
class Prompts:
    """C label prompts as token ids, with room for M context tokens in front of every label."""

    texts: tuple[str, ...]
    tokens: Tensor  # (C, context_length), the context's positions hold placeholder words
    start: int  # position of the first context token: 1 behind a start token, else 0
    length: int  # M
    end: Tensor  # (C,) position of the last token, the end-of-text token where there is one


def split_template(template: str) -> tuple[str, str]:
    """Cut "a photo of a {}." into the words before the label and what follows it."""
    before, hole, after = template.partition("{}")
    if not hole or "{}" in after:
        raise ConfigError(f"a prompt template holds one {{}} where the label goes; got {template!r}")
    return before.strip(), after


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text without start, end or padding, for open_clip's own and Hugging Face tokenizers."""
    if hasattr(tokenizer, "encode"):
        return list(tokenizer.encode(text))
    inner = getattr(tokenizer, "tokenizer", None)
    if inner is None:
        raise ConfigError(f"prompts cannot be built with a {type(tokenizer).__name__}")
    return list(inner.encode(text, add_special_tokens=False))


def build_prompts(
    tokenizer: Any, labels: Sequence[str], *, template: str, context_length: int, n_context: int | None = None
) -> Prompts:
    """Lay out every label behind the template's words, or behind ``n_context`` placeholder words.

    Args:
        tokenizer: the backbone's open_clip tokenizer.
        labels: the labels as they read in a prompt.
        template: text with one {}; the words in front of it are the context.
        context_length: how many tokens the text tower takes.
        n_context: number of learned context vectors that replace the template's words.
    """
    before, after = split_template(template)
    if n_context is not None:
        before = " ".join(["X"] * n_context)
    n_before = len(token_ids(tokenizer, before)) if before else 0
    texts = tuple(f"{before} {label}{after}".strip() for label in labels)
    bare = [token_ids(tokenizer, text) for text in texts]
    tokens = tokenizer(list(texts), context_length=context_length)
    first = next((ids[0] for ids in bare if ids), None)
    start = 0 if first is not None and int(tokens[0, 0]) == first else 1
    room = context_length - start - 1
    for label, ids in zip(labels, bare, strict=True):
        if len(ids) > room:
            raise LabelError(
                f"label {label[:60]!r} is too long: its prompt takes {len(ids)} tokens "
                f"and this model reads {room}. Shorten the label."
            )
    end = torch.tensor([start + len(ids) for ids in bare]).clamp(max=context_length - 1)
    return Prompts(texts, tokens, start, n_before, end)


def random_context(n_context: int, width: int, seed: int = 0) -> Tensor:
    """Context vectors (M, W) drawn as CoOp draws them: normal, standard deviation 0.02."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_context, width, generator=generator) * 0.02
