"""DART against a twin written from its description, and the image tower that it prompts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from open_clip.transformer import VisionTransformer
from PIL import Image

from mltta import LabelSet, Tagger, create_method, load_backbone
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.dart import DART, DARTConfig
from mltta.methods.towers import PromptedViT
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from tests import golden_data as golden

LABELS = ["cat", "lamp", "book", "red bus", "bird"]
VIEWS = 8


def photos(images: int, seed: int = 0) -> torch.Tensor:
    """Pixels (B, N, 3, 32, 32): views that resemble their image, and images of many colours."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randn(images, 1, 3, 32, 32, generator=generator)
    colour = 2 * torch.randn(images, 1, 3, 1, 1, generator=generator)
    return clean + colour + 1.5 * torch.randn(images, VIEWS, 3, 32, 32, generator=generator)


def encoded(backbone: Backbone, pixels: torch.Tensor) -> Encoded:
    """Features of the views, and the pixels to look at again."""
    features = torch.stack([backbone.encode_images(one) for one in pixels])
    looks = [lambda spec, preprocess, own, image=image: image[list(own)] for image in pixels]
    return Encoded({ViewSpec(count=VIEWS): features}, looks)


def make(backbone: Backbone, captions: LabelledCaptions | None = None, **options) -> DART:
    text = backbone.encode_labels(LabelSet.of(LABELS))
    problem = Problem(text, backbone.logit_scale, captions, backbone=backbone)
    return DART(problem, DARTConfig(views=VIEWS, **{"select_ratio": 0.3, **options}))


