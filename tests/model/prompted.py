"""Learned prompts for tests, and what they do written plainly: whole sequences, no sharing, one graph for all."""

from __future__ import annotations

from functools import cache

import open_clip
import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.model.learned_prompts import CoOp, MaPLe
from mltta.model.torch_backbone import TorchBackbone
from mltta.model.weights import Loaded

LABELS = ["dog", "cat", "boat", "traffic light", "person", "red bus", "chair"]


@cache
def tiny() -> TorchBackbone:
    """A random ViT of four blocks in either tower."""
    torch.manual_seed(0)
    model = open_clip.CLIP(
        embed_dim=32,
        vision_cfg={"layers": 4, "width": 128, "patch_size": 8, "image_size": 32},
        text_cfg={"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 4},
        quick_gelu=True,
    )
    preprocess = {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    return TorchBackbone(Loaded("tiny", model, open_clip.SimpleTokenizer(), preprocess), torch.device("cpu"))


def maple_state(width: int = 64, image_width: int = 128, deeper: int = 2, seed: int = 0) -> dict[str, Tensor]:
    """MaPLe's tensors, random, under the names of the released checkpoint."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.05

    # a strong projection, so that the image side of a gradient is no trifle beside the text side
    state = {
        "ctx": draw(2, width),
        "proj.weight": 10 * draw(image_width, width),
        "proj.bias": draw(image_width),
    }
    for i in range(deeper):
        state[f"compound_prompts_text.{i}"] = draw(2, width)
        state[f"compound_prompt_projections.{i}.weight"] = draw(image_width, width)
        state[f"compound_prompt_projections.{i}.bias"] = draw(image_width)
    return {f"prompt_learner.{name}": value for name, value in state.items()}


def maple(**shape: int) -> MaPLe:
    return MaPLe({name.removeprefix("prompt_learner."): v for name, v in maple_state(**shape).items()})


def coop(context: Tensor, **about: object) -> CoOp:
    """CoOp prompts from context vectors (M, W), or (C, M, W) with others for each label."""
    return CoOp({"ctx": context.detach().float()}, about)


def coop_of(tokens: int = 3, seed: int = 0) -> CoOp:
    return coop(torch.randn(tokens, 64, generator=torch.Generator().manual_seed(seed)) * 0.05)


class Plain:
    """A model without prompts, its learned prompts beside it: text and image features of any context."""

    def __init__(self, backbone: TorchBackbone, prompts: CoOp | MaPLe, labels: list[str]):
        self.model, self.tokenizer = backbone.model, backbone.tokenizer
        self.prompts, self.scale = prompts, backbone.logit_scale
        self.start = prompts.context
        deep = prompts.deeper if isinstance(prompts, MaPLe) else 0
        self.deep_text = [prompts.tensors[f"compound_prompts_text.{i}"] for i in range(deep)]
        self.deep_image = [
            self.project(f"compound_prompt_projections.{i}", t) for i, t in enumerate(self.deep_text)
        ]
        # MaPLe replaces the first two of the four words, CoOp all of them
        words = "a photo of a" if deep else " ".join("X" * len(self.start))
        self.tokens = self.tokenizer([f"{words} {label}." for label in labels], context_length=77)

    def project(self, layer: str, x: Tensor) -> Tensor:
        tensors = self.prompts.tensors
        return x @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"]

    def text(self, context: Tensor) -> Tensor:
        x = self.model.token_embedding(self.tokens)
        n = len(context)
        return self._read(
            torch.cat([x[:, :1], context.expand(len(x), -1, -1), x[:, 1 + n :]], 1), self.tokens
        )

    def sentences(self, texts: list[str]) -> Tensor:
        tokens = self.tokenizer(texts, context_length=77)
        return self._read(self.model.token_embedding(tokens), tokens)

    def _read(self, x: Tensor, tokens: Tensor) -> Tensor:
        x = x + self.model.positional_embedding
        for i, block in enumerate(self.model.transformer.resblocks):
            if 1 <= i <= len(self.deep_text):
                x = torch.cat([x[:, :1], self.deep_text[i - 1].expand(len(x), -1, -1), x[:, 3:]], 1)
            x = block(x, attn_mask=self.model.attn_mask)
        x = self.model.ln_final(x)[torch.arange(len(x)), tokens.argmax(-1)] @ self.model.text_projection
        return F.normalize(x, dim=-1)

    def images(self, pixels: Tensor, context: Tensor) -> Tensor:
        visual = self.model.visual
        if not isinstance(self.prompts, MaPLe):
            return F.normalize(self.model.encode_image(pixels), dim=-1).detach()
        x = visual.conv1(pixels).flatten(2).permute(0, 2, 1)
        x = torch.cat([visual.class_embedding.expand(len(x), 1, -1), x], 1) + visual.positional_embedding
        x = torch.cat([x, self.project("proj", context).expand(len(x), -1, -1)], 1)
        x = visual.ln_pre(x)
        for i, block in enumerate(visual.transformer.resblocks):
            if 1 <= i <= len(self.deep_image):
                x = torch.cat([x[:, :-2], self.deep_image[i - 1].expand(len(x), -1, -1)], 1)
            x = block(x)
        return F.normalize(visual.ln_post(x)[:, 0] @ visual.proj, dim=-1)

    def logits(self, pixels: Tensor, context: Tensor) -> Tensor:
        return self.scale * self.images(pixels, context) @ self.text(context).T
