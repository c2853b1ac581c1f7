"""Second phase: both towers are trained together, on whole, large and composed images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from training import losses
from training import model as clip
from training.compose import cut
from training.images import squashed
from training.judge import Judge
from training.label_sentences import LabelSentences
from training.lists import Lists
from training.loop import Finish, Losses, make_steps
from training.material import Material, Rows
from training.optimise import Optimiser
from training.pictures import WINDOW, Large, Pictures, Whole
from training.progress import Log
from training.recipe import Recipe
from training.rule import SOFTER
from training.supervision import NounSupervision, Targets
from training.towers import Towers
from training.windows import features, locations

RELABEL_SIZE = 280


@dataclass
class Words:
    """Text features for one step."""

    captions: Tensor  # (n, E) of the Flickr8k images
    meaning: Tensor  # (n, E) in MiniLM's space
    classes: Tensor  # (1000, E)
    nouns: Tensor  # (C, E), each with one of its wordings
    listed: Tensor  # (L, E), each as the mean of the simple templates
    labels: Tensor  # (L,) the nouns on the list
    sentences: Tensor  # (images, E), of label sentences


class JointPhase:
    """State of the phase; `run` executes the steps."""

    def __init__(self, material: Material, towers: Towers, judge: Judge, recipe: Recipe) -> None:
        self.material, self.towers, self.recipe = material, towers, recipe
        self.device, self.host = material.device, np.random.default_rng(recipe.seed)
        labels = material.labels.copy()
        labels[material.split.kept_flickr] = 0
        self.nouns = NounSupervision(
            material.nouns, labels, material.classes, self.device, material.given,
            weak=recipe.weak, passed_over=recipe.passed_over, balance=recipe.balance,
        )  # fmt: skip
        self.pictures = Pictures(material, self.nouns, judge, recipe, self.host)
        sentences, weight = material.sentences, self.nouns.noun_weight
        self.label_sentences = LabelSentences(sentences.connectives, sentences.noun_ids, weight)
        often = np.where(self.nouns.active, 1 / np.maximum(weight, 1e-9), 0.0)  # square root of the frequency
        self.lists = Lists(material.nouns, often, sentences.similarity)

    def losses(self) -> Losses:
        """All losses of one step."""
        whole, views = self.pictures.whole(), self.pictures.by_windows()
        ids, fits = self.label_sentences.draw(whole.shown, self.host)
        words, text = self.words(whole.flickr, ids)
        found = self.by_one_vector(whole, words, torch.from_numpy(fits).to(self.device))
        found["text"] = text
        with self.towers.autocast():
            maps = locations(self.towers.model, torch.cat([seen.pixels for seen in views]))
        parts = torch.split(maps, [len(seen.pixels) for seen in views])
        by_windows = [self.by_windows(seen, own, words) for seen, own in zip(views, parts, strict=True)]
        return found | {k: torch.stack([own[k] for own in by_windows]).mean() for k in by_windows[0]}

    def words(self, flickr: Rows, sentence_ids: list[list[int]]) -> tuple[Words, Tensor]:
        """Text features for the step, and the loss of the text tower relative to MiniLM."""
        r, sentences, host = self.recipe, self.material.sentences, self.host
        captions = sentences.captions[flickr, host.integers(5, size=len(flickr))]
        long = np.concatenate([captions, sentences.drawn(r.text_batch // 2, host)])
        labels = self.lists.draw(int(host.integers(r.longest_list // 4, r.longest_list + 1)), host)
        classes = sentences.classes[np.arange(1000), host.integers(5, size=1000)]
        short = np.concatenate([classes, sentences.wordings(host), sentences.simple[labels].ravel()])
        written, prompts = self.towers.encode(long), self.towers.encode(short)
        goal = sentences.goal(long)
        text = losses.follow(written, goal) + losses.follow(prompts, sentences.goal(short))
        batch = sentences.tokens(sentence_ids)
        with self.towers.autocast():
            of_labels = clip.encode_text(self.towers.model, *batch.batch(np.arange(len(batch))))
        simple = prompts[1000 + len(sentences.plain) :].reshape(*sentences.simple[labels].shape, -1)
        n, nouns = len(flickr), prompts[1000:][: len(sentences.plain)]
        listed, shown = F.normalize(simple.mean(1), dim=-1), torch.from_numpy(labels).to(self.device)
        return Words(written[:n], goal[:n], prompts[:1000], nouns, listed, shown, of_labels), text

    def by_one_vector(self, batch: Whole, words: Words, fits: Tensor) -> Losses:
        """Losses on whole images."""
        r, t = self.recipe, self.towers
        with t.autocast():
            z = features(t.model, locations(t.model, batch.pixels), 0)[:, 0]
        scale = t.model.logit_scale.exp()
        cosine, n = z @ words.nouns.T, len(batch.flickr)
        return {
            "contrastive": losses.contrastive(
                scale * z[:n] @ words.captions.T,
                words.meaning @ words.meaning.T,
                r.soft_temperature,
                r.softness,
            ),
            "distil": losses.soft_cross_entropy(scale * z @ words.classes.T, batch.probability),
            "noun": self._asymmetric(t.noun_scale.exp() * cosine + t.noun_bias, batch.targets),
            "rank": losses.ranking(scale * cosine, batch.targets.value, (batch.targets.known > 0).float()),
            "sentence": losses.sentences(scale * z @ words.sentences.T, fits),
        }

    def by_windows(self, seen: Large, maps: Tensor, words: Words) -> Losses:
        """Losses on the windows of large images, given by their maps, and on the parts of composed images."""
        r, t = self.recipe, self.towers
        with t.autocast():
            views = features(t.model, cut(maps, *seen.layout), WINDOW)  # (parts, V, E)
            across = features(t.model, maps, WINDOW)  # (n, V, E), across the borders too
        scale = t.model.logit_scale.exp()
        noun = t.window_scale.exp() * views @ words.nouns.T + t.window_bias
        placed, columns = self.nouns.placed(seen.images, seen.judged), self.nouns.columns
        return {
            "local": losses.followed(scale * views @ words.classes.T, seen.judged),
            "placed": losses.asymmetric(
                noun[..., columns], placed.value, placed.known * self.nouns.weights[columns], r.gamma, r.margin
            ),
            "somewhere": self._asymmetric(losses.somewhere(noun), seen.parts),
            "answer": losses.answered(
                SOFTER * scale.detach() * across @ words.listed.T,
                seen.pictures.value[:, words.labels], seen.pictures.known[:, words.labels],
                self.nouns.weights[words.labels], r.even,
            ),
        }  # fmt: skip

    @torch.no_grad()
    def relabel(self) -> dict[str, float]:
        """Add the nouns that the model itself is sure of to images that were not labeled with everything they show."""
        t, found = self.towers, 0.0
        nouns = torch.cat([t.encode(part) for part in np.array_split(self.material.sentences.plain, 8)])
        rows = self.rows_to_relabel()
        for part in torch.split(rows, 128):
            with t.autocast():
                maps = locations(t.model, squashed(self.material.images[part], RELABEL_SIZE))
                views = features(t.model, maps, WINDOW, 2)
            evidence = losses.somewhere(t.window_scale.exp() * views @ nouns.float().T + t.window_bias)
            found += self.nouns.relabel(part, torch.sigmoid(evidence))
        return {"added labels per image": found / max(len(rows), 1)}

    def rows_to_relabel(self) -> Tensor:
        """All training images."""
        split = self.material.split
        return torch.from_numpy(np.concatenate([split.flickr, split.samples, split.labeled])).to(self.device)

    def _asymmetric(self, logits: Tensor, targets: Targets) -> Tensor:
        weight = self.nouns.importance(targets)
        return losses.asymmetric(logits, targets.value, weight, self.recipe.gamma, self.recipe.margin)

    def run(self, log: Log, deadline: float, finish: Finish) -> None:
        """Run the phase with the settings of the recipe."""
        r, t = self.recipe, self.towers
        optimiser = Optimiser(
            t.parameters(), t.free, lr=r.lr, lr_image=r.lr_image, decay=r.decay, warmup=r.warmup,
            layer_decay=r.layer_decay,
        )  # fmt: skip
        make_steps(
            "joint", r.steps, self.losses, t, optimiser, r, log, deadline, finish, {r.relabel: self.relabel}
        )
