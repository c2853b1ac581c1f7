"""Tensors that no training writes: unusual types, layouts and strides; archives that expand; settings for code."""

from __future__ import annotations

import json
import struct
import time
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as save_arrays

from mltta.captions.store import CaptionBase
from mltta.errors import CaptionError, MlttaError, WeightsError
from mltta.model.learned_prompts import load_prompts
from mltta.model.load import load_backbone
from mltta.model.weights import load
from mltta.storage import checksums
from tests.safety import world

WIDE = torch.ones(4, 64)
ODD = {
    "meta": lambda: torch.ones(4, 64, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(WIDE, 0.1, 0, torch.qint8),
    "sparse": lambda: WIDE.to_sparse(),
    "sparse rows": lambda: WIDE.to_sparse_csr(),
    "stride 0": lambda: torch.ones(1).expand(1 << 20, 1 << 20),
    "complex": lambda: WIDE.to(torch.complex64),
    "nested": lambda: torch.nested.nested_tensor([WIDE, WIDE]),
    "of another type": lambda: WIDE.to(torch.float8_e8m0fnu),
}


def packed(dtype: str, bits: int, shape: tuple[int, ...], **more: str) -> bytes:
    """A safetensors file with one tensor of zeros."""
    size = int(np.prod(shape)) * bits // 8
    about: dict = {"ctx": {"dtype": dtype, "shape": list(shape), "data_offsets": [0, size]}}
    if more:
        about["__metadata__"] = more
    head = json.dumps(about).encode()
    return struct.pack("<Q", len(head)) + head + bytes(size)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_prompts_and_weights_of_unusual_tensors_are_refused_by_name(tmp_path, kind):
    file = tmp_path / "odd.pt"
    for held, read in (
        ({"ctx": ODD[kind]()}, load_prompts),
        (world.state() | {"ln_final.weight": ODD[kind]()}, lambda path: load(None, path, quick_gelu=True)),
    ):
        torch.save(held, file)
        with pytest.raises(WeightsError, match=r"odd\.pt") as caught:
            read(file)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "bits"), [("F4", 4), ("F8_E8M0", 8), ("F6_E2M3", 6), ("C64", 64), ("F99", 8)]
)
def test_safetensors_of_unusual_types_are_refused_by_name(tmp_path, dtype, bits):
    for more in ({}, {"mltta": '{"format": "mltta-prompts-2"}', "checksum": "0"}):
        file = tmp_path / "odd.safetensors"
        file.write_bytes(packed(dtype, bits, (4, 64), **more))
        with pytest.raises(WeightsError, match=r"odd\.safetensors"):
            load_prompts(file)
        with pytest.raises(WeightsError, match=r"odd\.safetensors"):
            load(None, file, quick_gelu=True)


