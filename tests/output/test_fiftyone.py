"""Tags into FiftyOne and photos out of it, with the real library; its database is used where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

import mltta
from mltta.output.exchange import write_fiftyone
from tests.output.test_formats import page

fiftyone = pytest.importorskip("fiftyone", reason="pip install fiftyone")
PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
LABELS = [{"label": "dog", "score": 0.75}, {"label": "grass", "score": 0.5}]
RECORDS = [
    {"image": str(PHOTOS / "dogs.jpg"), "present": ["dog", "grass"], "labels": LABELS},
    {"image": str(PHOTOS / "bee.jpg"), "present": [], "labels": []},
]


@pytest.fixture
def folder(tmp_path):
    write_fiftyone(tmp_path / "labels.json", RECORDS, page(tmp_path / "labels.json"))
    return tmp_path


def told(classifications):
    found = classifications.classifications if classifications else []
    return [(one.label, pytest.approx(one.confidence)) for one in found]


def test_fiftyones_own_importer_reads_photos_labels_and_scores(folder):
    from fiftyone.utils.data.importers import FiftyOneImageClassificationDatasetImporter

    with FiftyOneImageClassificationDatasetImporter(dataset_dir=str(folder)) as importer:
        read = {Path(path).name: told(labels) for path, _, labels in importer}
    assert read == {"dogs.jpg": [("dog", 0.75), ("grass", 0.5)], "bee.jpg": []}


def test_photos_of_fiftyone_are_tagged_and_get_their_labels_as_a_field():
    samples = [fiftyone.Sample(filepath=str(PHOTOS / f"{name}.jpg")) for name in ("dogs", "cat")]
    tagger = mltta.Tagger(labels=["dog", "cat"], effort="fast")
    for sample, tags in zip(samples, tagger([sample.filepath for sample in samples]), strict=True):
        shown = [fiftyone.Classification(label=item["label"], confidence=item["score"]) for item in tags[:1]]
        sample["mltta"] = fiftyone.Classifications(classifications=shown)
    assert [sample["mltta"].classifications[0].label for sample in samples] == ["dog", "cat"]
    assert samples[1]["mltta"].classifications[0].confidence > 0.5


def test_a_dataset_in_fiftyones_database_has_our_labels(folder):
    try:
        kind = fiftyone.types.FiftyOneImageClassificationDataset
        dataset = fiftyone.Dataset.from_dir(str(folder), dataset_type=kind)
    except fiftyone.core.config.FiftyOneConfigError as error:
        pytest.skip(f"no database: {error}")
    try:
        assert {Path(one.filepath).name: told(one.ground_truth) for one in dataset} == {
            "dogs.jpg": [("dog", 0.75), ("grass", 0.5)],
            "bee.jpg": [],
        }
    finally:
        dataset.delete()
