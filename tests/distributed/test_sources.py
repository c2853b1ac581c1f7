"""Photos from folders, tars, Parquet, datasets and S3: each once, named, with the scores of a plain run."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from mltta.distributed.listing import Listing
from mltta.distributed.plan import make_plan, names_of
from mltta.errors import ConfigError, MlttaError
from mltta.images.find import find_images
from mltta.output.partitions import Partitions, is_partitions
from mltta.storage.folders import Folder
from tests.distributed.scene import in_this_process, local, make_photos
from tests.safety.world import photo

pytest.importorskip("ray", reason="pip install 'mltta[ray]'")


def png(seed: int) -> bytes:
    held = io.BytesIO()
    photo(seed).save(held, "PNG")
    return held.getvalue()


def make_tar(file: Path, count: int, cut: int = 0) -> Path:
    """Photos and their notes, as WebDataset keeps them, perhaps without the last bytes."""
    with tarfile.open(file, "w") as tar:
        for seed in range(count):
            for name, content in ((f"{seed:05}.png", png(seed)), (f"{seed:05}.json", b"{}")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    if cut:
        file.write_bytes(file.read_bytes()[:cut])
    return file


def test_a_folder_is_listed_in_the_order_of_a_plain_run(tmp_path):
    folder = make_photos(tmp_path / "photos", 17)
    (folder / "b.png").write_bytes(
        png(99)
    )  # between the folder b and what is in it, if names were compared whole
    (folder / ".hidden.png").write_bytes(png(99))
    (folder / "raw.cr2").write_bytes(b"raw")
    listing = Listing([str(folder)])
    assert [Path(one.of) for one in listing if one.kind == "name"] == find_images([folder])
    assert str(listing).startswith("1 file skipped (.cr2")


def test_shards_hold_every_photo_once_and_are_the_same_again(tmp_path):
    folder = make_photos(tmp_path / "photos", 50)
    plans = [make_plan([str(folder)], Folder(str(tmp_path / name))) for name in ("one", "two")]
    assert plans[0] == plans[1]
    assert [shard.count for shard in plans[0].shards] == [32, 18]
    names = [name for shard in plans[0].shards for name in names_of(shard, Folder(str(tmp_path / "one")))]
    assert list(map(Path, names)) == find_images([folder])


def test_a_plan_that_was_made_is_kept_when_photos_come_later(tmp_path):
    folder, out = make_photos(tmp_path / "photos", 3), Folder(str(tmp_path / "out"))
    before = make_plan([str(folder)], out)
    (folder / "new.png").write_bytes(png(9))
    assert make_plan([str(folder)], out) == before
    with pytest.raises(MlttaError, match="was created from"):
        make_plan([str(folder / "b")], out)


def test_a_damaged_list_of_photos_is_not_believed(tmp_path):
    folder, out = make_photos(tmp_path / "photos", 3), Folder(str(tmp_path / "out"))
    shard = make_plan([str(folder)], out).shards[0]
    listed = tmp_path / "out" / "_lists" / "0000000.json"
    listed.write_text(json.dumps(["other.png"]))
    with pytest.raises(MlttaError, match="missing or damaged"):
        names_of(shard, out)


def test_photos_that_would_come_twice_are_refused(tmp_path):
    folder = make_photos(tmp_path / "photos", 5)
    with pytest.raises(ConfigError, match="more than once"):
        list(Listing([str(folder), str(folder / "b")]))


def test_an_empty_folder_is_said_to_be_empty(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MlttaError, match="no images in"):
        make_plan([str(tmp_path / "empty")], Folder(str(tmp_path / "out")))


def test_a_worker_writes_what_a_plain_run_says_and_a_bad_photo_is_a_row(tmp_path):
    folder = make_photos(tmp_path / "photos", 9)
    (folder / "bad.png").write_text("no photo")
    found, told = in_this_process([str(folder)], str(tmp_path / "out"), size=4)
    assert found == local(find_images([folder]))
    assert [one.part.images for one in told] == [4, 4, 2]
    assert sum(one.part.failed for one in told) == 1
    assert ["error" in record for record in found].count(True) == 1


def test_a_tar_gives_its_photos_and_one_that_breaks_off_says_so(tmp_path):
    tar = make_tar(tmp_path / "shard-000.tar", 5)
    names = [f"{tar}/{seed:05}.png" for seed in range(5)]
    assert in_this_process([str(tar)], str(tmp_path / "whole"))[0] == local([png(i) for i in range(5)], names)
    cut = make_tar(tmp_path / "shard-001.tar", 5, cut=tar.stat().st_size // 2)
    found, _ = in_this_process([str(tmp_path / "*-001.tar")], str(tmp_path / "cut"))
    assert 0 < len(found) < 6
    assert "cannot be read beyond its first" in found[-1]["error"]
    assert found[-1]["image"] == str(cut)


def test_rows_of_parquet_are_photos_as_bytes_or_paths(tmp_path):
    encoded = [png(seed) for seed in range(7)]
    want = local(encoded)
    parquet.write_table(
        pa.table({"n": range(7), "jpg": encoded}), tmp_path / "bytes.parquet", row_group_size=3
    )
    images = [{"bytes": one, "path": None} for one in encoded]
    parquet.write_table(pa.table({"image": images}), tmp_path / "hf.parquet", row_group_size=2)
    for seed, content in enumerate(encoded):
        (tmp_path / f"{seed}.png").write_bytes(content)
    parquet.write_table(pa.table({"path": [f"{i}.png" for i in range(7)]}), tmp_path / "paths.parquet")
    for name in ("bytes", "hf", "paths"):
        file = str(tmp_path / f"{name}.parquet")
        found, told = in_this_process([file], str(tmp_path / name), size=2)
        assert [one.part.images for one in told] == [2, 2, 2, 1]
        assert [record["labels"] for record in found] == [record["labels"] for record in want]
        last = str(tmp_path / "6.png") if name == "paths" else f"{file}#6"
        assert found[-1]["image"] == last


def test_rows_without_an_image_or_a_file_without_images_are_rows_with_errors(tmp_path):
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"jpg": [png(0), None]}), file)
    found, _ = in_this_process([str(file)], str(tmp_path / "one"))
    assert found[1] == {"image": f"{file}#1", "error": f"{file}#1: this row contains no image"}
    parquet.write_table(pa.table({"number": [1, 2]}), file)
    found, _ = in_this_process([str(file)], str(tmp_path / "two"))
    assert [record["image"] for record in found] == [f"{file}#0", f"{file}#1"]
    assert all("has no image column" in record["error"] for record in found)


def test_a_saved_dataset_is_read_by_rows(tmp_path):
    from datasets import Dataset, Features, Image

    saved = Dataset.from_dict(
        {"image": [{"bytes": png(i), "path": None} for i in range(3)]}, Features(image=Image())
    )
    saved.save_to_disk(str(tmp_path / "saved"))
    given = f"hf:{tmp_path / 'saved'}"
    names = [f"{given}/{row}" for row in range(3)]
    assert in_this_process([given], str(tmp_path / "out"))[0] == local([png(i) for i in range(3)], names)


@pytest.fixture
def bucket(monkeypatch):
    """The address of a store that speaks S3, in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    from pyarrow import fs

    store = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True)
    store.create_dir("photos")
    yield store, f"?endpoint_override={host}:{port}&scheme=http"
    server.stop()


