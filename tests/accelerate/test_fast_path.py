"""The optimized path compared with the reference: the published procedure, one image and 77 tokens at a time."""

from __future__ import annotations

import pytest
import torch

from benchmarks.plain import Plain
from mltta import CaptionBase, LabelSet, create_method
from mltta.accelerate.cuda_labels import CudaLabelEncoder
from mltta.captions.labelled import label_captions
from mltta.model.encoded import Encoded
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


# A Jacobian is kept only by what is tuned, and not for 1,000 labels: it would be too large.
CASES = [
    ("clip", "one label", False),
    ("clip", "labels of very different lengths", False),
    ("clip", "1,000 labels", False),
    ("tpt", "one label", False),
    ("tpt", "one label", True),
    ("tpt", "labels of very different lengths", False),
    ("tpt", "labels of very different lengths", True),
    ("tpt", "1,000 labels", False),
    ("ml-tta", "one label", False),
    ("ml-tta", "one label", True),
    ("ml-tta", "labels of very different lengths", False),
    ("ml-tta", "labels of very different lengths", True),
    ("ml-tta", "1,000 labels", False),
]


@pytest.mark.parametrize(("name", "which", "jacobian"), CASES)
def test_a_batch_on_the_fast_path_scores_as_the_plain_procedure_does_image_by_image(name, which, jacobian):
    backbone, labels = golden.backbone("vit"), LABELS[which]
    label_set = LabelSet.of(labels)
    texts = [f"a photo of a {label} and a {labels[0]}" for label in labels[:40]]
    captions = label_captions(label_set, backbone, CaptionBase.build(texts, backbone))
    size = backbone.preprocess.size
    pixels = torch.randn(2, 16, 3, size, size, generator=torch.Generator().manual_seed(3))
    options = {} if name == "clip" else {"views": 16}
    method = create_method(name, backbone, label_set, captions=captions, **options)
    if jacobian:  # as in a long run on a GPU
        method.text = CudaLabelEncoder(method.text._tower, method.text._prompts, None)
        method.text.jacobian = True
    features = torch.stack([backbone.encode_images(one) for one in pixels])
    got = method(Encoded({method.needs[0]: features}))
    plain = Plain(backbone, label_set, captions).method(name)
    want = torch.stack([plain(one) for one in pixels])
    torch.testing.assert_close(got, want.detach(), atol=1e-4, rtol=1e-4)
