"""Teach the text tower what a run of `head` learned: texts about a noun move with its vector, all others stay.

    python -m training.retext --head HEAD --maps MAPS --model FOLDER --pieces WORK/pieces --out RUN --minutes 10

Writes a model folder that `training.ship` takes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from open_clip.model import CLIP
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from training import losses, pack
from training import model as clip
from training.head import Head
from training.maps import Maps
from training.progress import Log
from training.soup import architecture
from training.wording import PLAIN, SIMPLE

TEMPLATES = (PLAIN, "{}", *SIMPLE)
TRAINED = 2  # blocks at the end of the text tower; what comes before is computed once
OTHERS = 12_000  # sentences that stay where they are
SHARE = 0.3  # of these in a batch


class Retext:
    """The end of the text tower, and all sentences at the point where it begins.

    Args:
        vectors: learned vectors of the nouns (nouns, 384).
        corpus: other sentences.
    """

    def __init__(
        self,
        model: CLIP,
        tokenizer: Callable[[list[str]], Tensor],
        maps: Maps,
        vectors: Tensor,
        corpus: Sequence[str],
    ) -> None:
        self.model, self.host = model, np.random.default_rng(0)
        start = F.normalize(maps.texts["simple"].mean(1), dim=-1)
        moves = F.normalize(vectors, dim=-1) - start
        others = [corpus[i] for i in self.host.permutation(len(corpus))[:OTHERS]]
        texts = [t.format(noun) for noun in maps.nouns for t in TEMPLATES] + others
        moves = torch.cat(
            [moves.repeat_interleave(len(TEMPLATES), 0), torch.zeros(len(others), moves.shape[1])]
        )
        self.about = len(texts) - len(others)
        tokens = torch.cat([tokenizer(texts[i : i + 4096]) for i in range(0, len(texts), 4096)])
        self.ends = tokens.argmax(-1)
        self.hidden = torch.zeros(
            len(texts), int(self.ends.max()) + 1, model.positional_embedding.shape[1]
        ).half()
        self.targets = torch.zeros(len(texts), moves.shape[1])
        with torch.inference_mode():
            for rows in torch.split(self.ends.argsort(), 256):  # of about one length
                length = int(self.ends[rows].max()) + 1
                x = model.token_embedding(tokens[rows, :length]) + model.positional_embedding[:length]
                for block in model.transformer.resblocks[:-TRAINED]:
                    x = block(x, attn_mask=model.attn_mask[:length, :length])
                self.hidden[rows, :length] = x.half()
                self.targets[rows] = F.normalize(self.features(rows) + moves[rows], dim=-1)

    def features(self, rows: Tensor) -> Tensor:
        """Unit features of some sentences."""
        model, length = self.model, int(self.ends[rows].max()) + 1
        x = self.hidden[rows, :length].float()
        for block in model.transformer.resblocks[-TRAINED:]:
            x = block(x, attn_mask=model.attn_mask[:length, :length])
        x = model.ln_final(x[torch.arange(len(x)), self.ends[rows]])
        return F.normalize(x @ model.text_projection, dim=-1)

    def train(self, log: Log, deadline: float, steps: int, batch: int, lr: float) -> None:
        """Make the steps; the schedule ends by the deadline."""
        model, begin = self.model, time.time()
        ends = (*model.transformer.resblocks[-TRAINED:].parameters(), *model.ln_final.parameters())
        adam = torch.optim.AdamW([*ends, model.text_projection], lr=lr, betas=(0.9, 0.98), weight_decay=0.0)
        for step in range(steps):
            progress = max((step + 1) / steps, (time.time() - begin) / max(deadline - begin, 1e-9))
            for group in adam.param_groups:
                group["lr"] = (
                    lr
                    * min(1.0, progress / 0.03)
                    * (0.02 + 0.49 * (1 + math.cos(math.pi * min(progress, 1))))
                )
            few = round(batch * SHARE)
            drawn = (
                self.host.integers(self.about, size=batch - few),
                self.host.integers(self.about, len(self.targets), size=few),
            )
            rows = torch.from_numpy(np.concatenate(drawn))
            loss = losses.follow(self.features(rows), self.targets[rows])
            adam.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            if step % 50 == 0 or progress >= 1:
                log(phase="text", step=step, loss=loss.item())
            if progress >= 1:
                break


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", type=Path, required=True, help="folder that training.head wrote")
    parser.add_argument("--maps", type=Path, required=True, help="folder that training.maps wrote")
    parser.add_argument(
        "--model", type=Path, required=True, help="folder of the model that the head continues"
    )
    parser.add_argument("--pieces", type=Path, required=True, help="pieces (or unpacked pack) from prepare")
    parser.add_argument("--out", type=Path, required=True, help="output folder of the whole model")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch", type=int, default=256, help="sentences per step")
    parser.add_argument("--lr", type=float, default=4e-4)
    args = parser.parse_args(argv)
    model, tokenizer, _ = clip.read(args.model)
    maps, folder = Maps.open(args.maps), pack.unpacked(args.pieces)
    state = model.state_dict()
    learned = load_file(args.head / "head.safetensors")
    head = Head.of(state, learned["nouns"])
    head.load_state_dict(learned)
    corpus = pack.read_index(folder)["corpus"]
    log = Log(args.out / "text.jsonl")
    run = Retext(model, tokenizer, maps, learned["nouns"], corpus)
    run.train(log, time.time() + 60 * args.minutes, args.steps, args.batch, args.lr)
    clip.save(args.out, head.put_into(model.state_dict()), architecture(args.model), folder / pack.BPE)


if __name__ == "__main__":
    main()
