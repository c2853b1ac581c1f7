"""Bound entropy minimization: the paper's propositions, naive twins, and the corners."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mltta.objectives import (
    bind_labels,
    bound_entropy,
    entropy,
    label_set_bce,
    marginal_entropy,
    mean_entropy,
    select_confident,
)


@st.composite
def distinct_logits(draw, at_least: int = 2):
    """Float64 logits that differ by at least 0.01, in any order, and a k smaller than their number."""
    size = draw(st.integers(at_least, 12))
    steps = draw(st.lists(st.floats(0.01, 2.0), min_size=size, max_size=size))
    values = torch.tensor(steps, dtype=torch.float64).cumsum(0)
    order = draw(st.permutations(range(size)))
    return values[list(order)], draw(st.integers(1, size - 1))


def gradient_of_entropy(logits: torch.Tensor, k: int | None) -> torch.Tensor:
    leaf = logits.clone().requires_grad_()
    scored = leaf if k is None else bind_labels(leaf, torch.tensor(k))
    return torch.autograd.grad(entropy(scored), leaf)[0]


@given(distinct_logits())
def test_proposition_1_entropy_falls_with_the_top_logit_and_rises_with_the_sum_of_the_rest(case):
    logits, _ = case
    gradient = gradient_of_entropy(logits, None)
    top = logits.argmax()
    assert gradient[top] < 0
    rest = gradient.sum() - gradient[top]
    assert rest > 0
    assert rest == pytest.approx(-gradient[top].item(), rel=1e-9)


@given(distinct_logits())
def test_proposition_2_bound_entropy_falls_with_every_top_k_logit_and_rises_with_the_sum_of_the_rest(case):
    logits, k = case
    gradient = gradient_of_entropy(logits, k)
    top = logits.topk(k).indices
    assert (gradient[top] < 0).all()
    assert torch.allclose(gradient[top], gradient[top[0]].expand(k), rtol=1e-9)
    rest = torch.ones_like(logits, dtype=torch.bool).index_fill(0, top, False)
    assert gradient[rest].sum() > 0


def test_the_papers_three_class_example():
    bound = bind_labels(torch.tensor([0.9, 0.7, 0.3]), torch.tensor(2))
    assert bound.tolist() == pytest.approx([0.9, 0.9, 0.3])


def naive_binding(logits: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Algorithm 1 as it stands in the paper: a loop over rows and labels."""
    out = torch.empty_like(logits)
    for i, row in enumerate(logits):
        top = max(row)
        for j, s in enumerate(row):
            rank = 1 + sum(1 for other in row if other > s)
            out[i, j] = (top - s).detach() + s if rank <= k[i] else s
    return out


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 6))
def test_binding_equals_the_loop_of_algorithm_1_in_value_and_gradient(seed, labels, rows):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, labels, generator=generator, dtype=torch.float64).mul(3).round(decimals=1)
    k = torch.randint(0, labels + 3, (rows,), generator=generator)
    weight = torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    results = []
    for function in (bind_labels, naive_binding):
        leaf = logits.clone().requires_grad_()
        value = function(leaf, k)
        results.append((value.detach(), torch.autograd.grad((value * weight).sum(), leaf)[0]))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-12, rtol=0)
    torch.testing.assert_close(results[0][1], results[1][1], atol=0, rtol=0)


def test_k_of_zero_binds_nothing_and_k_beyond_the_labels_binds_all():
    logits = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    bound = bind_labels(logits, torch.tensor([0, 9]))
    assert bound.tolist() == [[3.0, 1.0, 2.0], [3.0, 3.0, 3.0]]


def test_labels_tied_at_the_boundary_are_bound_together_whatever_their_order():
    logits = torch.tensor([5.0, 2.0, 2.0, 1.0])
    for order in ([0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2]):
        bound = bind_labels(logits[order], torch.tensor(2))
        assert bound.tolist() == torch.tensor([5.0, 5.0, 5.0, 1.0])[order].tolist()


def test_bound_logits_are_equal_to_the_last_bit():
    logits = torch.randn(100, 80, generator=torch.Generator().manual_seed(0)) * 25
    bound = bind_labels(logits, torch.full((100,), 5))
    assert ((bound == bound.max(-1, keepdim=True).values).sum(-1) == 5).all()


def test_one_label_has_no_entropy_and_no_gradient():
    leaf = torch.tensor([[[7.0]], [[-3.0]]], requires_grad=True)
    loss = bound_entropy(leaf, torch.tensor([[1], [4]]))
    assert loss.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(loss.sum(), leaf)[0].abs().max() == 0


def test_entropy_of_equal_logits_is_log_of_their_number_and_of_extreme_ones_zero():
    assert entropy(torch.zeros(4)).item() == pytest.approx(math.log(4))
    assert entropy(torch.tensor([1e4, 0.0, -1e4])).item() == 0.0


