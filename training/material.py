"""All data used by runs, loaded once: sentences with their targets, images as bytes on the device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor
from torch.nn import functional as F

from training import minilm, pack, photo_labels
from training.images import decode, decoded
from training.label_sentences import CONNECTIVES
from training.labeled import Labeled
from training.texts import Texts, token_ids
from training.wording import PLAIN, SIMPLE

Rows = NDArray[np.int64]
CONTEXT = 40  # tokens of the longest text
WEAK_LABELED = 0.25  # reliability of a noun's absence from a photo whose labels do not mention it


@dataclass(frozen=True)
class Split:
    """Rows of the training and held-out images: captioned, ImageNet's, labeled."""

    flickr: Rows
    samples: Rows
    kept_flickr: Rows
    kept_samples: Rows
    labeled: Rows
    shares: NDArray[np.float64]  # probabilities of drawing each labeled photo

    @classmethod
    def of(
        cls, flickr: int, samples: int, keep_flickr: int, keep_samples: int, shares: NDArray[np.float64]
    ) -> Split:
        """Split the data; the held-out images are the same in every run. Rows follow each other in this order."""
        first = np.random.default_rng(1234).permutation(flickr)
        second = np.random.default_rng(1234).permutation(samples) + flickr
        labeled = np.arange(len(shares)) + flickr + samples
        kept = first[:keep_flickr], second[:keep_samples]
        return cls(first[keep_flickr:], second[keep_samples:], *kept, labeled, shares)

    def drawn(self, n: int, imagenet: float, labeled: float, host: np.random.Generator) -> tuple[Rows, Rows]:
        """Sample training images: captioned ones without repetition, and fractions of ImageNet's and labeled ones."""
        samples = round(n * imagenet)
        more = round(n * labeled) if len(self.labeled) else 0
        count = min(n - samples - more, len(self.flickr))
        others = [host.choice(self.samples, samples)]
        if more:
            others.append(host.choice(self.labeled, more, p=self.shares))
        return host.choice(self.flickr, count, replace=False), np.concatenate(others)


