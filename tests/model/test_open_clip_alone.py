"""The embedded model is an ordinary open_clip folder: open_clip alone gives the features that mltta gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mltta
from mltta.labels import BUILT_IN, LabelSet
from mltta.model.load import load_backbone
from mltta.storage.folders import MINI
from training import tokenizer as hf_tokenizer

pytest.importorskip("transformers", reason="open_clip reads a folder's own tokenizer with transformers")
PHOTO = Path(__file__).parents[2] / "examples" / "photos" / "dogs.jpg"
TEXTS = ["a photo of a dog.", "Two DOGS &amp; a cat's café, 42%!", "", "a saxophonist " * 30]
#: a process that never imports mltta
ALONE = """
import sys, numpy, open_clip, torch
from PIL import Image
folder, photo, out, *texts = sys.argv[1:]
model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
model.eval()
with torch.no_grad():
    image = model.encode_image(preprocess(Image.open(photo).convert("RGB"))[None], normalize=True)
    text = model.encode_text(tokenizer(texts), normalize=True)
assert "mltta" not in sys.modules
numpy.savez(out, image=image.numpy(), text=text.numpy())
"""


@pytest.fixture(scope="module")
def both():
    """mltta's own tokenizer of mini, and the one that open_clip finds."""
    import open_clip

    return load_backbone("mini", device="cpu").tokenizer, open_clip.get_tokenizer(f"local-dir:{MINI}")


def test_open_clip_alone_gives_the_image_and_text_features_that_mltta_gives(tmp_path):
    out = tmp_path / "features.npz"
    subprocess.run([sys.executable, "-c", ALONE, str(MINI), str(PHOTO), str(out), *TEXTS], check=True)
    alone = np.load(out)
    backbone = load_backbone("mini", device="cpu", accelerate=False)
    text = backbone.encode_texts(TEXTS)
    torch.testing.assert_close(torch.from_numpy(alone["text"]), text, atol=1e-5, rtol=0)
    clean = mltta.ViewSpec(count=1)
    image = mltta.encode_images(backbone, [PHOTO], [clean]).features(clean)[:, 0]  # kept in half precision
    torch.testing.assert_close(torch.from_numpy(alone["image"]), image, atol=2e-4, rtol=0)


def test_both_tokenizers_cut_every_caption_and_label_alike(both):
    ours, theirs = both
    texts = (MINI / "captions" / "texts.txt").read_text(encoding="utf-8").splitlines()[::4]
    texts += [text for name in BUILT_IN for text in LabelSet.load(name).texts] + TEXTS
    texts += ["naïve Ünïcode ÉTÉ 東京 🐕 <end_of_text> it's we'll 3.14 #tag_name\tx", "<start_of_text>a"]
    rows, alone = ours(texts), theirs(texts)
    settings = json.loads((MINI / "open_clip_config.json").read_text(encoding="utf-8"))
    assert int(alone.max()) == settings["model_cfg"]["text_cfg"]["vocab_size"] - 1
    ends = rows.argmax(1)  # where open_clip reads a text's feature; what stands behind it is padding
    assert torch.equal(ends, alone.argmax(1))
    read = torch.arange(rows.shape[1]) <= ends[:, None]
    assert torch.equal(rows * read, alone * read)


def test_the_shipped_tokenizer_is_what_the_byte_pair_table_gives():
    assert (MINI / "tokenizer.json").read_text(encoding="utf-8") == hf_tokenizer.tokenizer_json(
        MINI / hf_tokenizer.BPE
    )
