"""Hashes of photos find copies, and pairs and groups are those of all comparisons."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.training.clones import picture, saved
from training import hashes, selection


def test_the_hash_is_whether_each_cell_is_darker_than_its_right_neighbor():
    image = picture(1)
    grey = image.convert("L").resize((9, 8), Image.Resampling.BOX)
    bits = "".join(
        "1" if grey.getpixel((x, y)) < grey.getpixel((x + 1, y)) else "0" for y in range(8) for x in range(8)
    )
    assert hashes.difference_hash(image) == int(bits, 2)


def test_a_copy_has_nearly_the_same_hash_and_other_pictures_have_not():
    image, small = picture(1, 400, 340), picture(1, 400, 340).resize((160, 136))
    again = Image.open(io.BytesIO(saved(small, quality=60)))
    own, copy, other = (hashes.difference_hash(i) for i in (image, again, picture(2)))
    assert bin(own ^ copy).count("1") <= selection.SAME
    assert bin(own ^ other).count("1") > 10
    assert hashes.alike(hashes.thumbnail(image), hashes.thumbnail(again))
    assert not hashes.alike(hashes.thumbnail(image), hashes.thumbnail(picture(2)))


@pytest.mark.parametrize("distance", [0, 2, 6])
def test_pairs_are_those_of_all_comparisons(distance: int):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 2**63, 60, dtype=np.uint64) * np.uint64(2)
    flips = [sum(1 << int(b) for b in rng.choice(64, rng.integers(0, 9), replace=False)) for _ in range(120)]
    values = np.concatenate([base, base[rng.integers(0, 60, 120)] ^ np.array(flips, np.uint64)])
    expected = [
        [i, j, bin(int(values[i]) ^ int(values[j])).count("1")]
        for i in range(len(values)) for j in range(i + 1, len(values))
        if bin(int(values[i]) ^ int(values[j])).count("1") <= distance
    ]  # fmt: skip
    assert len(expected) > 5
    assert hashes.pairs(values, distance).tolist() == expected
    near = hashes.nearest(values[:60], values, distance).tolist()
    assert [row for row in near if row[0] < row[1]] == [row for row in expected if row[0] < 60]


def test_groups_are_the_connected_parts():
    links = [(4, 1), (7, 4), (2, 3), (9, 8), (8, 3)]
    reached = []
    for start in range(10):
        seen = {start}
        while more := {b for a, b in [*links, *((b, a) for a, b in links)] if a in seen} - seen:
            seen |= more
        reached.append(min(seen))
    assert hashes.groups(10, links) == reached
