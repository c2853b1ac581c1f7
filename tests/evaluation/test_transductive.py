"""A transductive method answers at the end of a dataset, for all images, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from mltta import create_method
from mltta.evaluation.comparison import RECONSTRUCTED, comparison, lines
from mltta.session.features import encode_images
from tests import golden_data as golden
from tests.evaluation.scene import bits, captions, make_dataset, run
from tests.evaluation.test_same_bits import Stop, stop_after


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("photos"))


def test_its_scores_are_those_of_the_whole_dataset_in_one_batch(photos, tmp_path):
    done = run(photos, ["clip", "sparc"], tmp_path, batch_size=2)
    method = create_method("sparc", golden.backbone("vit"), photos.labels, captions=captions())
    whole = method(encode_images(golden.backbone("vit"), photos.images, method.needs))
    np.testing.assert_allclose(done.results[1].scores(), whole.numpy(), atol=1e-4)
    assert done.results[1].complete
    assert done.results[1].run["transductive"]
    assert len(done.results[1].scored) == len(photos)


def test_a_stopped_run_leaves_no_answer_and_starts_again_with_the_same_bits(photos, tmp_path):
    want = bits(run(photos, ["sparc"], tmp_path / "whole").results[0])
    with pytest.raises(Stop):
        run(photos, ["sparc"], tmp_path / "stopped", batch_size=2, progress=stop_after(4))
    done = run(photos, ["sparc"], tmp_path / "stopped", batch_size=3)
    assert set(done.resumed.values()) == {0}
    assert bits(done.results[0]) == want
    again = run(photos, ["sparc"], tmp_path / "stopped")
    assert set(again.resumed.values()) == {len(photos)}


def test_answers_that_were_cut_off_while_written_are_all_made_again(photos, tmp_path):
    whole = run(photos, ["sparc"], tmp_path).results[0]
    want, records = bits(whole), whole.folder / "images.jsonl"
    held = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(held[:5]))
    assert bits(run(photos, ["sparc"], tmp_path).results[0]) == want


def test_an_image_that_cannot_be_read_is_told_and_the_others_are_answered(photos, tmp_path):
    broken = make_dataset(tmp_path / "some")
    broken.images[3].write_bytes(b"no picture")
    result = run(broken, ["sparc"], tmp_path / "out").results[0]
    assert len(result.failed) == 1
    assert result.complete
    assert np.isfinite(result.scores()).all()


def test_a_table_marks_what_is_a_reconstruction(photos, tmp_path):
    table = comparison(lines(run(photos, ["clip", "bcp"], tmp_path).results, draws=10))
    assert [row.name for row in table.rows] == ["clip", "bcp †"]
    assert RECONSTRUCTED in table.notes
    plain = comparison(lines(run(photos, ["clip"], tmp_path).results, draws=10))
    assert RECONSTRUCTED not in plain.notes
