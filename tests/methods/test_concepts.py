"""Class concepts against loops over views and captions."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from mltta import create_method
from mltta.captions.labelled import LabelledCaptions
from mltta.model.encoded import Encoded
from tests import golden_data as golden
from tests.methods.test_dpe import units

LABELS = ["dog", "cat", "boat", "bus"]
MENTIONS = [[i % 3] + ([(i * 7) % 3] if i % 2 else []) for i in range(40)] + [[]]


def test_scores_are_those_of_plain_loops():
    embeddings = units(41, 32, seed=0)
    captions = LabelledCaptions(embeddings, MENTIONS, 4)
    options = {"rounds": 3, "weight": 0.7}
    method = create_method("concepts", golden.backbone("vit", "soft"), LABELS, captions=captions, **options)
    views = units(2, 1 + 5 + 9, 32, seed=1)
    found, tau = method(Encoded({method.needs[0]: views})), method.logit_scale
    concepts = []
    for label in range(4):
        own = [embeddings[i] for i in range(41) if label in MENTIONS[i]]
        concepts.append(F.normalize(sum(own), dim=-1) if own else method.text.features[label])
    named = embeddings[:40]  # the last one names nothing

    def heard(x):
        for count in (40, 10, 2):  # 256 are asked for and 40 there, then one of four is left
            near = sorted(named, key=lambda e: -float(x @ e))[:count]
            weight = torch.stack([tau * x @ e for e in near]).softmax(0)
            x = F.normalize(sum(w * e for w, e in zip(weight, near, strict=True)), dim=-1)
        return x

    for image, got in zip(views, found, strict=True):
        whole, windows = image[0], image[6:]
        for label in range(4):
            score = 0.0
            for share, t, see in (
                (1.0, method.text.features[label], lambda x: x),
                (0.7, concepts[label], heard),
            ):
                local = torch.stack([see(x) @ t for x in windows])
                local = ((tau * local).softmax(0) * local).sum()
                score += share * tau * (see(whole) @ t + local) / 2
            torch.testing.assert_close(got[label], score, atol=2e-4, rtol=0)


def test_a_label_that_no_caption_names_is_its_prompt():
    method = create_method(
        "concepts",
        golden.backbone("vit"),
        LABELS,
        captions=LabelledCaptions(units(41, 32, seed=0), MENTIONS, 4),
    )
    torch.testing.assert_close(method.concepts[3], method.text.features[3])
