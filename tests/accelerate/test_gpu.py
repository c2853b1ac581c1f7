"""What is sped up on a CUDA device against the plain way of it, there and on the CPU. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import mltta
from mltta.accelerate.search import SCANNED_IN_HALF, HalfSearch
from mltta.accelerate.views import DeviceViews
from mltta.images.decode import load_image
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess, render_views
from mltta.model.search import Search

pytestmark = pytest.mark.gpu

PHOTOS = sorted((Path(__file__).parents[2] / "examples" / "photos").glob("*.jpg"))
SIZES = [(640, 427), (427, 640), (61, 40), (7, 5), (1, 9), (33, 300), (2000, 1500)]
LABELS = ["cat", "person", "tripod", "hat", "helmet", "traffic light", "a label of rather many words", "dog"]


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8), "RGB"
    )


def units(*shape: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=-1).cuda()


def backbone(accelerate: bool | str, dtype: str = "float32", device: str = "cuda") -> mltta.Backbone:
    return mltta.load_backbone("mini", device=device, image_dtype=dtype, accelerate=accelerate)


def cosines(one: Tensor, other: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(one.double().cpu(), other.double().cpu(), dim=-1)


# ---------------------------------------------------------------- views


@pytest.mark.parametrize("own_draws", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_made_on_the_device_are_pillows_to_the_bit(own_draws, dtype):
    spec, preprocess = ViewSpec(count=16), Preprocess()
    images = [noise(*size) for size in SIZES] + [Image.open(photo).convert("RGB") for photo in PHOTOS]
    ids = [str(i) for i in range(len(images))]
    renderer = DeviceViews(preprocess, "cuda", dtype, channels_last=True, own_draws=own_draws)
    images = [load_image(image, working=True) for image in images]  # as a device is given them
    pixels = [torch.from_numpy(np.array(image)) for image in images]
    made = renderer.render(pixels, spec, 5, ids)
    for image, name, views in zip(images, ids, made, strict=True):
        wanted = torch.from_numpy(render_views(image, spec, preprocess, seed=5, image_id=name)).to(dtype)
        assert torch.equal(views.cpu(), wanted), image.size


def test_augmix_on_the_device_differs_by_a_level_here_and_there():
    spec, preprocess, image = (
        ViewSpec(count=24, augmix=True),
        Preprocess(),
        Image.open(PHOTOS[0]).convert("RGB"),
    )
    renderer = DeviceViews(preprocess, "cuda", torch.float32)
    made = renderer.render([torch.from_numpy(np.array(image))], spec, 5, ["a"])[0].cpu()
    wanted = torch.from_numpy(render_views(image, spec, preprocess, seed=5, image_id="a"))
    levels = (made - wanted).abs() * torch.tensor(preprocess.std).view(3, 1, 1) * 255
    assert levels[0].max() < 0.01  # view 0 is clean
    assert levels.mean() < 0.05
    assert (levels > 1.01).float().mean() < 0.005


# ---------------------------------------------------------------- the image tower


def test_passes_replayed_from_a_graph_are_those_that_are_launched():
    plain, graphed = backbone(False), backbone("graphs")
    for seed in range(4):  # launched, recorded, replayed, replayed
        views = torch.randn(16, 3, 224, 224, generator=torch.Generator().manual_seed(seed))
        assert cosines(graphed.encode_images(views), plain.encode_images(views)).min() > 1 - 1e-5


def test_a_compiled_tower_is_the_tower():
    plain, compiled = backbone(False, "bfloat16"), backbone("patches", "bfloat16")
    compiled.image_tower.compile(64)
    if not compiled.image_tower.compiled_for:
        pytest.skip("this machine cannot compile: torch.compile needs a C compiler and Triton")
    views = torch.randn(150, 3, 224, 224, generator=torch.Generator().manual_seed(0))  # two passes and a part
    assert cosines(compiled.encode_images(views), plain.encode_images(views)).min() > 1 - 1e-3


@pytest.mark.parametrize(("dtype", "least"), [("float32", 1 - 1e-4), ("bfloat16", 0.99)])
def test_features_on_the_device_are_those_of_the_cpu(dtype, least):
    spec = ViewSpec(count=8)
    here, there = (
        mltta.encode_images(model, PHOTOS, [spec]).features(spec)
        for model in (backbone(True, dtype), backbone(True, device="cpu"))
    )
    assert cosines(here, there).min() > least


# ---------------------------------------------------------------- the text side

#: the tricks, how far a unit feature may be off, and a gradient relative to its largest element
TEXT = [
    ("shared-prefix", 1e-5, 1e-3),
    ("shared-prefix,graphs", 1e-5, 1e-3),
    ("shared-prefix,graphs,jacobian", 1e-5, 1e-3),
    ("all", 5e-3, 3e-2),  # TF32 has ten bits of mantissa
]


@pytest.mark.parametrize(("tricks", "off", "gradient_off"), TEXT)
def test_labels_and_their_gradients_are_those_of_the_plain_path(tricks, off, gradient_off):
    plain, fast = (backbone(chosen).encode_labels(mltta.LabelSet.of(LABELS)) for chosen in (False, tricks))
    if "jacobian" in tricks:
        fast.jacobian = True
    torch.testing.assert_close(fast.features, plain.features, atol=off, rtol=0)
    for seed in range(3):  # a graph is recorded once, and has to see the contexts of each call
        generator = torch.Generator().manual_seed(seed)
        for count in (1, 4, 6):
            shift = 0.01 * torch.randn(count, *plain.context.shape, generator=generator).cuda()
            contexts = plain.context + shift
            torch.testing.assert_close(fast(contexts), plain(contexts), atol=off, rtol=0)
    directions = units(3, *plain.features.shape)
    for of in ("initial", "linearize"):
        pulled = []
        for encoder in (fast, plain):
            given = () if of == "initial" else (encoder.context.expand(3, -1, -1),)
            pulled.append(getattr(encoder, of)(*given)[1](directions))
        assert (pulled[0] - pulled[1]).abs().max() < gradient_off * pulled[1].abs().max()


# ---------------------------------------------------------------- retrieval, methods, the tagger


def test_the_search_in_half_precision_finds_what_the_scan_finds():
    base, rows = units(SCANNED_IN_HALF + 77, 256), units(40, 256, seed=1)
    fast, plain = HalfSearch(base)(rows, 16), Search(base)(rows, 16)
    torch.testing.assert_close(fast[0], plain[0], atol=1e-5, rtol=0)
    assert torch.equal(fast[1], plain[1])


@pytest.mark.parametrize("name", ["clip", "tpt", "ml-tta"])
def test_methods_score_as_they_do_with_nothing_sped_up(name):
    options = {} if name == "clip" else {"views": 32}
    found = []
    for tricks in (False, "shared-prefix,search,graphs,jacobian"):
        method = mltta.create_method(name, backbone(tricks), "voc", **options)
        features = units(4, 32, method.text.features.shape[-1], seed=2)
        found.append(method(mltta.Encoded({ViewSpec(count=32): features})))
    # A first step of AdamW goes by the signs of gradients, and tiny ones may turn.
    torch.testing.assert_close(found[1], found[0], atol=2e-2, rtol=0)


@pytest.mark.parametrize(
    ("method", "options"), [("ml-tta", {"views": 32}), ("auto", {}), ("ml-tta", {"look": "local"})]
)
def test_the_tagger_on_the_device_says_what_it_says_on_the_cpu(method, options):
    said = []
    for device in ("cuda", "cpu"):
        tagger = mltta.Tagger(backbone(True, device=device), LABELS, method=method, **options)
        said.append(tagger([str(photo) for photo in PHOTOS]))
    for here, there in zip(*said, strict=True):
        assert here.error is there.error is None
        assert here[0]["label"] == there[0]["label"]
        scores = [{item["label"]: item["score"] for item in tags} for tags in (here, there)]
        assert all(abs(scores[0][label] - scores[1][label]) < 0.03 for label in LABELS)


def test_tags_on_the_device_do_not_depend_on_the_batch_beyond_rounding():
    tagger = mltta.Tagger(backbone(True), LABELS, method="ml-tta", views=16)
    together, alone = tagger([str(photo) for photo in PHOTOS]), [tagger(str(photo)) for photo in PHOTOS]
    for one, other in zip(together, alone, strict=True):
        assert one[0]["label"] == other[0]["label"]
        assert abs(one[0]["score"] - other[0]["score"]) < 0.03
