"""The fast path against its plain twin: the published procedure, one image and 77 tokens at a time."""

from __future__ import annotations

import pytest
import torch

from benchmarks.plain import Plain
from mltta import CaptionBase, LabelSet, create_method
from mltta.captions.base import label_captions
from mltta.encode import Encoded
from tests import golden_data as golden

LABELS = {
    "one label": ["dog"],
    "labels of very different lengths": [
        "dog",
        "a very long label with really many words in it that goes on",
        "tv",
    ],
    "1,000 labels": [f"thing number {i}" for i in range(1000)],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("name", ["clip", "tpt", "ml-tta"])
@pytest.mark.parametrize("jacobian", [False, True], ids=["backward pass", "kept Jacobian"])
def test_a_batch_on_the_fast_path_scores_as_the_plain_procedure_does_image_by_image(name, labels, jacobian):
    if jacobian and (name == "clip" or len(labels) > 100):
        pytest.skip("nothing is tuned, or the Jacobian would be too large to keep")
    backbone = golden.backbone("vit")
    label_set = LabelSet.of(labels)
    texts = [f"a photo of a {label} and a {labels[0]}" for label in labels[:40]]
    captions = label_captions(label_set, backbone, CaptionBase.build(texts, backbone))
    size = backbone.preprocess.size
    pixels = torch.randn(2, 16, 3, size, size, generator=torch.Generator().manual_seed(3))
    options = {} if name == "clip" else {"views": 16}
    method = create_method(name, backbone, label_set, captions=captions, **options)
    method.text.jacobian = jacobian
    features = torch.stack([backbone.encode_images(one) for one in pixels])
    got = method(Encoded({method.needs[0]: features}))
    plain = Plain(backbone, label_set, captions).method(name)
    want = torch.stack([plain(one) for one in pixels])
    torch.testing.assert_close(got, want.detach(), atol=1e-4, rtol=1e-4)
