"""Train the embedded model. README.md says what each loss is for."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import losses
import minilm
import model as clip
import numpy as np
import pieces
import timm
import torch
from data import Texts, crops, decode, read_index, side_by_side, token_ids
from holdout import measure
from open_clip.tokenizer import SimpleTokenizer
from safetensors.torch import load_file
from supervision import NounSupervision
from torch import nn


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--pieces", type=Path, required=True, help="pieces (or the unpacked pack) of prepare.py")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--compile", action="store_true", help="compile the image towers")
    p.add_argument("--limit-texts", type=int, help="only so many sentences of the corpus (for a trial)")
    p.add_argument("--holdout", type=int, default=400, help="Flickr8k images kept out, to measure on")
    length = p.add_argument_group("length")
    length.add_argument("--text-steps", type=int, default=1200, help="steps of the text tower alone, first")
    length.add_argument("--steps", type=int, default=900)
    length.add_argument("--minutes", type=float, help="shorten the schedule of the joint steps to this time")
    length.add_argument(
        "--batch", type=int, default=512, help="images of a step, composed pictures not counted"
    )
    length.add_argument("--text-batch", type=int, default=2048)
    length.add_argument("--imagenet-share", type=float, default=0.35)
    length.add_argument("--composed", type=float, default=0.25, help="pictures of two images, per image")
    optim = p.add_argument_group("optimiser")
    optim.add_argument("--lr", type=float, default=5e-4, help="text tower and projection")
    optim.add_argument("--lr-image", type=float, default=1e-4)
    optim.add_argument("--lr-text-alone", type=float, default=1e-3)
    optim.add_argument("--decay", type=float, default=0.05)
    optim.add_argument("--warmup", type=float, default=0.05)
    optim.add_argument("--ema", type=float, default=0.998)
    optim.add_argument("--bn-momentum", type=float, default=0.0, help="0 keeps the batch norm's statistics")
    crop = p.add_argument_group("crops")
    crop.add_argument("--store", type=int, default=256, help="side of the images in memory")
    crop.add_argument("--smallest", type=float, default=0.35)
    crop.add_argument("--whole", type=float, default=0.2)
    w = p.add_argument_group("losses")
    w.add_argument("--w-contrastive", type=float, default=1.0)
    w.add_argument("--softness", type=float, default=0.3)
    w.add_argument("--soft-temperature", type=float, default=0.1)
    w.add_argument("--w-distil", type=float, default=1.5)
    w.add_argument("--w-text", type=float, default=2.0)
    w.add_argument("--w-noun", type=float, default=1.0)
    w.add_argument("--w-rank", type=float, default=0.3)
    w.add_argument("--w-sentence", type=float, default=0.3)
    w.add_argument("--weak", type=float, default=0.5, help="weight of a noun's absence from the captions")
    w.add_argument("--gamma", type=float, default=2.0)
    w.add_argument("--margin", type=float, default=0.02)
    w.add_argument("--balance", type=float, default=0.5)
    return p.parse_args()


class Trainer:
    """Holds data, towers and optimiser; `text_alone` and `joint` are the two phases."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.clock = args, time.time()
        self.device = torch.device(args.device)
        torch.manual_seed(args.seed)
        self.host = np.random.default_rng(args.seed)
        torch.set_float32_matmul_precision("high")
        # cudnn.benchmark stays off: trying every algorithm for the depthwise layers takes minutes
        self.log_file = args.out / "log.jsonl"
        args.out.mkdir(parents=True, exist_ok=True)
        self.log_file.write_text("")
        plain = (args.pieces / "index.json.gz").exists()
        self.pack = args.pieces if plain else pieces.join(args.pieces, args.pieces / "unpacked")
        self.index = read_index(self.pack)
        self.load_texts()
        self.load_images()
        self.load_towers()

    def log(self, **values: Any) -> None:
        values = {"seconds": round(time.time() - self.clock, 1), **values}
        print(
            " ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()),
            flush=True,
        )
        with self.log_file.open("a") as file:
            file.write(json.dumps(values) + "\n")

    def load_texts(self) -> None:
        index, bpe = self.index, self.pack / "bpe.txt.gz"
        corpus: list[str] = index["corpus"]
        captions = [text for own in index["captions"] for text in own]
        if self.args.limit_texts:
            every = max(1, len(corpus) // self.args.limit_texts)
            corpus = list(dict.fromkeys([*captions[: self.args.limit_texts], *corpus[::every]]))
        noun_prompts = [f"a photo of a {n}." for n in index["nouns"]]
        # variants of each ImageNet class: its usual name counts double
        variants = [
            [f"a photo of a {n}." for n in (own[0], own[0], *own[1:4])] for own in index["class_names"]
        ]
        extra = [*captions, *noun_prompts, *(v for own in variants for v in own)]
        corpus = list(dict.fromkeys([*corpus, *extra]))
        row = {text: i for i, text in enumerate(corpus)}
        self.caption_rows = np.array([[row[t] for t in (own * 5)[:5]] for own in index["captions"]])
        self.noun_rows = np.array([row[t] for t in noun_prompts])
        self.class_rows = np.array([[row[t] for t in (own * 4)[:5]] for own in variants])
        self.prompt_rows = np.unique(np.concatenate([self.noun_rows, self.class_rows.ravel()]))
        tokenizer = SimpleTokenizer(str(bpe))
        connectives = ["a photo of a", "and a", "."]
        ids = token_ids(bpe, [*corpus, *connectives, *index["nouns"]])
        self.special = tokenizer.sot_token_id, tokenizer.eot_token_id
        self.config = clip.config(tokenizer.vocab_size)
        self.context = self.config["text_cfg"]["context_length"]
        n = len(corpus)
        self.texts = Texts(ids[:n], *self.special, self.context, self.device)
        self.connectives, self.noun_ids = ids[n : n + 3], ids[n + 3 :]
        self.log(
            texts=n,
            longest=int(self.texts.lengths.max()),
            cut=float((self.texts.lengths == self.context).mean()),
        )
        kept = self.pack / f"minilm-{n}.pt"  # the same for every run on the same pieces
        if not kept.exists():
            torch.save(minilm.embed(self.pack / "minilm", corpus, self.device), kept)
        self.targets = torch.load(kept, map_location=self.device, weights_only=True)
        self.log(embedded=n)

    def load_images(self) -> None:
        index, side = self.index, self.args.store
        flickr = decode(self.pack / "flickr.bin", index["flickr"], side)
        samples = decode(self.pack / "imagenet.bin", index["imagenet"], side)
        self.images = torch.cat([flickr, samples]).to(self.device)
        order = np.random.default_rng(1234).permutation(len(flickr))  # the same images in every run
        self.kept_out, self.flickr = order[: self.args.holdout], order[self.args.holdout :]
        self.samples = np.arange(len(samples)) + len(flickr)
        self.labels = np.load(self.pack / "labels.npz")["labels"]
        a = self.args
        seen = self.labels.copy()
        seen[self.kept_out] = 0
        self.nouns = NounSupervision(index["nouns"], seen, self.device, weak=a.weak, balance=a.balance)
        self.shown = self.nouns.shown(index["classes"])
        self.noun_weight = self.nouns.noun_weight.cpu().numpy()
        self.log(images=len(self.images), nouns=len(index["nouns"]), active=int(self.nouns.active.sum()))

    def load_towers(self) -> None:
        weights = load_file(self.pack / "lite2.safetensors")
        self.teacher = (
            timm.create_model("tf_efficientnet_lite2", pretrained=False).eval().requires_grad_(False)
        )
        self.teacher.load_state_dict(
            {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
        )
        self.model = clip.build(self.config)
        clip.start_from_classifier(self.model, weights)
        self.model.to(self.device, memory_format=torch.channels_last)
        self.teacher.to(self.device, memory_format=torch.channels_last)
        self.norms = [m for m in self.model.visual.trunk.modules() if isinstance(m, nn.BatchNorm2d)]
        self.scale = nn.Parameter(torch.tensor(math.log(20.0), device=self.device))
        self.bias = nn.Parameter(torch.tensor(-5.0, device=self.device))
        self.average = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.image_tower: nn.Module = (
            torch.compile(self.model.visual) if self.args.compile else self.model.visual
        )
        self.judge: nn.Module = torch.compile(self.teacher) if self.args.compile else self.teacher

    def optimiser(self, lr: float, lr_image: float) -> torch.optim.Optimizer:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in self.model.named_parameters():
            if name == "logit_scale" or (lr_image == 0 and name.startswith("visual.")):
                continue
            rate = lr_image if name.startswith("visual.trunk") else lr
            decay = self.args.decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
        groups[10 * lr, 0.0] = [self.model.logit_scale, self.scale, self.bias]  # logarithms have far to go
        made = [{"params": p, "lr": r, "peak": r, "weight_decay": d} for (r, d), p in groups.items()]
        return torch.optim.AdamW(made, betas=(0.9, 0.98), fused=self.device.type == "cuda")

    def rate(self, optimiser: torch.optim.Optimizer, progress: float) -> None:
        warm = min(1.0, progress / self.args.warmup) if self.args.warmup else 1.0
        factor = warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * factor

    def update(self, optimiser: torch.optim.Optimizer, loss: torch.Tensor, step: int) -> None:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for g in optimiser.param_groups for p in g["params"]], 1.0)
        optimiser.step()
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=math.log(100))
            keep = min(self.args.ema, (1 + step) / (10 + step))
            state = self.model.state_dict()
            floats = [k for k, v in state.items() if v.is_floating_point()]
            torch._foreach_lerp_([self.average[k] for k in floats], [state[k] for k in floats], 1 - keep)

    def encode(self, rows: np.ndarray) -> torch.Tensor:
        return clip.encode_text(self.model, *self.texts.batch(rows))

    def goal(self, rows: np.ndarray) -> torch.Tensor:
        return self.targets[torch.from_numpy(rows).to(self.device)].float()

    def corpus_rows(self, n: int) -> np.ndarray:
        """Rows for the text loss: a quarter everyday label prompts, the rest anything."""
        prompts = self.host.choice(self.prompt_rows, n // 4)
        return np.concatenate([self.host.integers(len(self.texts), size=n - n // 4), prompts])

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def text_alone(self) -> None:
        """The text tower learns MiniLM's space before any image is seen."""
        optimiser = self.optimiser(self.args.lr_text_alone, 0.0)
        for step in range(self.args.text_steps):
            self.rate(optimiser, (step + 1) / self.args.text_steps)
            rows = self.corpus_rows(self.args.text_batch)
            with self.autocast():
                text = self.encode(rows)
            loss = losses.follow(text, self.goal(rows))
            self.update(optimiser, loss, step)
            if step % 100 == 0 or step + 1 == self.args.text_steps:
                self.log(phase="text", step=step, loss=loss.item(), lr=optimiser.param_groups[0]["lr"])

    def label_sentences(self, shown: np.ndarray) -> tuple[Texts, np.ndarray]:
        """A sentence of up to two labels for each picture, and which picture fits which sentence."""
        n = len(shown)
        weight = shown * self.noun_weight + 1e-9 * shown
        order = np.argpartition(
            -np.where(shown, self.host.exponential(size=shown.shape) * weight, -1.0), (0, 1)
        )[:, :2]
        both = shown[np.arange(n), order[:, 1]] & (self.host.random(n) < 0.8)
        order[~both, 1] = order[~both, 0]
        start, link, stop = self.connectives
        ids = [
            [*start, *self.noun_ids[a], *([*link, *self.noun_ids[b]] if a != b else []), *stop]
            for a, b in order
        ]
        fits = shown[:, order[:, 0]] & shown[:, order[:, 1]]
        fits[:, ~shown.any(1)] = False
        return Texts(ids, *self.special, self.context, self.device), fits

    def joint_loss(self, rng: torch.Generator) -> dict[str, torch.Tensor]:
        a = self.args
        n_samples = int(a.batch * a.imagenet_share)
        rows = self.host.choice(self.flickr, min(a.batch - n_samples, len(self.flickr)), replace=False)
        batch = np.concatenate([rows, self.host.choice(self.samples, n_samples)])
        pairs = self.host.permuted(np.tile(np.arange(len(batch)), (2, 1)), axis=1)[
            :, : int(len(batch) * a.composed)
        ]
        first, second = torch.from_numpy(pairs).to(self.device)
        caption_rows = self.caption_rows[rows, self.host.integers(5, size=len(rows))]
        class_rows = self.class_rows[np.arange(1000), self.host.integers(5, size=1000)]
        corpus_rows = self.corpus_rows(a.text_batch // 2)
        everything = np.concatenate([caption_rows, corpus_rows])
        prompts = np.concatenate([class_rows, self.noun_rows])
        shown = self.shown[batch]
        shown = np.concatenate([shown, shown[pairs[0]] | shown[pairs[1]]])
        label_texts, fits = self.label_sentences(shown)

        with torch.no_grad():
            x = crops(self.images[torch.from_numpy(batch).to(self.device)], 224, a.smallest, a.whole, rng)
            with self.autocast():
                probability = self.judge(x).float().softmax(1)
            targets = self.nouns(torch.from_numpy(rows).to(self.device), probability)
            if len(first):
                x = torch.cat([x, side_by_side(x, first, second)]).contiguous(
                    memory_format=torch.channels_last
                )
                targets = targets.joined(targets.pairs(first, second))
                probability = torch.cat([probability, (probability[first] + probability[second]) / 2])
        with self.autocast():
            z = self.image_tower(x)
            long, short = self.encode(everything), self.encode(prompts)
            lists = clip.encode_text(self.model, *label_texts.batch(np.arange(len(label_texts))))
        z = nn.functional.normalize(z.float(), dim=-1)
        captions, classes, nouns = long[: len(rows)], short[:1000], short[1000:]
        scale = self.model.logit_scale.exp()
        goal = self.goal(caption_rows)
        cosine = z @ nouns.T
        return {
            "contrastive": losses.contrastive(
                scale * z[: len(rows)] @ captions.T, goal @ goal.T, a.soft_temperature, a.softness
            ),
            "distil": losses.soft_cross_entropy(scale * z @ classes.T, probability),
            "text": losses.follow(long, self.goal(everything)) + losses.follow(short, self.goal(prompts)),
            "noun": losses.asymmetric(
                self.scale.exp() * cosine + self.bias, targets.value, targets.weight, a.gamma, a.margin
            ),
            "rank": losses.ranking(scale * cosine, targets.value, (targets.weight > 0).float()),
            "sentence": losses.sentences(scale * z @ lists.T, torch.from_numpy(fits).to(self.device)),
        }

    def joint(self) -> None:
        a = self.args
        rng = torch.Generator(self.device).manual_seed(a.seed)
        optimiser = self.optimiser(a.lr, a.lr_image)
        self.model.train()
        for norm in self.norms:
            norm.momentum = a.bn_momentum
            norm.train(a.bn_momentum > 0)
        begin = time.time()
        for step in range(a.steps):
            progress = (step + 1) / a.steps
            if a.minutes:
                progress = max(progress, (time.time() - begin) / (60 * a.minutes))
            self.rate(optimiser, progress)
            parts = self.joint_loss(rng)
            loss = sum(
                (getattr(a, f"w_{k}") * v for k, v in parts.items()), torch.zeros((), device=self.device)
            )
            self.update(optimiser, loss, step)
            last = progress >= 1
            if step % 50 == 0 or last:
                values = {k: v.item() for k, v in parts.items()}
                values |= {"scale": self.model.logit_scale.exp().item(), "s": self.scale.exp().item()}
                self.log(phase="joint", step=step, loss=loss.item(), **values, b=self.bias.item())
                if not math.isfinite(loss.item()):
                    raise FloatingPointError(f"the loss is not finite at step {step}")
            if step % 500 == 499 and not last:
                self.finish(step)
            if last:
                break
        self.finish(step)

    def finish(self, step: int) -> None:
        """Save the averaged model and measure it on the images kept out."""
        a = self.args
        clip.save(a.out, self.average, self.config, self.pack / "bpe.txt.gz")
        if len(self.kept_out):
            smooth = clip.read(a.out)[0].to(self.device)
            kept = torch.from_numpy(self.kept_out).to(self.device)
            start, _, stop = self.connectives
            ids = [[*start, *own, *stop] for own in self.noun_ids]
            prompts = Texts(ids, *self.special, self.context, self.device)
            figures = measure(smooth, self.images[kept], self.texts, self.caption_rows[self.kept_out],
                              self.labels[self.kept_out], prompts)  # fmt: skip
            self.log(phase="held out", step=step, **figures)
        (a.out / "parts/log.jsonl").write_bytes(self.log_file.read_bytes())


def main() -> None:
    args = arguments()
    trainer = Trainer(args)
    trainer.log(arguments={k: str(v) for k, v in vars(args).items()})
    trainer.text_alone()
    trainer.joint()


if __name__ == "__main__":
    main()
