"""Table 2, cell by cell: every method from CoOp's and from MaPLe's prompts, against plain code of one image."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.plain import bind, confident, entropy, marginal_entropy, mean_entropy
from mltta import CaptionBase, create_method
from mltta.captions.labelled import LabelledCaptions
from mltta.model.encoded import Encoded
from mltta.model.maple import with_prompts
from tests.model.prompted import LABELS, Plain, coop_of, maple, tiny

PROMPTS = {"CoOp": coop_of, "MaPLe": maple}
VIEWS, MADE, RATIO = 10, 4, 0.3


def tuned(plain: Plain, loss, lr: float, decay: float = 0.01, steps: int = 1) -> Tensor:
    """A context after some steps of torch's AdamW, its gradients through whatever reads it."""
    context = torch.nn.Parameter(plain.start.clone())
    optimizer = torch.optim.AdamW([context], lr=lr, weight_decay=decay)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(context).backward()
        optimizer.step()
    return context.detach()


def clip(plain: Plain, pixels: Tensor) -> Tensor:
    return plain.logits(pixels[:1], plain.start)[0]


def tda(plain: Plain, pixels: Tensor) -> Tensor:
    """The first image of a stream, which finds itself alone in the caches."""
    logits = clip(plain, pixels)
    doubt, p = entropy(logits), logits.softmax(-1)
    scores = logits.clone()
    scores[logits.argmax()] += 2.0  # alpha exp(-beta (1 - x.x))
    bits = torch.tensor(float(len(logits))).log2()
    if 0.2 * bits < doubt < 0.5 * bits:
        scores -= 0.117 * ((p > 0.03) & (p < 1)).float()
    return scores


def tpt(plain: Plain, pixels: Tensor) -> Tensor:
    rows = confident(plain.logits(pixels, plain.start), RATIO)
    context = tuned(plain, lambda c: marginal_entropy(plain.logits(pixels, c)[rows]), 5e-3)
    return plain.logits(pixels[:1], context)[0]


def difftpt(plain: Plain, pixels: Tensor) -> Tensor:
    """Pixels are the clean view, the crops and the generated images; four steps."""
    logits = plain.logits(pixels, plain.start)
    alike = F.cosine_similarity(logits[:1], logits[1:]).argsort(descending=True)[
        : int(0.8 * (len(pixels) - 1))
    ]
    rows = torch.cat([torch.tensor([0]), 1 + alike])
    rows = rows[confident(logits[rows], RATIO)]
    context = tuned(plain, lambda c: marginal_entropy(plain.logits(pixels, c)[rows]), 5e-3, steps=4)
    return plain.logits(pixels[:1], context)[0]


def rlcf(plain: Plain, pixels: Tensor) -> Tensor:
    """Taught by itself as it is at the start; three steps."""
    kept = pixels[confident(plain.logits(pixels, plain.start), RATIO)]
    judged = (2.5 * plain.images(kept, plain.start) @ plain.text(plain.start).T).clamp(min=0).detach()

    def loss(context: Tensor) -> Tensor:
        logits = plain.logits(kept, context)
        likely = logits.detach().topk(3).indices
        score = judged.gather(1, likely)
        reward = score - score.mean(1, keepdim=True)
        return -(reward * logits.log_softmax(-1).gather(1, likely)).mean()

    return plain.logits(pixels[:1], tuned(plain, loss, 7e-3, 5e-4, 3))[0]


def ml_tta(plain: Plain, pixels: Tensor, captions: LabelledCaptions, ratio: float = RATIO) -> Tensor:
    with torch.no_grad():
        near = (plain.images(pixels, plain.start) @ captions.embeddings.T).argsort(-1, descending=True)[
            :, :16
        ]
    rows = captions.embeddings[near.flatten()]

    def view_loss(context: Tensor) -> Tensor:
        bound = bind(plain.logits(pixels, context), captions.k(near[:, 0]))
        return mean_entropy(bound[confident(bound, ratio)])

    def caption_loss(context: Tensor) -> Tensor:
        bound = bind(plain.scale * rows @ plain.text(context).T, captions.k(near.flatten()))
        return mean_entropy(bound[confident(bound, ratio)])

    contexts = [tuned(plain, view_loss, 1e-2), tuned(plain, caption_loss, 1e-3)]
    return sum(plain.logits(pixels[:1], context)[0] for context in contexts).detach()


CELLS = {"clip": clip, "tda": tda, "tpt": tpt, "difftpt": difftpt, "rlcf": rlcf, "ml-tta": ml_tta}


@pytest.mark.parametrize("init", PROMPTS)
@pytest.mark.parametrize("name", CELLS)
def test_the_scores_of_a_cell_equal_plain_code(name, init, tmp_path):
    prompted, plain = with_prompts(tiny(), PROMPTS[init]()), Plain(tiny(), PROMPTS[init](), LABELS)
    sentences = [f"A {a} beside a {b}." for a in LABELS for b in LABELS if a < b]
    captions = CaptionBase.build(sentences, prompted)
    options = {} if name in ("clip", "tda") else {"views": VIEWS, "select_ratio": RATIO}
    if name == "difftpt":
        options |= {"generated": str(tmp_path), "generated_views": MADE, "views": VIEWS - 1}
    method = create_method(name, prompted, LABELS, captions=captions, teacher="self", **options)
    made = torch.Generator().manual_seed(7)
    pixels = {spec: torch.randn(spec.count, 3, 32, 32, generator=made) for spec in method.needs}
    features = {spec: prompted.encode_images(own)[None] for spec, own in pixels.items()}
    got = method(Encoded(features, [lambda spec, preprocess, views: pixels[spec][views]]))[0]
    given = torch.cat(list(pixels.values()))
    want = ml_tta(plain, given, method.captions) if name == "ml-tta" else CELLS[name](plain, given)
    torch.testing.assert_close(got, want.detach(), atol=1e-4, rtol=0)
    if name != "clip":  # a method that changed nothing would pass too easily
        assert (got / len(method.branch_names) - clip(plain, given)).abs().max() > 1e-3
