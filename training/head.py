"""Train the last convolution and the projection of the image tower, and a vector per noun, on maps of photos.

    python -m training.head --maps MAPS --model FOLDER --out HEAD --minutes 25

Everything before the last convolution stays frozen, so its maps are computed once (`maps.py`), and a run takes half an
hour on two CPU cores. Texts stay frozen too: a noun's vector starts at its text feature and is pulled back to it.
`retext.py` then teaches the text tower what the vectors learned.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import losses
from training import model as clip
from training.lists import Lists
from training.maps import Maps
from training.progress import Log
from training.rule import SOFTER

GRID = 9  # locations per side of a map
WINDOW = 3


@dataclass(frozen=True)
class HeadRecipe:
    """Settings; the defaults are the recipe of the included model."""

    seed: int = 0
    batch: int = 192
    steps: int = 3000
    captioned: float = 0.22  # fraction of captioned photos in a batch
    samples: float = 0.04  # fraction of ImageNet photos
    lr: float = 4e-4
    lr_nouns: float = 1e-3
    decay: float = 0.02
    warmup: float = 0.03
    ema: float = 0.995
    crops: float = 0.5  # share of batches whose maps are cropped
    composed: int = 48  # pictures composed of the windows of several photos, per step
    parts: int = 4  # most photos of a composed picture
    longest: int = 80  # longest list
    w_rank: float = 1.0
    w_noun: float = 1.0
    w_somewhere: float = 0.7
    w_answer: float = 1.0
    w_composed: float = 1.0
    w_contrastive: float = 1.0
    w_keep: float = 1.0
    w_anchor: float = 2.0
    gamma: float = 2.0
    margin: float = 0.02
    even: float = 0.3


class Head(nn.Module):
    """The end of the image tower, from its last convolution, and the nouns' vectors.

    Batch norm is an affine map with fixed statistics, and is folded into the convolution here.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, projection: Tensor, shift: Tensor, nouns: Tensor
    ) -> None:
        super().__init__()
        # copies, because a model's own tensors must not change with them
        self.weight, self.bias = (
            nn.Parameter(weight.clone()),
            nn.Parameter(bias.clone()),
        )  # (1408, 352), (1408,)
        self.projection, self.shift = (
            nn.Parameter(projection.clone()),
            nn.Parameter(shift.clone()),
        )  # (384, 1408)
        self.nouns = nn.Parameter(nouns.clone())  # (C, 384)
        self.scales = nn.Parameter(torch.tensor([math.log(20.0), -5.0, math.log(20.0), -5.0]))

    @classmethod
    def of(cls, state: dict[str, Tensor], nouns: Tensor) -> Head:
        """The head of a model with EfficientNet's names."""
        trunk, head = "visual.trunk.", "visual.head.proj."
        scale = state[f"{trunk}bn2.weight"] / (state[f"{trunk}bn2.running_var"] + BN_EPS).sqrt()
        weight = state[f"{trunk}conv_head.weight"][:, :, 0, 0] * scale[:, None]
        bias = state[f"{trunk}bn2.bias"] - state[f"{trunk}bn2.running_mean"] * scale
        return cls(weight, bias, state[f"{head}weight"], state[f"{head}bias"], nouns)

    def locations(self, maps: Tensor) -> Tensor:
        """(n, L, 1408) of maps (n, L, 352)."""
        return F.linear(maps, self.weight, self.bias).clamp(0, 6)

    def project(self, means: Tensor) -> Tensor:
        """Unit features of means of locations."""
        return F.normalize(F.linear(means, self.projection, self.shift), dim=-1)

    def put_into(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """A model's weights with this head in place of its own."""
        trunk, head = "visual.trunk.", "visual.head.proj."
        scale = state[f"{trunk}bn2.weight"] / (state[f"{trunk}bn2.running_var"] + BN_EPS).sqrt()
        return state | {
            f"{trunk}conv_head.weight": (self.weight / scale[:, None])[:, :, None, None].detach(),
            f"{trunk}bn2.bias": (self.bias + state[f"{trunk}bn2.running_mean"] * scale).detach(),
            f"{head}weight": self.projection.detach(),
            f"{head}bias": self.shift.detach(),
        }


BN_EPS = 1e-3  # of timm's tf_ models


def pooled(locations: Tensor, size: int) -> Tensor:
    """Nine windows (n, 9, D) of maps (n, size * size, D)."""
    n, _, d = locations.shape
    maps = locations.transpose(1, 2).reshape(n, d, size, size)
    return F.avg_pool2d(maps, WINDOW, (size - WINDOW) // 2).flatten(2).transpose(1, 2)


class Run:
    """State of a run."""

    def __init__(self, maps: Maps, state: dict[str, Tensor], recipe: HeadRecipe) -> None:
        self.maps, self.recipe = maps, recipe
        self.host = np.random.default_rng(recipe.seed)
        texts = maps.texts
        self.start = F.normalize(texts["simple"].mean(1), dim=-1)
        self.head, self.before = Head.of(state, self.start.clone()), Head.of(state, self.start.clone())
        self.before.requires_grad_(False)
        self.scale = float(texts["scale"])
        self.classes = texts["classes"]
        self.lists = Lists(maps.nouns, maps.often, maps.similarity)

    def losses(self) -> dict[str, Tensor]:
        """All losses of a step."""
        r, maps, head = self.recipe, self.maps, self.head
        rows, captioned = maps.drawn(r.batch, r.captioned, r.samples, self.host)
        size = int(self.host.choice((5, 7))) if self.host.random() < r.crops else GRID
        inside = cropped(maps.read(rows), size, self.host)
        with torch.autocast("cpu", torch.bfloat16):
            locations = head.locations(inside)
        locations = locations.float()
        whole, views = head.project(locations.mean(1)), head.project(pooled(locations, size))
        value, known = maps.targets(rows)
        weight = known * maps.importance(value)
        vectors = F.normalize(head.nouns, dim=-1)
        noun, bias, window, window_bias = head.scales
        one, each = whole @ vectors.T, views @ vectors.T
        found = {
            "rank": losses.ranking(self.scale * one, value, (known > 0).float()),
            "noun": losses.asymmetric(noun.exp() * one + bias, value, weight, r.gamma, r.margin),
            "somewhere": losses.asymmetric(
                losses.somewhere(window.exp() * each + window_bias), value, weight, r.gamma, r.margin
            ),
            "contrastive": self.captions(whole[-len(captioned) :], captioned),
            "anchor": (1 - (vectors * self.start).sum(1)).mean() * 100,
        }
        listed = torch.from_numpy(
            self.lists.draw(int(self.host.integers(r.longest // 4, r.longest + 1)), self.host)
        )
        answered = (maps.weights[listed], r.even)
        found["answer"] = losses.answered(
            SOFTER * self.scale * each[..., listed], value[:, listed], known[:, listed], *answered
        )
        members = torch.from_numpy(
            self.host.integers(len(rows), size=(r.composed, self.host.integers(2, r.parts + 1)))
        )
        both = each[members][..., listed].flatten(1, 2)  # (pictures, parts * 9, listed)
        v, k = value[members][..., listed], known[members][..., listed]
        there = (k * (v > 0.5)).amax(1)
        k = torch.where(v.amax(1) > 0.5, there, k.amin(1))
        found["composed"] = losses.answered(SOFTER * self.scale * both, v.amax(1), k, *answered)
        with torch.no_grad():
            old = self.before.locations(inside)
            said = torch.cat(
                [self.before.project(old.mean(1))[:, None], self.before.project(pooled(old, size))], 1
            )
            target = (self.scale * said @ self.classes.T).softmax(-1).flatten(0, 1)
        own = torch.cat([whole[:, None], views], 1) @ self.classes.T
        found["keep"] = losses.soft_cross_entropy((self.scale * own).flatten(0, 1), target)
        return found

    def captions(self, z: Tensor, photos: np.ndarray) -> Tensor:
        """The contrastive loss of captioned photos, with one caption each."""
        every = self.maps.texts["captions"][torch.from_numpy(photos)]
        chosen = every[torch.arange(len(every)), torch.from_numpy(self.host.integers(5, size=len(every)))]
        return losses.contrastive(self.scale * z @ chosen.T, chosen @ chosen.T, 0.1, 0.3)

    def train(self, log: Log, deadline: float) -> Head:
        """Make the steps; returns the head with averaged weights."""
        r, begin = self.recipe, time.time()
        own = {
            "params": [p for n, p in self.head.named_parameters() if n not in ("nouns", "scales")],
            "peak": r.lr,
        }
        free = {"params": [self.head.nouns], "peak": r.lr_nouns, "weight_decay": 0.0}
        scales = {"params": [self.head.scales], "peak": 10 * r.lr, "weight_decay": 0.0}
        adam = torch.optim.AdamW([own, free, scales], betas=(0.9, 0.98), weight_decay=r.decay)
        average = {k: v.detach().clone() for k, v in self.head.state_dict().items()}
        for step in range(r.steps):
            progress = max((step + 1) / r.steps, (time.time() - begin) / max(deadline - begin, 1e-9))
            warm = min(1.0, progress / r.warmup)
            for group in adam.param_groups:
                group["lr"] = (
                    group["peak"] * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
                )
            parts = self.losses()
            loss = torch.stack([getattr(r, f"w_{name}") * value for name, value in parts.items()]).sum()
            adam.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
            adam.step()
            keep = min(r.ema, (1 + step) / (10 + step))
            for name, value in self.head.state_dict().items():
                average[name].lerp_(value, 1 - keep)
            if step % 50 == 0 or progress >= 1:
                log(phase="head", step=step, loss=loss.item(), **{k: v.item() for k, v in parts.items()})
            if progress >= 1:
                break
        self.head.load_state_dict(average)
        return self.head


def cropped(maps: Tensor, size: int, host: np.random.Generator) -> Tensor:
    """Squares (n, size * size, D) at random places of maps (n, 81, D)."""
    if size == GRID:
        return maps
    top, left = (host.integers(GRID - size + 1, size=(len(maps), 1, 1)) for _ in range(2))
    cells = (np.arange(size)[:, None] + top) * GRID + np.arange(size) + left
    index = torch.from_numpy(cells.reshape(len(maps), -1))
    return maps.gather(1, index[..., None].expand(-1, -1, maps.shape[-1]))


@torch.inference_mode()
def held_out(head: Head, maps: Maps, scale: float, batch: int = 256) -> dict[str, float]:
    """Figures on held-out photos: how often the first noun of labeled ones is right, and caption retrieval."""
    vectors, right, n = F.normalize(head.nouns, dim=-1), 0, 0
    rows = maps.held
    for i in range(0, len(rows), batch):
        z = head.project(head.locations(maps.read(rows[i : i + batch])).mean(1))
        value, known = maps.targets(rows[i : i + batch])
        logits = (z @ vectors.T).masked_fill(known == 0, -9)
        best = logits.argmax(1)
        right += int(value[torch.arange(len(best)), best].gt(0.5).sum())
        n += len(best)
    photos = maps.held_captioned
    z = head.project(head.locations(maps.read(maps.first_captioned + photos)).mean(1))
    captions = maps.texts["captions"][torch.from_numpy(photos)].flatten(0, 1)
    order = (z @ captions.T).argsort(1, descending=True).numpy() // 5
    recall = float((order[:, :5] == np.arange(len(z))[:, None]).any(1).mean())
    return {"first noun right": 100 * right / max(n, 1), "recall@5": 100 * recall}


def changed(recipe: HeadRecipe, settings: Sequence[str]) -> HeadRecipe:
    """The recipe with some settings changed, written as "lr=1e-3"."""
    pairs = [pair.partition("=") for pair in settings]
    known = dataclasses.asdict(recipe)
    if unknown := [name for name, *_ in pairs if name not in known]:
        raise ValueError(f"{unknown[0]!r} is not a setting; choose from {', '.join(known)}")
    return dataclasses.replace(recipe, **{name: type(known[name])(value) for name, _, value in pairs})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--maps", type=Path, required=True, help="folder that training.maps wrote")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model to continue from")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument(
        "--without", type=Path, help="file of labels, one per line, whose photos are left out"
    )
    args = parser.parse_args(argv)
    recipe = changed(HeadRecipe(), args.set)
    without = args.without.read_text(encoding="utf-8").splitlines() if args.without else []
    maps = Maps.open(args.maps, without)
    log = Log(args.out / "log.jsonl")
    log(recipe=dataclasses.asdict(recipe), photos=len(maps.rows))
    state = clip.read(args.model)[0].state_dict()
    run = Run(maps, state, recipe)
    log(phase="before", **held_out(run.before, maps, run.scale))
    head = run.train(log, time.time() + 60 * args.minutes)
    log(phase="held out", **held_out(head, maps, run.scale))
    save_file({k: v.contiguous() for k, v in head.state_dict().items()}, args.out / "head.safetensors")


if __name__ == "__main__":
    main()