class Sentences:
    """All sentences: tokens, targets in MiniLM's space, and indices of captions and prompts."""

    def __init__(self, folder: Path, index: pack.Index, device: torch.device) -> None:
        nouns = index["nouns"]
        captions = [text for own in index["captions"] for text in own]
        plain = [PLAIN.format(n) for n in nouns]
        # wordings of each ImageNet class; the most common name counts twice
        classes = [[PLAIN.format(n) for n in (own[0], own[0], *own[1:4])] for own in index["class_names"]]
        simple = [[t.format(n) for t in SIMPLE] for n in nouns]
        leaning = [text for text, _, _ in index["leaning"]]
        extra = [*captions, *plain, *nouns, *leaning, *(t for own in (*classes, *simple) for t in own)]
        corpus = list(dict.fromkeys([*index["corpus"], *extra]))
        row = {text: i for i, text in enumerate(corpus)}
        others: dict[str, list[int]] = {}
        for text, base, _ in index["leaning"]:
            others.setdefault(base, []).append(row[text])

        self.captions = np.array(
            [[row[t] for t in (own * 5)[:5]] for own in index["captions"]]
        )  # (images, 5)
        self.plain = np.array([row[t] for t in plain])  # (nouns,)
        self.simple = np.array([[row[t] for t in own] for own in simple])  # (nouns, 7)
        self.others = [np.array(others.get(text, [row[text]])) for text in plain]
        self.classes = np.array([[row[t] for t in (own * 4)[:5]] for own in classes])  # (1000, 5)
        everyday = [self.plain, self.classes.ravel(), np.array([row[t] for t in leaning], np.int64)]
        self.prompts = np.unique(np.concatenate(everyday))

        bpe = folder / pack.BPE
        tokenizer = SimpleTokenizer(str(bpe))
        ids = token_ids(bpe, [*corpus, *CONNECTIVES, *nouns])
        n = len(corpus)
        self.vocab_size: int = tokenizer.vocab_size
        self.special: tuple[int, int] = tokenizer.sot_token_id, tokenizer.eot_token_id
        self.connectives, self.noun_ids = ids[n : n + len(CONNECTIVES)], ids[n + len(CONNECTIVES) :]
        self.device = device
        self.texts = self.tokens(ids[:n])
        self.folder, self.corpus, self.nouns = folder, corpus, nouns
        self.leaning = [(row[text], row[base], share) for text, base, share in index["leaning"]]

    @cached_property
    def goals(self) -> Tensor:
        """Targets (n, E) of the sentences in MiniLM's space, in half precision."""
        digest = hashlib.sha256("\n".join(self.corpus).encode()).hexdigest()[:16]
        kept = self.folder / f"minilm-{digest}.pt"
        if not kept.exists():  # shared by all runs on the same pack
            torch.save(minilm.embed(self.folder / pack.MINILM, self.corpus, self.device), kept)
        goals: Tensor = torch.load(kept, map_location=self.device, weights_only=True)
        if self.leaning:
            rows, plain, share = (
                torch.tensor(own, device=self.device) for own in zip(*self.leaning, strict=True)
            )
            lean = torch.lerp(goals[rows].float(), goals[plain].float(), share[:, None])
            goals[rows] = F.normalize(lean, dim=-1).half()
        return goals

    @cached_property
    def similarity(self) -> NDArray[np.float32]:
        """Cosines between the nouns' meanings."""
        meaning = minilm.embed(self.folder / pack.MINILM, self.nouns, self.device).float()
        cosines: NDArray[np.float32] = (meaning @ meaning.T).cpu().numpy()
        return cosines

    def __len__(self) -> int:
        return len(self.texts)

    def tokens(self, ids: list[list[int]]) -> Texts:
        """Other texts, given as tokens."""
        return Texts(ids, *self.special, CONTEXT, self.device)

    def goal(self, rows: Rows) -> Tensor:
        """Targets of some sentences in MiniLM's space."""
        return self.goals[torch.from_numpy(rows).to(self.device)].float()

    def drawn(self, n: int, rng: np.random.Generator) -> Rows:
        """Sample training rows: a quarter prompts of everyday labels, the rest any sentences."""
        return np.concatenate([rng.integers(len(self), size=n - n // 4), rng.choice(self.prompts, n // 4)])

    def wordings(self, rng: np.random.Generator) -> Rows:
        """A prompt for each noun: the plain one, or equally often another wording."""
        draws = rng.integers(2**31, size=len(self.plain))
        other = np.array([own[i % len(own)] for own, i in zip(self.others, draws, strict=True)])
        return np.where(rng.random(len(self.plain)) < 0.5, self.plain, other)


class Material:
    """Sentences, images and labels of a pack, and labeled photos.

    Args:
        folder: the pack.
        labeled: photos to train on, with their labels.
        store: size at which images are stored.
        keep: held-out Flickr8k and ImageNet images.
        trial: use only this many images of each set, for a trial.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        labeled: Labeled | None = None,
        store: int = 256,
        keep: tuple[int, int] = (400, 100),
        trial: int | None = None,
    ) -> None:
        self.folder, self.device = folder, device
        index = pack.read_index(folder)
        if trial:
            index = pack.first(index, trial)
        self.nouns, self.classes = index["nouns"], index["classes"]
        self.sentences = Sentences(folder, index, device)
        sets = [decode(folder / pack.FLICKR, index["flickr"], store)]
        sets.append(decode(folder / pack.IMAGENET, index["imagenet"], store))
        self.labels: NDArray[np.int8] = np.load(folder / pack.LABELS)["labels"][: len(sets[0])]
        self.given, shares = None, np.zeros(0)
        if labeled and labeled.images:
            sets.append(decoded(labeled.images, store))
            self.given = photo_labels.read(
                labeled, self.nouns, self.sentences.similarity, self.labels, WEAK_LABELED
            )
            shares = photo_labels.shares(self.given[0])
        sizes = [len(own) for own in sets]
        # (n, 3, store, store) bytes; sets are copied one by one, because all of them twice would not fit in memory
        self.images = torch.empty(sum(sizes), 3, store, store, dtype=torch.uint8, device=device)
        for part in torch.split(self.images, sizes):
            part.copy_(sets.pop(0))
        self.split = Split.of(sizes[0], sizes[1], *keep, shares)

    def pool(self, rows: NDArray[Any]) -> Tensor:
        """Some images, as bytes."""
        return self.images[torch.from_numpy(np.asarray(rows, np.int64)).to(self.device)]
