"""Partitions: what version 0.2.0 wrote is read with the labels it shows, and not continued."""

from __future__ import annotations

import json

import pytest

from mltta.errors import MlttaError
from mltta.output.partitions import MANIFEST, OLD, Part, Partitions, part_bytes
from mltta.storage.checksums import of_bytes, sealed

pytest.importorskip("pyarrow", reason="pip install 'mltta[parquet]'")


def write(folder, present: list[str]) -> Partitions:
    """One part, whose photo shows a dog at a threshold that the method's own rule did not know of."""
    record = {"image": "a.jpg", "present": present, "labels": [{"label": "dog", "score": 0.25}]}
    content = part_bytes([record])
    partitions = Partitions(str(folder))
    partitions.begin({"labels": ["dog", "cat"]})
    partitions.planned(1)
    part = Part(0, len(content), f"{of_bytes(content):08x}", 1, 0, 1, 0.0)
    partitions.folder.write(part.name, content)
    partitions.add(part)
    partitions.save()
    return partitions


def test_partitions_of_version_0_2_0_are_read_back_as_what_they_show_but_not_resumed(tmp_path):
    write(tmp_path, ["cat", "dog"])
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(sealed(manifest | {"format": OLD})))
    old = Partitions(str(tmp_path))
    assert list(old.records()) == [
        {"image": "a.jpg", "present": ["dog"], "labels": [{"label": "dog", "score": 0.25}]}
    ]
    with pytest.raises(
        MlttaError, match=r"written by version 0\.2\.0, which this version can read but not resume"
    ):
        old.begin({"labels": ["dog", "cat"]})


def test_partitions_of_this_version_are_resumed(tmp_path):
    written = write(tmp_path, ["dog"])
    again = Partitions(str(tmp_path))
    again.begin({"labels": ["dog", "cat"]})
    assert again.parts == written.parts
