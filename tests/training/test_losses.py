"""The losses against loops written from their descriptions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training import losses


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    e = [math.exp(v - top) for v in values]
    return [v / sum(e) for v in e]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_soft_cross_entropy_leaves_out_rows_without_a_target() -> None:
    logits, target = (
        drawn(3, 4),
        torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1.0]], dtype=torch.float64),
    )
    rows = []
    for r in (0, 2):
        p = softmax(logits[r].tolist())
        rows.append(-sum(t * math.log(q) for t, q in zip(target[r].tolist(), p, strict=True)))
    assert losses.soft_cross_entropy(logits, target).item() == pytest.approx(sum(rows) / 2)


def test_contrastive_shares_the_target_with_captions_of_the_same_meaning() -> None:
    logits, similarity, softness, temperature = drawn(3, 3), drawn(3, 3, seed=1), 0.3, 0.5
    total = 0.0
    for i in range(3):
        soft = softmax([similarity[i, j].item() / temperature for j in range(3)])
        for row in (logits[i], logits[:, i]):
            p = softmax(row.tolist())
            total -= sum(((1 - softness) * (i == j) + softness * soft[j]) * math.log(p[j]) for j in range(3))
    found = losses.contrastive(logits, similarity, temperature, softness)
    assert found.item() == pytest.approx(total / 6)


def test_follow_adds_each_distance_and_all_similarities() -> None:
    text, goal = (torch.nn.functional.normalize(drawn(4, 5, seed=s), dim=-1) for s in (0, 1))
    apart = sum(1 - float(text[i] @ goal[i]) for i in range(4)) / 4
    pairs = [(float(text[i] @ text[j]) - float(goal[i] @ goal[j])) ** 2 for i in range(4) for j in range(4)]
    assert losses.follow(text, goal).item() == pytest.approx(apart + 10 * sum(pairs) / 16)


def test_asymmetric_fades_easy_negatives_and_divides_by_the_positives() -> None:
    logits, gamma, margin = drawn(3, 4), 2.0, 0.05
    target = torch.tensor([[1, 0, 0, 0.7], [0, 1, 0, 0], [0, 0, 1, 1]], dtype=torch.float64)
    weight = torch.tensor([[1, 0.5, 0, 2], [1, 1, 1, 1], [0, 1, 1, 0.5]], dtype=torch.float64)
    total, positives = 0.0, 0.0
    for i in range(3):
        for c in range(4):
            y, w, p = target[i, c].item(), weight[i, c].item(), sigmoid(logits[i, c].item())
            shifted = max(p - margin, 0.0)
            total += w * (-y * math.log(p) - (1 - y) * shifted**gamma * math.log(1 - shifted))
            positives += y * w
    found = losses.asymmetric(logits, target, weight, gamma, margin)
    assert found.item() == pytest.approx(total / max(positives, 1))


def test_ranking_lets_unknown_nouns_stand_aside() -> None:
    logits = drawn(2, 4)
    target = torch.tensor([[1.0, 0, 0.8, 0], [0, 0, 0, 0]], dtype=torch.float64)
    known = torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.float64)
    p = softmax(logits[0, :3].tolist())
    expected = -(math.log(p[0]) + math.log(p[2])) / 2
    assert losses.ranking(logits, target, known).item() == pytest.approx(expected)


def test_sentences_go_both_ways_over_all_that_fit() -> None:
    logits = drawn(3, 2)
    fits = torch.tensor([[True, False], [True, True], [False, False]])
    to_text = [
        -math.log(softmax(logits[0].tolist())[0]),
        -sum(map(math.log, softmax(logits[1].tolist()))) / 2,
    ]
    columns = [softmax(logits[:, j].tolist()) for j in range(2)]
    to_image = [-(math.log(columns[0][0]) + math.log(columns[0][1])) / 2, -math.log(columns[1][1])]
    expected = (sum(to_text) / 2 + sum(to_image) / 2) / 2
    assert losses.sentences(logits, fits).item() == pytest.approx(expected)


def test_windows_follow_the_classifier_by_the_square_of_its_confidence() -> None:
    logits, probability = drawn(2, 3, 5), drawn(2, 3, 5, seed=1).mul(3).softmax(-1)
    total, weights = 0.0, 0.0
    for i in range(2):
        for v in range(3):
            own, p = softmax(logits[i, v].tolist()), probability[i, v].tolist()
            weight = max(p) ** 2
            total -= weight * sum(t * math.log(q) for t, q in zip(p, own, strict=True))
            weights += weight
    assert losses.followed(logits, probability).item() == pytest.approx(total / weights)


def test_somewhere_is_the_log_sum_of_the_windows_less_half_the_log_of_their_number() -> None:
    logits = drawn(2, 6, 3)
    found = losses.somewhere(logits)
    for i in range(2):
        for c in range(3):
            total = sum(math.exp(logits[i, v, c].item()) for v in range(6))
            assert found[i, c].item() == pytest.approx(math.log(total) - math.log(6) / 2)


def test_one_window_that_shows_a_noun_is_enough_and_none_is_allowed_of_an_absent_one() -> None:
    logits = torch.full((1, 9, 2), -6.0)
    logits[0, 4, 0] = 6.0
    logits.requires_grad_()
    target, weight = torch.tensor([[1.0, 0.0]]), torch.ones(1, 2)
    losses.asymmetric(losses.somewhere(logits), target, weight, 0.0, 0.0).backward()
    gradient = logits.grad
    assert gradient is not None
    assert gradient[0, :, 0].abs().argmax() == 4  # the window that shows it learns
    assert (gradient[0, :, 1] > 0).all()  # every window learns that the other is not there


def naive_answer(logits: Tensor, target: Tensor, weight: Tensor, rare: Tensor, even: float) -> float:
    total, count = 0.0, 0.0
    for i in range(len(logits)):
        labels = range(logits.shape[2])
        present = [c for c in labels if target[i, c] > 0.5 and weight[i, c] > 0]
        part = [1.0 if c in present else max(float(weight[i, c]), 1e-4) for c in labels]
        score, confidence = [0.0 for _ in labels], 0.0
        for v in range(logits.shape[1]):
            e = [part[c] * math.exp(float(logits[i, v, c])) for c in labels]
            p = [x / sum(e) for x in e]
            score = [s + max(p) * q for s, q in zip(score, p, strict=True)]
            confidence += max(p)
        score = [s / confidence for s in score]
        if present:
            shares = sum(float(rare[c]) for c in present)
            total -= sum(float(rare[c]) * math.log(score[c]) for c in present) / shares
            count += 1
        else:
            known = [float(weight[i, c]) for c in labels]
            total -= even * sum(k * math.log(s) for k, s in zip(known, score, strict=True)) / sum(known)
            count += even
    return total / count


def test_the_answer_to_a_list_is_shared_by_what_is_present_and_even_without_it() -> None:
    logits = drawn(3, 4, 5)
    target = torch.tensor([[1, 0, 0.9, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], dtype=torch.float64)
    weight = torch.tensor([[1, 0.5, 1, 1, 0], [1, 0.5, 1, 1, 0.25], [1, 1, 0.5, 0, 1]], dtype=torch.float64)
    rare = torch.tensor([0.2, 1, 3, 1, 0.5], dtype=torch.float64)
    found = losses.answered(logits, target, weight, rare, even=0.3)
    assert found.item() == pytest.approx(naive_answer(logits, target, weight, rare, 0.3), rel=1e-4)


def test_an_unknown_label_hardly_competes() -> None:
    logits = torch.zeros(1, 2, 3)
    logits[..., 2] = 4.0
    target = torch.tensor([[1.0, 0, 0]])
    beside = losses.answered(logits, target, torch.tensor([[1.0, 1, 0]]), torch.ones(3), 0.3)
    assert beside.item() == pytest.approx(math.log(2), abs=0.01)
