"""BCP against counts in dictionaries, and what its correction must do."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.bcp import BCP, BCPConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden
from tests.methods.test_dpe import units


@pytest.mark.parametrize("confidence", [0.0, 0.4])
def test_a_stream_equals_dictionaries_of_counts(confidence):
    text, features = units(5, 16, seed=0), units(60, 1, 16, seed=1)
    method = BCP(Problem(golden.fixed_text(text), 8.0), BCPConfig(confidence=confidence, smoothing=1.0))
    found = method(Encoded({ViewSpec(count=1): features}))
    one = dict.fromkeys(range(5), 0.0)
    two = {(j, k): 0.0 for j in range(5) for k in range(5)}
    corrected = 0
    for n, (x, got) in enumerate(zip(features[:, 0], found, strict=True)):
        logits = [8 * float(x @ t) for t in text]
        total = sum(math.exp(v) for v in logits)
        p = [math.exp(v) / total for v in logits]
        a = max(range(5), key=p.__getitem__)
        if n >= 10 and p[a] > confidence:
            corrected += 1
            for k in range(5):
                if k != a:
                    alone = (one[k] + 1e-6) / (n + 5e-6)
                    beside = (two[k, a] + alone) / (one[a] + 1)
                    logits[k] += max(-5.0, min(5.0, math.log(beside / alone)))
        torch.testing.assert_close(got, torch.tensor(logits), atol=1e-4, rtol=0)
        for k in range(5):
            one[k] += p[k]
            for j in range(5):
                two[j, k] += p[j] * p[k]
    assert 0 < corrected <= 50


def test_a_label_that_goes_with_the_anchor_gains_and_one_that_does_not_loses():
    text = torch.eye(3)
    method = BCP(Problem(golden.fixed_text(text), 10.0), BCPConfig(confidence=0.0, smoothing=1.0))
    pair, alone = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    rows = F.normalize(torch.stack([pair, alone] * 20 + [torch.tensor([1.0, 0.7, 0.7])]), dim=-1)
    scores = method(Encoded({ViewSpec(count=1): rows[:, None]}))[-1]
    plain = 10 * rows[-1]
    assert scores[0] == plain[0]
    assert scores[1] - plain[1] > 0.5
    assert scores[2] - plain[2] < -2
