"""SPARC against loops over images and labels written from its description."""

from __future__ import annotations

import math
from statistics import mean, stdev

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mltta import Tagger, create_method
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import z_scores
from mltta.methods.sparc import label_groups
from mltta.model.encoded import Encoded
from tests import golden_data as golden

LABELS = ["dog", "person", "boat", "cat", "bus"]
#: dog 0, person 1, boat 2, cat 3; bus 4 is never named beside another
MENTIONS = [[0, 1], [0, 1, 3], [0], [1, 2], [2], [3, 0, 1], [4], [1], [1, 1]]


def sparc(**options):
    embeddings = F.normalize(
        torch.randn(len(MENTIONS), 32, generator=torch.Generator().manual_seed(9)), dim=-1
    )
    captions = LabelledCaptions(embeddings, MENTIONS, len(LABELS))
    return create_method("sparc", golden.backbone("vit"), LABELS, captions=captions, **options)


def images(count: int) -> Encoded:
    return Encoded({ViewSpec(count=1): golden.stream(1)[:count]})


def test_labels_go_together_as_captions_name_them():
    captions = LabelledCaptions(torch.eye(9), MENTIONS, 5)
    found = label_groups(captions, tuple(LABELS), 0.05, 0.025)
    # by the alphabet: boat, bus, cat, dog, person
    assert found == [(2, 1), (3, 0), (3, 1), (0, 1), (3, 0, 1)]
    assert label_groups(captions, tuple(LABELS), 0.6, 0.9) == [(3, 0), (3, 1), (0, 1), (3, 0, 1)]


def by_hand(method, features, texts):
    """Row, column, order statistics, principal axis by power iteration, half and half."""
    backbone = golden.backbone("vit")
    names = {2: "boat", 3: "cat", 0: "dog", 1: "person"}
    groups = [(2, 1), (3, 0), (3, 1), (0, 1), (3, 0, 1)]
    prompts = [" and ".join(names[i] for i in g) if len(g) == 2 else "cat, dog, and person" for g in groups]
    compound, bare = backbone.encode_texts(prompts), backbone.encode_texts(LABELS)
    rows, others = [], []
    for x in features:
        s = [float(x @ t) for t in texts]
        a = [float(x @ t) for t in bare]
        rows.append([(v - mean(s)) / stdev(s) for v in s])
        others.append([(float(x @ t) - mean(a)) / stdev(a) for t in compound])

    def columns(table):
        turned = []
        for column in zip(*table, strict=True):
            turned.append([(v - mean(column)) / stdev(column) for v in column])
        return list(zip(*turned, strict=True))

    rows, others = columns(rows), columns(others)
    scores = [[0.0] * len(texts) for _ in features]
    for label in range(len(texts)):
        own = [p for p, group in enumerate(groups) if label in group]
        table = [[*sorted(others[n][p] for p in own), rows[n][label]] for n in range(len(features))]
        matrix = np.array(table)
        centred = matrix - matrix.mean(0)
        axis = np.arange(1.0, 1 + matrix.shape[1])
        for _ in range(5000):
            axis = centred.T @ (centred @ axis)
            axis /= math.sqrt((axis**2).sum())
        side = axis.mean() if abs(axis.mean()) > 1e-6 else axis[-1]  # two that go apart: by the label's own
        axis *= 1 if side > 0 else -1
        fused = matrix @ (axis / abs(axis).sum())
        for n in range(len(features)):
            scores[n][label] = 0.5 * rows[n][label] + 0.5 * (fused[n] if own else rows[n][label])
    return torch.tensor(scores).float()


def test_scores_are_those_of_plain_loops():
    method = sparc()
    want = by_hand(method, golden.stream(1)[:, 0], method.text.features)
    torch.testing.assert_close(method(images(60)), want, atol=1e-4, rtol=0)


def test_the_order_of_the_images_does_not_matter_and_they_may_come_in_any_parts():
    method = sparc()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    whole = method(images(60))
    rows = torch.cat([method.keep(images(60)[i]) for i in order.tolist()])
    torch.testing.assert_close(method.merge(method.finish(rows)), whole[order], atol=1e-4, rtol=0)


def test_without_prompts_of_several_labels_images_are_ranked_as_by_z_scores():
    method = sparc(compound=0.0)
    plain = z_scores(golden.stream(1)[:, 0] @ method.text.features.T)
    assert torch.equal(method(images(60)).argsort(dim=0), plain.argsort(dim=0))


def test_few_images_are_fused_by_the_mean():
    single, several = torch.tensor([1.0, 3.0]), torch.tensor([[2.0, 0.0], [1.0, 5.0]])
    torch.testing.assert_close(sparc().fuse(single, several), torch.tensor([1.0, 3.0]))


def test_a_tagger_refuses_it_with_the_reason():
    backbone = golden.backbone("vit")
    trained, backbone.trained = backbone.trained, True
    try:
        with pytest.raises(ConfigError, match="whole dataset"):
            Tagger(backbone, LABELS, "sparc")
    finally:
        backbone.trained = trained


@pytest.mark.parametrize("inner", ["clip", "zero", "ml-tta"])
def test_the_second_step_goes_over_the_scores_of_another_method(inner):
    over, plain = sparc(over=inner), sparc()
    images = Encoded({ViewSpec(count=64): golden.stream(1)[:40].expand(-1, 64, -1)})
    kept = over.keep(images)
    scores = over.inner(images)
    own = z_scores(scores) if inner != "zero" else scores.clamp(min=1e-6).log()  # zero gives probabilities
    torch.testing.assert_close(kept[:, :5], own)
    torch.testing.assert_close(kept[:, 5:], plain.keep(images)[:, 5:])
    want = over.merge(over.finish(torch.cat([own, plain.keep(images)[:, 5:]], dim=1)))
    torch.testing.assert_close(over(images), want)
    assert over.price == over.inner.price
    assert ViewSpec(count=1) in over.needs
    assert set(over.needs) >= set(over.inner.needs)


def test_over_plain_clip_with_its_own_template_the_scores_are_those_of_sparc():
    same = {"template": "a photo of a {}."}
    torch.testing.assert_close(
        sparc(over="clip", **same)(images(60)), sparc(**same)(images(60)), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("name", ["tda", "sparc"])
def test_it_goes_over_episodic_methods_only(name):
    with pytest.raises(ConfigError, match=f"{name} is not episodic"):
        sparc(over=name)
