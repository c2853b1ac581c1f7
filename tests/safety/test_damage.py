"""Every byte of what is kept, flipped: it is told, or it changes no number. None is silent."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mltta.captions.store import CaptionBase
from mltta.errors import MlttaError, WeightsError
from mltta.evaluation.results import Result
from mltta.evaluation.summary import Summary
from mltta.evaluation.writing import ResultWriter
from mltta.model import model_folder as folder_
from mltta.model.learned_prompts import load_prompts, save_prompts
from mltta.storage.folders import MINI
from tests.model.prompted import coop
from tests.safety.world import captions, dataset, run


def flips(file: Path) -> Iterator[int]:
    """Every byte of a file, one after another, with all its bits turned; at the end the file is whole again."""
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        yield at
    for at in range(0, len(whole), 7):  # one bit: the value stays printable, or JSON
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 7)]) + whole[at + 1 :])
        yield at
    file.write_bytes(whole)


def told(caplog) -> bool:
    """Whether a warning has been given since the last look."""
    found = any(record.levelno >= logging.WARNING for record in caplog.records)
    caplog.clear()
    return found


@pytest.mark.parametrize("compact", [False, True])
def test_every_byte_of_a_caption_base(tmp_path, compact):
    base = CaptionBase(captions().texts[:3], captions().embeddings[:3], captions().fingerprint, "tiny")
    base.save(tmp_path, compact)
    want = CaptionBase.load(tmp_path)
    noticed = 0
    for file in sorted(tmp_path.iterdir()):
        for at in flips(file):
            try:
                found = CaptionBase.load(tmp_path)
            except MlttaError:
                noticed += 1
                continue
            assert (found.texts, found.fingerprint, found.model) == (
                want.texts,
                want.fingerprint,
                want.model,
            ), at
            assert np.array_equal(found.embeddings, want.embeddings), f"{file.name}, byte {at}"
    assert noticed > 500


def test_every_byte_of_a_file_of_prompts(tmp_path):
    file = save_prompts(coop(torch.randn(2, 8), model="tiny", labels=["dog"]), tmp_path / "p.safetensors")
    want, noticed = load_prompts(file), 0
    for at in flips(file):
        try:
            found = load_prompts(file)
        except MlttaError:
            noticed += 1
            continue
        assert torch.equal(found.context, want.context), at
        assert found.about == want.about, at
    assert noticed > 100


def figures(folder: Path) -> dict:
    """All numbers that a result comes to, and whether it says that it is not finished."""
    result = Result(folder)
    said = Summary(result, draws=2).as_dict()
    return said | {"complete": result.complete, "scores": result.shown().tolist()}


@pytest.mark.parametrize("name", ["run.json", "images.jsonl", "scores.f32", "targets.i8"])
def test_every_byte_of_a_result(tmp_path, name):
    (result,) = run(dataset(tmp_path / "photos", 4), ["clip"], tmp_path / "out").results
    want, noticed = figures(result.folder), 0
    for at in flips(result.folder / name):
        try:
            found = figures(result.folder)
        except MlttaError:
            noticed += 1
            continue
        if not found["complete"]:  # a lost line end looks like a kill: it says that it is not finished
            noticed += 1
            continue
        assert found == want, f"byte {at}"
    assert noticed > 10


def test_every_byte_of_an_online_methods_memory(tmp_path, caplog):
    data = dataset(tmp_path / "photos", 4)
    (result,) = run(data, ["tda"], tmp_path / "out").results
    said = json.loads((result.folder / "run.json").read_text())
    about = {k: v for k, v in result.run.items() if k not in ("images", "shape")}
    whole = tmp_path / "whole"
    shutil.copytree(result.folder, whole)
    file = result.folder / "state.safetensors"
    content, want = file.read_bytes(), load_file(file)
    silent = []
    for at in range(len(content)):
        for name in ("images.jsonl", "scores.f32"):
            shutil.copy(whole / name, result.folder / name)
        file.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        writer = ResultWriter(result.folder, about, data.targets, said["shape"][0])
        state = writer.load_state()
        writer.close()
        if not told(caplog) and (state is None or writer.count != 4):
            silent.append(at)
        if state is not None:
            assert state.keys() == want.keys()
            assert all(torch.equal(state[name], want[name]) for name in want), at
            assert writer.count == 4
    assert silent == []


def test_two_hundred_flips_in_the_feature_cache_change_no_score(tmp_path, caplog):
    data = dataset(tmp_path / "photos", 6)
    kept = tmp_path / "features"
    (first,) = run(data, ["clip"], tmp_path / "first", cache=kept).results
    want = first.branches().copy()
    (home,) = kept.iterdir()
    files = [file for file in sorted(home.iterdir()) if file.name != "key.json"]
    random = np.random.default_rng(0)
    contents = {file: file.read_bytes() for file in files}
    encoded_again = 0
    for i in range(200):
        file = files[i % len(files)]
        at = int(random.integers(len(contents[file])))
        file.write_bytes(
            contents[file][:at] + bytes([contents[file][at] ^ (1 << i % 8)]) + contents[file][at + 1 :]
        )
        caplog.clear()
        done = run(data, ["clip"], tmp_path / "again", cache=kept, fresh=True)
        assert np.array_equal(done.results[0].branches(), want), (file.name, at)
        assert done.counts.encoded == 1, (file.name, at)
        encoded_again += 1
        for extra in set(home.iterdir()) - {*files, home / "key.json"}:
            extra.unlink()
        file.write_bytes(contents[file])
    assert encoded_again == 200


def test_rows_that_change_places_are_encoded_again_with_a_word(tmp_path, caplog):
    data = dataset(tmp_path / "photos", 4)
    kept = tmp_path / "features"
    (first,) = run(data, ["clip"], tmp_path / "first", cache=kept).results
    want = first.branches().copy()
    (features,) = kept.glob("*/*.features")
    rows = np.fromfile(features, np.float16).reshape(4, -1)
    rows[[0, 1]] = rows[[1, 0]]
    rows[2] = 0
    rows.tofile(features)
    done = run(data, ["clip"], tmp_path / "second", cache=kept)
    assert np.array_equal(done.results[0].branches(), want)
    assert done.counts.encoded == 3
    assert sum("a cached row is damaged" in record.message for record in caplog.records) == 3
    again = run(data, ["clip"], tmp_path / "third", cache=kept)
    assert again.counts.encoded == 0, "the whole rows are found behind the damaged ones"


def test_the_embedded_model_is_compared_with_its_checksums(tmp_path):
    mini = tmp_path / "mini"
    shutil.copytree(MINI, mini)
    folder_.check_sums(mini)
    read = ("open_clip_config.json", "bpe.txt.gz", "open_clip_model.safetensors", "tokenizer.json")
    for name in (*read, "tokenizer_config.json", "checksums.json"):
        whole = (mini / name).read_bytes()
        at = len(whole) // 2
        (mini / name).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(WeightsError, match="is damaged"):
            folder_.check_sums(mini)
        (mini / name).write_bytes(whole)


def test_files_of_before_checksums_are_read_with_a_word(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mltta")
    captions().save(tmp_path / "base")
    said = json.loads((tmp_path / "base" / "config.json").read_text())
    del said["checksum"], said["embeddings_crc32"]
    (tmp_path / "base" / "config.json").write_text(json.dumps(said | {"format": "mltta-captions-1"}))
    assert CaptionBase.load(tmp_path / "base").texts == captions().texts
    assert "no checksums (older format)" in caplog.text
