"""Claims about which labels are asked for."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltta.captions.generate.sampling import PROMPT, Cooccurrence, Sampler
from mltta.data.dataset import Dataset
from mltta.errors import ConfigError
from mltta.labels import LabelSet

VOC = LabelSet.load("voc")
PETS = LabelSet.of("dog, cat, sofa, rocket")
COUNTS = np.array([[60, 20, 30, 0], [20, 40, 10, 0], [30, 10, 50, 0], [0, 0, 0, 50]])


def test_labels_are_uniform_in_number_and_in_kind() -> None:
    drawn = [Sampler(VOC)(n).keywords for n in range(20_000)]
    sizes = Counter(map(len, drawn))
    labels = Counter(word for keywords in drawn for word in keywords)
    pairs = Counter(frozenset(keywords) for keywords in drawn if len(keywords) == 2)
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert all(abs(n - 4000) < 5 * (4000 * 0.8) ** 0.5 for n in sizes.values())
    # each of 20 labels is in a share of 3 / 20 of the requests
    assert all(abs(labels[text] - 3000) < 5 * (3000 * 0.85) ** 0.5 for text in VOC.texts)
    assert len(pairs) == 190
    assert sum((n - sizes[2] / 190) ** 2 / (sizes[2] / 190) for n in pairs.values()) < 300  # chi², 189 free


@given(seed=st.integers(0, 2**40), n=st.integers(0, 10**9), size=st.integers(1, 12), counted=st.booleans())
def test_a_request_hangs_on_seed_and_number_alone_and_repeats_no_label(seed, n, size, counted) -> None:
    labels = LabelSet.of([f"label {i}" for i in range(size)])
    counts = Cooccurrence(labels, np.ones((size, size))) if counted else None
    request = Sampler(labels, seed, counts)(n)
    later = Sampler(labels, seed, counts)
    later(n + 1)
    assert later(n) == request
    assert 1 <= len(set(request.keywords)) == len(request.keywords) <= min(5, size)
    assert request.prompt == PROMPT.format(", ".join(request.keywords))
    assert 0 <= request.seed < 2**31


def test_another_seed_or_number_draws_otherwise() -> None:
    assert Sampler(VOC, 0)(0).seed != Sampler(VOC, 1)(0).seed != Sampler(VOC, 1)(1).seed


def test_first_labels_follow_frequency_and_next_ones_what_occurs_beside_them() -> None:
    counts = Cooccurrence(PETS, COUNTS)
    drawn = [Sampler(PETS, 0, counts)(n).keywords for n in range(20_000)]
    first = Counter(keywords[0] for keywords in drawn)
    for label, share in zip(PETS.texts, (0.3, 0.2, 0.25, 0.25), strict=True):
        assert first[label] / 20_000 == pytest.approx(share, abs=0.015)
    after_dog = Counter(k[1] for k in drawn if k[0] == "dog" and len(k) > 1)
    assert after_dog["sofa"] / after_dog.total() == pytest.approx(30 / 50, abs=0.03)
    after_both = Counter(k[2] for k in drawn if set(k[:2]) == {"dog", "cat"} and len(k) > 2)
    assert set(after_both) == {"sofa"}
    assert all(
        keywords == ("rocket",) for keywords in drawn if "rocket" in keywords
    )  # never seen with others


def test_the_third_label_is_weighed_by_the_mean_over_those_drawn() -> None:
    labels = LabelSet.of("a, b, c, d")
    counts = np.array([[10, 10, 9, 1], [10, 100, 10, 90], [9, 10, 10, 0], [1, 90, 0, 90]])
    drawn = [Sampler(labels, 0, Cooccurrence(labels, counts))(n).keywords for n in range(40_000)]
    third = Counter(k[2] for k in drawn if set(k[:2]) == {"a", "b"} and len(k) > 2)
    # beside a: c 0.9, d 0.1; beside b: c 0.1, d 0.9
    assert third["c"] / third.total() == pytest.approx(0.5, abs=0.06)


def test_matrix_pairs_and_csv_say_the_same(tmp_path) -> None:
    whole = Cooccurrence(PETS, COUNTS)
    whole.save(tmp_path / "matrix.json")
    pairs = [
        [PETS.names[a], PETS.names[b], int(COUNTS[a, b])]
        for a in range(4)
        for b in range(a, 4)
        if COUNTS[a, b]
    ]
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    rows = "\n".join(f"{a.upper()}, {b},{count}" for a, b, count in pairs)
    (tmp_path / "pairs.csv").write_text(f"label,other,count\n{rows}\n")
    (tmp_path / "bare.csv").write_text(rows)
    (tmp_path / "powers.csv").write_text("\n".join(f"{a},{b},{count}e0" for a, b, count in pairs))
    for name in ("matrix.json", "pairs.json", "pairs.csv", "bare.csv", "powers.csv"):
        assert (Cooccurrence.load(tmp_path / name, PETS).counts == COUNTS).all(), name


def test_a_matrix_in_another_order_with_other_labels_is_matched_by_name(tmp_path) -> None:
    held = {"labels": ["sofa", "unicorn", "Dog"], "counts": [[5, 1, 2], [1, 9, 1], [2, 1, 6]]}
    (tmp_path / "m.json").write_text(json.dumps(held))
    assert Cooccurrence.load(tmp_path / "m.json", LabelSet.of("dog, sofa")).counts.tolist() == [
        [6, 2],
        [2, 5],
    ]


def test_a_dataset_is_counted_over_its_images_without_left_out_labels() -> None:
    targets = np.array([[1, 1, 0], [1, 0, -1], [1, 1, 1]], dtype=np.int8)
    dataset = Dataset("photos", LabelSet.of("dog, cat, sofa"), ("a", "b", "c"), ("a", "b", "c"), targets)
    assert Cooccurrence.of_dataset(dataset).counts.tolist() == [[3, 2, 1], [2, 2, 1], [1, 1, 1]]


def test_labels_without_counts_are_named(caplog) -> None:
    Cooccurrence.of_pairs(PETS, [("dog", "cat", 3)])
    assert "never sampled" in caplog.text
    assert "sofa, rocket" in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("not.json", "dog cat"),
        ("number.json", "7"),
        ("keys.json", '{"labels": ["dog"]}'),
        ("shape.json", '{"labels": ["dog", "cat"], "counts": [[1, 2]]}'),
        ("ragged.json", '{"labels": ["dog", "cat"], "counts": [[1, 2], [3]]}'),
        ("negative.json", '{"labels": ["dog"], "counts": [[-1]]}'),
        ("nan.json", '[["dog", "cat", NaN]]'),
        ("strangers.json", '[["unicorn", "dragon", 3]]'),
        ("words.csv", "dog,cat,many\ndog,sofa,few\n"),
        ("columns.csv", "dog,3\n"),
        ("empty.csv", ""),
    ],
)
def test_a_file_without_usable_counts_is_refused(name, content, tmp_path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match="co-occurrence counts"):
        Cooccurrence.load(tmp_path / name, PETS)
    with pytest.raises(ConfigError, match="cannot be read"):
        Cooccurrence.load(tmp_path / "missing.json", PETS)
