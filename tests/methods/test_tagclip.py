"""TagCLIP against plain loops written from its description, on a random ViT; and on towers without attention."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from mltta import create_method
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.tagclip import BACKGROUND, TagCLIP, above_mean, boxes_of, ends_of
from mltta.model.encoded import Encoded
from tests import golden_data as golden

LABELS = ["dog", "cat", "stop sign", "person", "keyboard"]


def pictures(method: TagCLIP, count: int, seed: int = 0) -> Encoded:
    """Pictures of a few coloured boxes, rendered at any size."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(count, 3, 5, 5, generator=generator) * 2

    def look(image):
        return lambda spec, preprocess, views: F.interpolate(small[image][None], (preprocess.size,) * 2)

    features = F.normalize(torch.randn(count, 1, 32, generator=generator), dim=-1)
    return Encoded({ViewSpec(count=1): features}, [look(i) for i in range(count)])


class ByHand:
    """TagCLIP as its description says it: a loop over patches, heads, labels, cells."""

    def __init__(self, visual, vocabulary, labels, scale):
        self.visual, self.vocabulary, self.labels, self.scale = visual, vocabulary, labels, scale

    def tokens(self, pixels):
        patches = self.visual.conv1(pixels[None])
        h, w = patches.shape[2:]
        x = patches.flatten(2)[0].T
        held = self.visual.positional_embedding
        n = math.isqrt(len(held) - 1)
        grid = held[1:].T.reshape(1, -1, n, n)
        if n != h:
            grid = F.interpolate(grid, (h, w), mode="bicubic", antialias=True)
        x = torch.cat([self.visual.class_embedding[None] + held[:1], x + grid.flatten(2)[0].T])
        return self.visual.ln_pre(x), h, w

    def heads(self, block, x):
        """Attention (heads, L, L) and values (heads, L, d)."""
        weight, bias = block.attn.in_proj_weight, block.attn.in_proj_bias
        q, k, v = (F.linear(block.ln_1(x), weight, bias)).chunk(3, dim=-1)
        size = q.shape[-1] // block.attn.num_heads
        parts = [[m[:, i : i + size] for i in range(0, m.shape[-1], size)] for m in (q, k, v)]
        return list(zip(*parts, strict=True)), size

    def block(self, block, x, mask=None, alone=False):
        heads, size = self.heads(block, x)
        maps, out = [], []
        for q, k, v in heads:
            a = (q @ k.T / math.sqrt(size) + (0 if mask is None else mask)).softmax(-1)
            maps.append(a)
            out.append((torch.eye(len(a)) if alone else a) @ v)
        x = x + block.attn.out_proj(torch.cat(out, dim=-1))
        return x + block.mlp(block.ln_2(x)), sum(maps) / len(maps)

    def shares(self, x):
        f = F.normalize(self.visual.ln_post(x) @ self.visual.proj, dim=-1)
        return (self.scale * f @ self.vocabulary.T).softmax(-1)

    def __call__(self, pixels, side, patch):
        blocks = list(self.visual.transformer.resblocks)
        x, h, w = self.tokens(pixels)
        attention = []
        for i, block in enumerate(blocks):
            x, a = self.block(block, x, alone=i == len(blocks) - 1)
            attention.append(a[1:, 1:])
        p = self.shares(x[1:])
        n, total = len(p), len(blocks)
        late = attention[max(0, total - 4) : total - 1]
        affinity = torch.zeros(n, n)
        for i in range(n):
            for j in range(n):
                votes = sum(bool(a[i, j] > a.mean()) for a in attention)
                if votes * 3 >= total:
                    affinity[i, j] = sum(a[i, j] for a in late) / len(late)
        coarse = affinity @ p
        refined = torch.zeros_like(coarse)
        for c in range(p.shape[1]):
            column = coarse[:, c]
            column = (column - column.min()) / (column.max() - column.min())
            cells = {(i // w, i % w) for i in range(n) if column[i] > column.mean()}
            inside = torch.zeros(n)
            for top, bottom, left, right in self.boxes(cells):
                for y in range(top, bottom + 1):
                    for z in range(left, right + 1):
                        inside[y * w + z] = 1
            refined[:, c] = affinity @ (inside * p[:, c])
        score = refined.max(dim=0).values[: self.labels]
        bar = refined.min() + 0.5 * (refined.max() - refined.min())
        self.likely = [c for c in range(self.labels) if score[c] > bar]
        for c in self.likely:
            column = refined[:, c]
            column = (column - column.min()) / (column.max() - column.min())
            region = (column > 0.5).view(h, w)
            ys, xs = region.nonzero().T
            top, bottom, left, right = int(ys.min()), int(ys.max()), int(xs.min()), int(xs.max())
            crop = pixels[:, top * patch : (bottom + 1) * patch, left * patch : (right + 1) * patch]
            crop = F.interpolate(crop[None], (side, side), mode="bilinear")[0]
            tokens, gh, gw = self.tokens(crop)
            mask = torch.zeros(len(tokens), len(tokens))
            for y in range(gh):
                for z in range(gw):
                    source = (top + y * (bottom - top + 1) // gh, left + z * (right - left + 1) // gw)
                    if not region[source]:
                        mask[0, 1 + y * gw + z] = -1000
            for block in blocks:
                tokens, _ = self.block(block, tokens, mask)
            score[c] = (score[c] + self.shares(tokens[0])[c]) / 2
        return score

    @staticmethod
    def boxes(cells):
        """Boxes of the parts that hang together, by flooding."""
        left_over = set(cells)
        while left_over:
            part, edge = set(), [left_over.pop()]
            while edge:
                y, x = edge.pop()
                part.add((y, x))
                for near in ((y + a, x + b) for a in (-1, 0, 1) for b in (-1, 0, 1)):
                    if near in left_over:
                        left_over.remove(near)
                        edge.append(near)
            ys, xs = zip(*part, strict=True)
            yield min(ys), max(ys), min(xs), max(xs)


@pytest.mark.parametrize("temperature", ["sharp", "soft"])
def test_scores_are_those_of_plain_loops(temperature):
    backbone = golden.backbone("vit", temperature)
    method = create_method("tagclip", backbone, LABELS, scale=2.0)
    images = pictures(method, 4)
    pixels = method.look(images)
    assert pixels.shape == (4, 3, 64, 64)
    twin = ByHand(backbone.model.visual, method.vocabulary, len(LABELS), backbone.logit_scale)
    found, again = method(images), 0
    for image, got in zip(pixels, found, strict=True):
        torch.testing.assert_close(got, twin(image, 32, 8), atol=2e-5, rtol=1e-4)
        again += len(twin.likely)
    assert again > 0, "no label was looked at again"


def test_words_of_a_label_are_no_background():
    method = create_method("tagclip", golden.backbone("vit"), LABELS)
    assert len(method.vocabulary) == len(LABELS) + len(BACKGROUND.split()) - 2  # sign and keyboard


def test_boxes_are_around_what_hangs_together():
    cells = torch.tensor(
        [[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [1, 0, 0, 0, 1]]],
        dtype=torch.bool,
    )
    inside = [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [1, 0, 0, 0, 1]]
    assert boxes_of(cells)[0].int().tolist() == inside
    assert ends_of(cells[0]) == (0, 4, 0, 4)
    generator = torch.Generator().manual_seed(0)
    many = torch.rand(30, 9, 7, generator=generator) < 0.3
    for one, got in zip(many, boxes_of(many), strict=True):
        want = torch.zeros_like(one)
        for top, bottom, left, right in ByHand.boxes({tuple(cell) for cell in one.nonzero().tolist()}):
            want[top : bottom + 1, left : right + 1] = True
        assert torch.equal(got, want)


def test_a_flat_map_stands_out_nowhere_and_everywhere():
    assert above_mean(torch.full((1, 3, 3), 0.25)).all()


def test_a_tower_without_attention_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match="tagclip-local"):
        create_method("tagclip", golden.backbone("rn"), LABELS)


def test_its_idea_runs_on_a_cnn_and_finds_each_label_somewhere():
    method = create_method("tagclip-local", golden.backbone("rn"), LABELS)
    images = pictures(method, 2)
    scores, maps = method(images), method.where(images)
    assert maps.shape[:2] == scores.shape
    pixels = method.look(images)
    for image, got in zip(pixels, maps, strict=True):
        f = F.normalize(golden.backbone("rn").local(image[None])[0], dim=-1).flatten(0, 1)
        like = (10 * f @ f.T).softmax(-1)
        affinity = like * (like >= like.mean())
        p = (method.logit_scale * f @ method.vocabulary.T).softmax(-1)
        coarse = (affinity @ p).T.reshape(-1, *got.shape[1:])
        inside = boxes_of(above_mean(coarse)).flatten(1).T
        want = (affinity @ (inside * p)).T.reshape(coarse.shape)[: len(LABELS)]
        torch.testing.assert_close(got, want)
    assert create_method("tagclip-local", golden.backbone("rn"), LABELS, candidates=0)(images).shape == (2, 5)
