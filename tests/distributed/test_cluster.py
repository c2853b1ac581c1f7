"""A real Ray on this machine: two workers, one of them killed, a part damaged; the table is always the plain run's."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mltta.distributed import Size, measuring, tag
from mltta.distributed.cluster import Fitted, fit
from mltta.errors import ConfigError, MlttaError
from mltta.evaluation.recipes import Recipe
from mltta.images.find import find_images
from mltta.output.partitions import Partitions, is_partitions
from tests.cli.test_cli import mltta
from tests.distributed.scene import local, make_photos, tagger
from tests.evaluation.scene import bits, make_dataset, run

pytest.importorskip("ray", reason="pip install 'mltta[ray]'")
ROOT = Path(__file__).parents[2]


class Slow:
    """A tagger that takes its time, so that something can happen meanwhile."""

    def __init__(self):
        self.whole = tagger()

    def __getattr__(self, name):
        if name == "whole":  # not there while it is sent
            raise AttributeError(name)
        return getattr(self.whole, name)

    def stream(self, images):
        for tags in self.whole.stream(images):
            time.sleep(0.1)
            yield tags


@pytest.fixture(scope="module")
def cluster():
    """Two CPUs of this machine as a cluster, for all tests of this file."""
    import ray

    there = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [there])])  # workers know the tests
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray
    ray.shutdown()
    os.environ["PYTHONPATH"] = there


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = make_photos(tmp_path_factory.mktemp("cluster") / "photos", 24)
    (folder / "bad.png").write_text("no photo")
    return folder


@pytest.fixture(scope="module")
def plain(photos):
    return local(find_images([photos]))


@pytest.fixture(scope="module")
def done(cluster, photos, tmp_path_factory):
    """What two workers have made of the photos, one of them killed in the middle; and who did what."""
    out, told = tmp_path_factory.mktemp("done") / "tags", []

    def kill_the_first(one, plan):
        if one is None:
            assert plan.images == 25
            return
        if not told:
            os.kill(one.worker[1], signal.SIGKILL)
        told.append(one)

    tag(Slow, [str(photos)], str(out), size=Size(2), shard_size=2, progress=kill_the_first)
    return out, told


def test_two_workers_say_what_a_plain_run_says_though_one_was_killed(done, plain):
    out, told = done
    assert list(Partitions(str(out)).records()) == plain
    shards = Counter(one.part.shard for one in told)
    assert shards == Counter(range(13)), "every shard once"
    assert len({one.worker for one in told}) == 3, "the killed one, the other, and one in its place"


def test_a_damaged_part_is_redone_alone(done, cluster, photos, plain, tmp_path):
    out, told = tmp_path / "tags", []
    shutil.copytree(done[0], out)
    hurt, gone = out / "part-0000003.parquet", out / "part-0000007.parquet"
    content = bytearray(hurt.read_bytes())
    content[len(content) // 2] ^= 1
    hurt.write_bytes(content)
    gone.unlink()
    with pytest.raises(MlttaError, match=r"part-0000003\.parquet is missing or damaged"):
        list(Partitions(str(out)).records())
    tag(
        tagger(),
        [str(photos)],
        str(out),
        size=Size(2),
        shard_size=2,
        progress=lambda t, _: told.append(t),
    )
    assert sorted(one.part.shard for one in told[1:] if not one.before) == [3, 7]
    assert list(Partitions(str(out)).records()) == plain
    assert [file.read_bytes() for file in sorted(out.glob("*.parquet"))] == [
        file.read_bytes() for file in sorted(done[0].glob("*.parquet"))
    ]


def test_the_command_reads_partitions_back_as_the_file_of_a_plain_run(done, photos, plain, tmp_path):
    assert is_partitions(done[0])
    again = mltta("export", done[0], "-o", tmp_path / "back.jsonl", check=1)  # one photo is bad
    assert "1 of 25 could not be tagged" in again.stderr
    rows = (tmp_path / "back.jsonl").read_text().splitlines()
    assert len(rows) == 25
    gallery = mltta("export", done[0], "-o", tmp_path / "back.html", check=1)
    assert "24 images exported" in gallery.stderr
    assert (tmp_path / "back.html").read_text().count("UklGR") == 24  # each photo as a small WebP
    whole = mltta("export", done[0], "-o", tmp_path / "back.jsonl", check=2)
    assert "back.jsonl already exists" in whole.stderr


def test_other_settings_are_refused_before_any_work(done, cluster, photos):
    with pytest.raises(MlttaError, match=r"threshold was 0\.0, is now not given"):
        tag(tagger(threshold=None), [str(photos)], str(done[0]), shard_size=2)
    with pytest.raises(MlttaError, match="seed was 0, is now 1"):
        tag(tagger(seed=1), [str(photos)], str(done[0]), shard_size=2)


def test_a_method_that_learns_from_photos_before_is_refused(cluster, photos, tmp_path):
    with pytest.raises(ConfigError, match="learns from earlier photos"):
        tag(tagger("tda"), [str(photos)], str(tmp_path / "tags"))


def test_a_folder_of_something_else_is_left_alone(cluster, photos, tmp_path):
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(MlttaError, match=r"contains letters\.txt"):
        tag(tagger(), [str(photos)], str(tmp_path), overwrite=True)


def test_workers_leave_a_part_of_every_cpu():
    assert fit(Size(workers=2), [(2, 0)]) == Fitted(2, 1, 0.9, 0)
    assert fit(Size(), [(2, 0)]) == Fitted(1, 2, 1.8, 0)
    assert fit(Size(), [(16, 0), (8, 0)]) == Fitted(6, 4, 3.6, 0)
    assert fit(Size(workers=4), [(2, 0)]) == Fitted(4, 1, 0.45, 0)  # more workers than CPUs find room too
    assert fit(Size(gpus=1), [(32, 4), (32, 4)]) == Fitted(8, 8, 7.2, 1)
    with pytest.raises(MlttaError, match="the cluster has 0"):
        fit(Size(gpus=1), [(2, 0)])


def test_without_ray_the_option_says_how_to_get_it(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = mltta("tag", photos, "--ray", "-o", tmp_path / "tags", check=2)
    assert "pip install 'mltta[ray]'" in said.stderr


def test_ray_wants_a_folder_and_refuses_what_is_done_with_photos(photos, tmp_path):
    assert (
        "--ray writes a folder" in mltta("tag", photos, "--ray", "-o", tmp_path / "tags.csv", check=2).stderr
    )
    said = mltta(
        "tag", photos, "--ray", "local", "--keywords", "sidecar", "-o", tmp_path / "tags", check=2
    ).stderr
    assert "--keywords does not work with --ray" in said


def test_results_measured_by_two_workers_are_those_of_one_machine_to_the_bit(cluster, tmp_path):
    data = make_dataset(tmp_path / "photos", 12)
    (tmp_path / "photos" / "photo3.png").write_text("no photo")
    recipes = [Recipe("clip"), Recipe("ml-tta", {"views": 8})]
    alone = run(data, recipes, tmp_path / "alone")
    with measuring(size=Size(2), images=3) as spread:
        together = run(data, recipes, tmp_path / "together", spread=spread)
        assert together.counts.encoded == 11
        again = run(data, recipes, tmp_path / "together", spread=spread)  # only the bad one is tried again
    for one, other in zip(alone.results, together.results, strict=True):
        assert bits(one) == bits(other)
        assert (one.shown() == other.shown()).all()
        assert one.failed == other.failed != {}
        assert one.run == other.run
    assert (again.counts.encoded, set(again.resumed.values())) == (0, {11})


def test_measuring_a_method_with_a_memory_on_a_cluster_is_refused(cluster, tmp_path):
    data = make_dataset(tmp_path / "photos", 2)
    with measuring() as spread, pytest.raises(ConfigError, match="run it without --ray"):
        run(data, ["tda"], tmp_path, spread=spread)