class Twin:
    """DART as METHODS says it: whole prompts of 77 tokens, attention by hand, torch's optimizer."""

    def __init__(
        self, backbone: Backbone, prompt: torch.Tensor, *, steps=1, w=0.1, h=5000.0, kept=2, layer=1
    ):
        self.model, self.scale, self.layer = backbone.model, backbone.logit_scale, layer
        self.steps, self.w, self.h, self.kept = steps, w, h, kept
        self.choices: list[tuple[int, int]] = []
        self.tokens = backbone.tokenizer([f"a photo of a {label}." for label in LABELS], context_length=77)
        words = self.model.token_embedding(self.tokens)
        self.before, self.init, self.after = words[:, :1], words[:, 1:5], words[:, 5:]
        self.prompt = prompt.clone()
        self.text_shadow = self.init.clone()
        self.image_shadow = torch.stack([prompt[0]] * len(LABELS))

    def labels(self, context: torch.Tensor) -> torch.Tensor:
        model = self.model
        x = torch.cat([self.before, context, self.after], dim=1) + model.positional_embedding
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask))
        x = x[torch.arange(len(x)), self.tokens.argmax(-1)] @ model.text_projection
        return x / x.norm(dim=-1, keepdim=True)

    def views(self, pixels: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        v = self.model.visual
        x = torch.stack([F.conv2d(p[None], v.conv1.weight, stride=8)[0].flatten(1).T for p in pixels])
        x = torch.cat([v.class_embedding.repeat(len(x), 1, 1), x], dim=1) + v.positional_embedding
        x = v.ln_pre(x)
        for i, block in enumerate(v.transformer.resblocks):
            q = k = u = block.ln_1(x)
            if i == self.layer:
                key, value = (p.repeat(len(x), 1, 1) for p in prompt[0, 0])
                k = torch.cat([q[:, :1], key, q[:, 1:]], dim=1)
                u = torch.cat([q[:, :1], value, q[:, 1:]], dim=1)
            weights = block.attn.in_proj_weight.chunk(3)
            biases = block.attn.in_proj_bias.chunk(3)
            q, k, u = (z @ a.T + b for z, a, b in zip((q, k, u), weights, biases, strict=True))
            heads, wide = block.attn.num_heads, q.shape[-1] // block.attn.num_heads
            out = []
            for head in range(heads):
                own = slice(head * wide, (head + 1) * wide)
                attention = (q[..., own] @ k[..., own].transpose(1, 2) / math.sqrt(wide)).softmax(dim=-1)
                out.append(attention @ u[..., own])
            x = x + block.attn.out_proj(torch.cat(out, dim=-1))
            hidden = block.mlp.c_fc(block.ln_2(x))
            x = x + block.mlp.c_proj(hidden * torch.sigmoid(1.702 * hidden))
        x = v.ln_post(x[:, 0]) @ v.proj
        return x / x.norm(dim=-1, keepdim=True)

    def select(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The most confident rows, as they are and bound."""
        bound = []
        for j, row in enumerate(logits):
            top = sorted(range(len(row)), key=lambda c: -row[c].item())[: self.k[j] if self.k else 0]
            bound.append(torch.stack([v + (row.max() - v).detach() * (c in top) for c, v in enumerate(row)]))
        unsure = [-float((p * p.log()).sum()) for p in torch.stack(bound).detach().double().softmax(dim=-1)]
        kept = sorted(range(len(logits)), key=lambda j: unsure[j])[: self.kept]
        return logits[kept], torch.stack([bound[j] for j in kept])

    def __call__(self, pixels: torch.Tensor, k: list[int] | None = None) -> torch.Tensor:
        self.k = k
        context = torch.nn.Parameter(self.w * self.text_shadow + (1 - self.w) * self.init)
        prompt = torch.nn.Parameter(self.prompt)
        optimizer = torch.optim.AdamW([context, prompt], lr=5e-3)
        for _ in range(self.steps):
            _, bound = self.select(self.scale * self.views(pixels, prompt) @ self.labels(context).T)
            p = bound.softmax(dim=-1).mean(dim=0)
            optimizer.zero_grad()
            (-(p * p.log()).sum()).backward()
            optimizer.step()
        context, prompt = context.detach(), prompt.detach()
        logits, _ = self.select(self.scale * self.views(pixels, prompt) @ self.labels(context).T)
        seen = int(logits.mean(dim=0).argmax())
        prompt = self.w * self.image_shadow[seen] + (1 - self.w) * prompt
        scores = (self.scale * self.views(pixels[:1], prompt) @ self.labels(context).T)[0]
        label = int(scores.argmax())
        g = math.exp(-float(scores.max()) / self.h)
        self.text_shadow[label] = g * self.text_shadow[label] + (1 - g) * context[label]
        self.image_shadow[label] = g * self.image_shadow[label] + (1 - g) * prompt[0]
        self.context, self.prompt = context, prompt
        self.choices.append((seen, label))
        return scores


def agree(ours: torch.Tensor, theirs: torch.Tensor, within: float = 1e-4) -> None:
    """Equal but for one in a hundred: where a gradient vanishes, AdamW steps to either side by its rounding."""
    assert ours.shape == theirs.shape
    assert ((ours - theirs).abs() > within).float().mean() < 0.01


@pytest.mark.parametrize("temperature", ["sharp", "soft"])
@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, {}),
        (
            {"text_weight": 0.5, "image_weight": 0.5, "text_horizon": 40.0, "image_horizon": 40.0},
            {"w": 0.5, "h": 40.0},
        ),
        ({"steps": 3, "select_ratio": 0.5, "layer": 0}, {"steps": 3, "kept": 4, "layer": 0}),
    ],
)
def test_a_stream_equals_a_twin_written_from_the_description(monkeypatch, temperature, options, same):
    backbone, pixels = golden.backbone("vit", temperature), photos(6, seed=5)
    method = make(backbone, **options)
    state, images, tuned = method.start(), encoded(backbone, pixels), []
    twin, first = Twin(backbone, state["image_prompt"], **same), {k: v.clone() for k, v in state.items()}
    tune = method.tune
    monkeypatch.setattr(method, "tune", lambda *given: tuned.append(tune(*given)) or tuned[-1])
    for i in range(6):
        branches, state = method.step(state, images[i])
        scores = twin(pixels[i])
        agree(tuned[i][0], twin.context)
        agree(state["image_prompt"], twin.prompt)
        agree(state["text_shadow"], twin.text_shadow, 1e-5)
        agree(state["image_shadow"], twin.image_shadow, 1e-5)
        torch.testing.assert_close(branches["view"][0], scores, atol=1e-4, rtol=0)
    moved = {k: float((state[k] - first[k]).abs().max()) for k in state}
    assert moved["image_prompt"] > 5e-3
    assert len(set(twin.choices)) > 2
    if "text_horizon" in options:  # with the usual horizon a shadow hardly moves in six images
        assert temperature == "sharp" or any(seen != label for seen, label in twin.choices)
        assert min(moved["text_shadow"], moved["image_shadow"]) > 1e-3


MENTIONS = [[0], [1, 2], [], [3, 4, 0], [2, 2], [4, 1, 2, 3], [1, 0]]


def test_with_binding_it_equals_the_twin_that_ties_as_many_labels_as_the_nearest_caption_names():
    backbone, pixels = golden.backbone("vit", "soft"), photos(4)
    images = encoded(backbone, pixels)
    features = images.features(ViewSpec(count=VIEWS))
    near, mentions = features[:, :7].flatten(0, 1), MENTIONS * 4  # captions that lie among the views
    method = make(backbone, LabelledCaptions(near, mentions, len(LABELS)), bind=True)
    state, seen = method.start(), set()
    twin = Twin(backbone, state["image_prompt"])
    for i in range(4):
        # a caption that names no label does not count, and one that names a label twice counts it once
        like = [
            [float(x @ y) if labels else -1 for y, labels in zip(near, mentions, strict=True)]
            for x in features[i]
        ]
        k = [len(set(mentions[row.index(max(row))])) for row in like]
        seen.add(tuple(k))
        branches, state = method.step(state, images[i])
        torch.testing.assert_close(branches["view"][0], twin(pixels[i], k), atol=1e-4, rtol=0)
        agree(state["image_prompt"], twin.prompt)
    assert all(len(set(k)) == 4 for k in seen)
    plain = make(backbone)(images)
    assert (method(images) - plain).abs().max() > 1e-2
    single = make(backbone, LabelledCaptions(near[:2], [[0], [1]], len(LABELS)), bind=True)
    assert torch.equal(single(images), plain)  # one label is tied to nothing


def test_captions_are_asked_for_only_when_labels_are_bound():
    backbone = golden.backbone("vit")
    assert create_method("dart", backbone, LABELS).problem.captions is None
    assert create_method("dart", backbone, LABELS, bind=True).problem.captions is not None
    with pytest.raises(ConfigError, match="dart needs captions"):
        make(backbone, bind=True)


def test_contexts_start_anew_with_every_image_and_the_image_prompt_does_not():
    backbone = golden.backbone("vit", "soft")
    images = encoded(backbone, photos(3))

    def after(first: int, **options) -> torch.Tensor:
        method = make(backbone, text_weight=0.0, **options)
        _, state = method.step(method.start(), images[first])
        return method.step(state, images[2])[0]["view"]

    assert (after(0) - after(1)).abs().max() > 1e-4
    torch.testing.assert_close(after(0, lr=0.0), after(1, lr=0.0))  # what differs is what was tuned


def test_the_first_image_prompt_is_uniform_and_belongs_to_the_seed():
    backbone = golden.backbone("vit")
    start = [make(backbone, prompt_seed=seed).start()["image_prompt"] for seed in (0, 0, 1)]
    assert torch.equal(start[0], start[1])
    assert not torch.equal(start[0], start[2])
    assert start[0].shape == (1, 1, 2, 64)
    assert 0.9 < float(start[0].abs().max()) <= 1
    assert abs(float(start[0].mean())) < 0.2


# The image tower


@pytest.mark.parametrize("layer", [0, 1])
def test_without_a_prompt_the_tower_is_the_models_own(layer):
    backbone, pixels = golden.backbone("vit"), photos(2).flatten(0, 1)
    tower = PromptedViT(backbone, layer)
    ours = tower.finish(tower.begin(pixels), None)
    torch.testing.assert_close(ours, backbone.encode_images(pixels), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [{"ls_init_value": 0.3}, {"no_ln_pre": True}, {"final_ln_after_pool": True}, {"patch_dropout": 0.5}],
)
def test_other_vits_of_open_clip_run_as_they_do_there(options):
    torch.manual_seed(0)
    backbone = SmallBackbone(VisionTransformer(32, 8, 64, 3, 4, 4.0, output_dim=16, **options))
    pixels = photos(1)[0]
    tower = PromptedViT(backbone, 1)
    want = F.normalize(backbone.model.visual(pixels), dim=-1)
    torch.testing.assert_close(tower.finish(tower.begin(pixels), None), want, atol=1e-5, rtol=0)


class SmallBackbone:
    """As much of a backbone as the tower asks for."""

    name, device, image_dtype = "small", torch.device("cpu"), torch.float32

    def __init__(self, visual: torch.nn.Module):
        self.model = torch.nn.Module()
        self.model.visual = visual.eval().requires_grad_(False)


def test_a_key_that_nobody_attends_to_changes_nothing():
    visual = VisionTransformer(32, 8, 64, 2, 4, 4.0, output_dim=16)
    with torch.no_grad():
        for block in visual.transformer.resblocks:
            block.attn.in_proj_weight[:64] = 0  # queries are the same constant everywhere
            block.attn.in_proj_bias[:64] = 1
    tower, pixels = PromptedViT(SmallBackbone(visual), 1), photos(1)[0]
    tokens = tower.begin(pixels)
    key = -1000 * visual.transformer.resblocks[1].attn.in_proj_weight[64:128].sum(0)
    value = torch.randn(64)
    torch.testing.assert_close(tower.finish(tokens, torch.stack([key, value])), tower.finish(tokens, None))
    assert not torch.allclose(tower.finish(tokens, torch.stack([-key, value])), tower.finish(tokens, None))


def test_a_backbone_without_a_vit_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"DART.*needs a ViT image tower.*ModifiedResNet"):
        create_method("dart", golden.backbone("rn"), LABELS)
    with pytest.raises(ConfigError, match=r"mini.*TimmModel"):
        create_method("dart", load_backbone("mini"), LABELS)
    for visual in (VisionTransformer(32, 8, 64, 2, 4, 4.0, pool_type="avg"),):
        with pytest.raises(ConfigError, match="small"):
            PromptedViT(SmallBackbone(visual), 1)
    with pytest.raises(ConfigError, match="blocks 0 to 1"):
        make(golden.backbone("vit"), layer=2)
    with pytest.raises(ConfigError, match="backbone"):
        DART(Problem(golden.backbone("vit").encode_labels(LabelSet.of(LABELS)), 100.0), DARTConfig())


def test_the_tagger_shows_it_the_views_and_it_learns_from_the_photos_before():
    rng = np.random.default_rng(0)
    one, two = (Image.fromarray(rng.integers(0, 255, (60, 90, 3), dtype=np.uint8)) for _ in range(2))
    tagger = Tagger(golden.backbone("vit", "soft"), LABELS, method="dart", views=8)
    alone = list(tagger(two))
    assert list(tagger([two])[0]) == alone
    assert list(tagger([one, two])[1]) != alone


@pytest.mark.parametrize(
    "bad", [{"layer": -1}, {"text_weight": 1.5}, {"image_horizon": 0.0}, {"bind": 1}, {"select_ratio": 0.0}]
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        DARTConfig.make(**bad)