def test_tensors_that_share_a_storage_many_times_are_refused(tmp_path):
    one = torch.zeros(1 << 20)
    torch.save({"state_dict": {f"ctx{i}": one for i in range(1000)} | {"ctx": WIDE}}, tmp_path / "many.pt")
    start = time.monotonic()
    with pytest.raises(WeightsError, match=r"many\.pt"):
        load(None, tmp_path / "many.pt", quick_gelu=True)
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("read", [load_prompts, lambda path: load(None, path, quick_gelu=True)])
def test_an_archive_that_expands_is_refused_before_it_is_read(tmp_path, read):
    whole, bomb = tmp_path / "whole.pt", tmp_path / "bomb.pt"
    torch.save({"ctx": torch.zeros(1 << 24)}, whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert bomb.stat().st_size < 1 << 20
    start = time.monotonic()
    with pytest.raises(WeightsError, match=r"bomb\.pt is compressed"):
        read(bomb)
    assert time.monotonic() - start < 1


def test_an_archive_of_too_many_entries_is_refused_before_they_are_listed(tmp_path):
    file = tmp_path / "many.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    held = file.read_bytes()
    at = held.rindex(b"PK\5\6")
    entry = held[held.index(b"PK\1\2") : at]
    listing = entry * (20_000_000 // len(entry))
    end = held[at : at + 12] + struct.pack("<I", len(listing)) + held[at + 16 :]
    file.write_bytes(held[: held.index(b"PK\1\2")] + listing + end)
    start = time.monotonic()
    with pytest.raises(WeightsError, match=r"many\.pt"):
        load_prompts(file)
    assert time.monotonic() - start < 1


SCALES = {
    "too short": np.ones(2, np.float32),
    "one": np.ones(1, np.float32),
    "too long": np.ones(50, np.float32),
    "a matrix": np.ones((5, 1), np.float32),
    "a number": np.array(1, np.float32),
    "bytes": np.ones(5, np.int8),
    "not finite": np.full(5, np.nan, np.float32),
}


@pytest.mark.parametrize("what", [*SCALES, "missing"])
def test_a_caption_base_with_a_wrong_scale_is_refused_by_name(tmp_path, what):
    base = tmp_path / "base"
    world.captions().save(base, compact=True)
    levels = np.ones((5, world.captions().embeddings.shape[1]), np.int8)
    scales = {} if what == "missing" else {"scale": SCALES[what]}
    save_arrays({"embeddings": levels, **scales}, base / "embeddings.safetensors")
    config = json.loads((base / "config.json").read_text())
    config["embeddings_crc32"] = checksums.of_file(base / "embeddings.safetensors")
    (base / "config.json").write_text(json.dumps(checksums.sealed(config)))
    with pytest.raises(CaptionError, match="base"):
        CaptionBase.load(base)


def test_a_caption_base_that_announces_more_than_it_has_is_refused(tmp_path):
    base = tmp_path / "base"
    world.captions().save(base, compact=True)
    file = base / "embeddings.safetensors"
    for dtype, bits in (("F4", 4), ("BF16", 16), ("BOOL", 8)):
        file.write_bytes(packed(dtype, bits, (5, 64)).replace(b'"ctx"', b'"embeddings"'))
        config = json.loads((base / "config.json").read_text()) | {
            "embeddings_crc32": checksums.of_file(file)
        }
        (base / "config.json").write_text(json.dumps(checksums.sealed(config)))
        with pytest.raises(CaptionError, match="base"):
            CaptionBase.load(base)


TOKENIZERS = {
    "a tokenizer's code": {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["own.Own", None]}}},
    "a model's code": {"config.json": {"auto_map": {"AutoConfig": "own.Own"}, "model_type": "own"}},
    "a class that does not exist": {"tokenizer_config.json": {"tokenizer_class": "OwnTokenizer"}},
    "a tokenizer that is no object": {"tokenizer_config.json": 5},
}


@pytest.mark.parametrize("what", TOKENIZERS)
def test_a_model_folder_that_asks_for_code_without_saying_so_is_refused_by_name(tmp_path, what):
    said = world.config()
    said["model_cfg"]["text_cfg"] |= {"hf_tokenizer_name": "org/m"}
    folder = world.model_folder(tmp_path / "model", said)
    marker = tmp_path / "marker"
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(marker)!r})\nclass Own: pass\n")
    for name, held in TOKENIZERS[what].items():
        (folder / name).write_text(json.dumps(held))
    with pytest.raises(MlttaError, match="model") as caught:
        load_backbone(str(folder))
    assert not marker.exists()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_folder_with_only_a_pickle_gets_a_message_about_it(tmp_path):
    for config in (True, False):
        folder = tmp_path / f"model{config}"
        world.model_folder(folder)
        (folder / "open_clip_model.safetensors").unlink()
        if not config:
            (folder / "open_clip_config.json").unlink()
        (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}.")
        with pytest.raises(WeightsError, match=r"pickled weights.*pytorch_model\.bin"):
            load_backbone(str(folder))
