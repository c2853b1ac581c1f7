"""Caption bases: stored without pickle, refused when they do not belong, any label list served."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save

from mltta import CaptionBase, LabelSet
from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import default_captions
from mltta.errors import CaptionError
from mltta.storage import checksums
from tests import golden_data as golden

TEXTS = [
    "A dog sleeps on a sofa.",
    "Two cats and a dog.",
    "The sky is blue.",
    "A man and a woman ride a bus.",
    "",
    "The sky is blue.",
]


@pytest.fixture(scope="module")
def backbone():
    return golden.backbone("vit")


@pytest.fixture(scope="module")
def base(backbone) -> CaptionBase:
    return CaptionBase.build(TEXTS, backbone)


def test_blank_and_repeated_texts_are_dropped_and_the_rest_embedded(base, backbone):
    assert base.texts == TEXTS[:4]
    want = backbone.model.encode_text(backbone.tokenizer(base.texts), normalize=True)
    torch.testing.assert_close(torch.from_numpy(base.embeddings), want, atol=2e-6, rtol=0)


def test_a_saved_base_loads_equal_and_only_for_the_backbone_that_built_it(base, backbone, tmp_path):
    base.save(tmp_path / "base")
    again = CaptionBase.load(tmp_path / "base", backbone)
    assert again.texts == base.texts
    assert np.array_equal(again.embeddings, base.embeddings)
    assert not any(path.suffix in (".pkl", ".pt") for path in (tmp_path / "base").iterdir())
    with pytest.raises(CaptionError, match="another backbone"):
        CaptionBase.load(tmp_path / "base", golden.backbone("rn"))
    with pytest.raises(CaptionError, match="another backbone"):
        label_captions(LabelSet.of(["dog"]), golden.backbone("rn"), again)


def test_embeddings_are_mapped_from_the_file_and_not_read_into_memory(base, tmp_path, backbone):
    big = CaptionBase(
        [f"caption {i}" for i in range(50_000)], torch.eye(512).repeat(98, 1)[:50_000], base.fingerprint
    )
    big.save(tmp_path)
    before = anonymous_memory()
    loaded = CaptionBase.load(tmp_path)
    assert loaded.embeddings.shape == (50_000, 512)
    assert anonymous_memory() - before < 50 * 2**20  # the embeddings alone are 100 MB


def anonymous_memory() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b'{"format": "other"}'),
        ("texts.txt", b"changed\n"),
        ("embeddings.safetensors", b"junk"),
        ("texts.txt", b"\xff\xfe\xfa"),
    ],
)
def test_damaged_files_are_refused(base, tmp_path, name, content):
    base.save(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CaptionError):
        CaptionBase.load(tmp_path)


def test_a_half_written_base_never_loads(base, tmp_path):
    base.save(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CaptionError, match=r"config\.json is missing"):
        CaptionBase.load(tmp_path)


def test_captions_that_name_no_label_can_be_left_out_and_missing_labels_get_composed_ones(base, backbone):
    labels = LabelSet.of({"dog": [], "cat": [], "zeppelin": []})
    everything = label_captions(labels, backbone, base)
    assert everything.k(torch.arange(4)).tolist() == [1, 2, 0, 0]  # the sky and the bus name none
    assert len(everything) == 4 + 16
    labelled = everything.named()
    assert labelled.k(torch.arange(2)).tolist() == [1, 2]
    assert len(labelled) == 2 + 16
    composed = labelled.multi_hot(torch.arange(2, 18))
    assert (composed[:, 2] == 1).all()
    assert labelled.named() is labelled


def test_votes_are_the_similarity_weighted_share_of_captions_that_name_a_label():
    labelled = LabelledCaptions(torch.eye(4), [[0], [0, 1, 1], [], [1]], 2)
    query = torch.tensor([[0.0, 0.6, 0.8, 0.0]])
    weight = torch.tensor([0.6, 0.8]).mul(5.0).softmax(0)
    torch.testing.assert_close(labelled.votes(query, 2, 5.0)[0], torch.stack([weight[0], weight[0]]))


def test_a_compact_base_loads_nearly_equal_at_a_quarter_of_the_size(base, backbone, tmp_path):
    texts = [f"caption {i}" for i in range(500)]
    big = CaptionBase(texts, base.embeddings[:1].repeat(500, axis=0), base.fingerprint)
    big.save(tmp_path / "whole")
    big.save(tmp_path / "compact", compact=True)
    loaded = CaptionBase.load(tmp_path / "compact", backbone)
    assert (loaded.embeddings * big.embeddings).sum(-1).min() > 0.9995
    sizes = [(tmp_path / kind / "embeddings.safetensors").stat().st_size for kind in ("whole", "compact")]
    assert sizes[1] < 0.3 * sizes[0]


def test_the_default_captions_of_another_backbone_are_embedded_once_and_kept(backbone, tmp_path, monkeypatch):
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path))
    first = default_captions(backbone)
    assert len(first) == 16_000
    monkeypatch.setattr(type(backbone), "encode_texts", lambda *_: pytest.fail("embedded twice"))
    assert np.array_equal(default_captions(backbone).embeddings, first.embeddings)


def test_k_counts_a_set_or_every_mention(backbone):
    base = CaptionBase.build(["A man and a woman ride a bus."], backbone)
    labelled = label_captions(LabelSet.load("voc"), backbone, base)
    first = torch.tensor([0])
    assert labelled.k(first, "set").tolist() == [2]
    assert labelled.k(first, "list").tolist() == [3]
    names = LabelSet.load("voc").names
    assert {names[i] for i in labelled.multi_hot(first)[0].nonzero().flatten()} == {"person", "bus"}


def test_retrieval_is_exact_and_nearest_first():
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(torch.randn(300, 16, generator=generator), dim=-1)
    labelled = LabelledCaptions(embeddings, [[0]] * 300, 1)
    query = torch.nn.functional.normalize(torch.randn(2, 5, 16, generator=generator), dim=-1)
    found = labelled.nearest(query, 7)
    for i, j in ((i, j) for i in range(2) for j in range(5)):
        similar = sorted(range(300), key=lambda n: -float(query[i, j] @ embeddings[n]))
        assert found[i, j].tolist() == similar[:7]
    assert labelled.nearest(query, 999).shape == (2, 5, 300)


def test_a_base_without_captions_is_refused(base, backbone, tmp_path):
    with pytest.raises(CaptionError, match="needs at least one caption"):
        CaptionBase([], torch.zeros(0, 8), backbone.text_fingerprint)
    with pytest.raises(CaptionError, match="no captions"):
        CaptionBase.build([], backbone)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(CaptionError, match="contains no captions"):
        CaptionBase.from_file(tmp_path / "empty.txt", backbone)
    base.save(tmp_path / "base")
    config = json.loads((tmp_path / "base/config.json").read_text())
    held = save({"embeddings": torch.zeros(0, config["dim"])})
    (tmp_path / "base/texts.txt").write_bytes(b"")
    (tmp_path / "base/embeddings.safetensors").write_bytes(held)
    config |= {"captions": 0, "texts_blake2b": hashlib.blake2b(b"", digest_size=16).hexdigest()}
    config |= {"embeddings_crc32": f"{checksums.of_bytes(held):08x}"}
    del config[checksums.CHECKSUM]
    (tmp_path / "base/config.json").write_text(json.dumps(checksums.sealed(config)))
    with pytest.raises(CaptionError, match="needs at least one caption"):
        CaptionBase.load(tmp_path / "base", backbone)


def test_wrong_caption_files_are_named(backbone, tmp_path):
    with pytest.raises(CaptionError, match="no such caption file"):
        CaptionBase.from_file(tmp_path / "none.txt", backbone)
    (tmp_path / "image.txt").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(CaptionError, match="line 1: not valid UTF-8"):
        CaptionBase.from_file(tmp_path / "image.txt", backbone)
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(CaptionError, match="blank"):
        CaptionBase.from_file(tmp_path / "blank.txt", backbone)
    (tmp_path / "good.txt").write_bytes("\ufeffA dog.\r\nEin Hund über dem Sofa\r\n".encode())
    assert CaptionBase.from_file(tmp_path / "good.txt", backbone).texts == [
        "A dog.",
        "Ein Hund über dem Sofa",
    ]


def test_the_config_says_what_the_base_is(base, tmp_path):
    base.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["captions"] == 4
    assert config["dim"] == 32
    assert config["backbone"] == base.fingerprint