@pytest.mark.parametrize(("rows", "kept"), [(64, 6), (32, 3), (70, 7), (10, 1), (9, 1), (1, 1)])
def test_selection_keeps_the_floor_of_the_ratio_and_never_nothing(rows, kept):
    row_entropy = torch.arange(rows, 0, -1).float()
    chosen = select_confident(row_entropy, 0.1)
    assert chosen.nonzero().flatten().tolist() == list(range(rows - kept, rows))


def test_selection_counts_only_rows_that_exist():
    row_entropy = torch.arange(30).float()
    valid = torch.arange(30) >= 10
    assert select_confident(row_entropy, 0.1, valid).nonzero().flatten().tolist() == [10, 11]
    assert not select_confident(row_entropy, 0.5, torch.zeros(30, dtype=torch.bool)).any()


def test_selection_of_equal_rows_takes_the_first():
    assert select_confident(torch.zeros(20), 0.2).nonzero().flatten().tolist() == [0, 1, 2, 3]


def naive_bem(logits: torch.Tensor, k: torch.Tensor, ratio: float, marginal: bool) -> torch.Tensor:
    """One image, from the equations: bind, keep the confident rows, mean or marginal entropy."""
    bound = naive_binding(logits, k)
    p = bound.softmax(-1)
    row_entropy = torch.stack([-(row * row.log()).sum() for row in p])
    kept = row_entropy.argsort()[: max(1, int(len(row_entropy) * ratio))]
    if not marginal:
        return row_entropy[kept].mean()
    mean = p[kept].mean(0)
    return -(mean * mean.log()).sum()


@pytest.mark.parametrize("reduction", ["mean", "marginal"])
def test_bound_entropy_of_a_batch_with_missing_rows_equals_the_naive_loop_per_image(reduction):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(4, 25, 9, generator=generator, dtype=torch.float64) * 3
    k = torch.randint(1, 4, (4, 25), generator=generator)
    valid = torch.arange(25) < torch.tensor([25, 11, 3, 20])[:, None]
    leaf = logits.clone().requires_grad_()
    loss = bound_entropy(leaf, k, ratio=0.3, reduction=reduction, valid=valid)
    gradient = torch.autograd.grad(loss.sum(), leaf)[0]
    for i in range(4):
        one = logits[i, valid[i]].clone().requires_grad_()
        want = naive_bem(one, k[i, valid[i]], 0.3, reduction == "marginal")
        assert loss[i].item() == pytest.approx(want.item(), rel=1e-10)
        torch.testing.assert_close(
            gradient[i, valid[i]], torch.autograd.grad(want, one)[0], atol=1e-12, rtol=1e-9
        )
        assert (gradient[i, ~valid[i]] == 0).all()


def test_selection_on_bound_logits_favours_rows_with_few_labels():
    logits = torch.tensor([[[9.0, 8.0, -9.0], [5.0, 4.1, 2.9]]])
    k = torch.tensor([[2, 1]])  # once bound, the first row's entropy cannot fall below ln 2
    raw = entropy(logits)[0]
    assert raw[0] < math.log(2) < raw[1]
    on_raw = bound_entropy(logits, k, ratio=0.5, select_on="raw")
    assert on_raw.item() == pytest.approx(math.log(2), abs=1e-4)
    on_bound = bound_entropy(logits, torch.tensor([[3, 1]]), ratio=0.5, select_on="bound")
    assert on_bound.item() == pytest.approx(raw[1].item(), abs=1e-6)


@pytest.mark.parametrize("reduction", [mean_entropy, marginal_entropy])
def test_an_image_without_rows_has_zero_loss_and_zero_gradient(reduction):
    leaf = torch.randn(2, 3, 4, requires_grad=True)
    rows = torch.tensor([[True, True, False], [False, False, False]])
    loss = reduction(leaf, rows)
    gradient = torch.autograd.grad(loss.sum(), leaf)[0]
    assert loss[1] == 0
    assert (gradient[1] == 0).all()
    assert gradient.isfinite().all()


def test_marginal_entropy_is_that_of_the_mean_softmax_even_where_probabilities_vanish():
    logits = torch.tensor([[[200.0, 0.0], [0.0, 200.0]]])
    rows = torch.ones(1, 2, dtype=torch.bool)
    assert marginal_entropy(logits, rows).item() == pytest.approx(math.log(2))
    assert mean_entropy(logits, rows).item() == pytest.approx(0.0)


def test_bce_equals_the_definition_on_the_selected_rows():
    logits = torch.tensor([[[2.0, -1.0], [9.0, 9.0]]], dtype=torch.float64)
    targets = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    rows = torch.tensor([[True, False]])
    want = -(math.log(1 / (1 + math.exp(-2))) + math.log(1 - 1 / (1 + math.exp(1)))) / 2
    assert label_set_bce(logits, targets, rows).item() == pytest.approx(want)
