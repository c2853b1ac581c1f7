"""A stream of 20,000 images leaves an online method as large as it was."""

from __future__ import annotations

import pytest

from mltta.methods import OnlineMethod
from tests.methods.test_every_method import ONLINE, encoded, held, make

IMAGES = 20_000


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in ONLINE if name != "dart"])  # it encodes each image again
def test_memory_is_flat_over_twenty_thousand_images(name):
    few = {"views": 4, "regions": 4}
    method = make(name)
    method = make(name, **{key: value for key, value in few.items() if hasattr(method.config, key)})
    assert isinstance(method, OnlineMethod)
    state, layout = method.start(), {key: value.shape for key, value in method.start().items()}
    for part in range(20):
        images = encoded(method, IMAGES // 20, seed=part)
        branches, state = method.fold(state, images)
        assert all(scores.isfinite().all() for scores in branches.values())
        if part == 2:
            objects, size = held()
    assert {key: value.shape for key, value in state.items()} == layout
    assert all(value.isfinite().all() for key, value in state.items() if not key.endswith("entropy"))
    objects_after, size_after = held()
    assert objects_after - objects < 17, "something is kept of each of the last seventeen parts"
    assert size_after - size < 16 * 2**20