def test_photos_in_s3_give_partitions_in_s3_with_the_scores_of_files(bucket, tmp_path):
    store, how = bucket
    for name, seed in (("a/x.png", 0), ("a/y.png", 1), ("b.png", 2)):
        with store.open_output_stream(f"photos/{name}") as file:
            file.write(png(seed))
    with store.open_output_stream("photos/a/bad.png") as file:
        file.write(b"no photo")
    with store.open_output_stream("photos/tars/0.tar") as file:
        file.write(make_tar(tmp_path / "0.tar", 2).read_bytes())
    out = f"s3://photos/out{how}"
    found, _ = in_this_process(
        [f"s3://photos/a{how}", f"s3://photos/b.png{how}", f"s3://photos/tars/*.tar{how}"], out
    )
    names = ["a/bad.png", "a/x.png", "a/y.png", "b.png", "tars/0.tar/00000.png", "tars/0.tar/00001.png"]
    assert [record["image"] for record in found] == [f"s3://photos/{name}" for name in names]
    assert found[0]["error"].startswith("s3://photos/a/bad.png: not a readable")
    good = local([png(seed) for seed in (0, 1, 2, 0, 1)])
    assert [record["labels"] for record in found[1:]] == [record["labels"] for record in good]
    assert is_partitions(out)
    assert not is_partitions(f"s3://photos/a{how}")
    assert Partitions(out).images == 6


def test_keys_in_an_address_are_refused_since_it_is_written_down():
    with pytest.raises(ConfigError, match="environment"):
        list(Listing(["s3://key:secret@bucket/photos"]))
