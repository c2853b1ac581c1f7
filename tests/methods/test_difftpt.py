"""DiffTPT against a twin written from its description, and the generated views that it looks at."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.text_tower import encode_text_with_context
from mltta import Tagger, create_method
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.images.views import CLIP_MEAN, CLIP_STD, render_views
from mltta.methods import tpt
from mltta.methods.difftpt import DiffTPTConfig
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.session.cache import FeatureCache
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo
from tests import golden_data as golden

LABELS = ["cat", "dog", "boat", "lamp", "tree", "red bus", "child"]


def photo(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((90, 60), Image.Resampling.BICUBIC)


def generate(folder, name: str, count: int, seed: int = 0) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for j in range(count):
        photo(1000 * seed + j).save(folder / name / f"{j}.png")


class Twin:
    """DiffTPT as METHODS says it, one image at a time: files, whole prompts of 77 tokens, torch's optimizer."""

    def __init__(self, backbone: Backbone, *, alike: int = 10, kept: int = 3, steps: int = 4):
        self.backbone, self.alike, self.kept, self.steps = backbone, alike, kept, steps
        self.tokens = backbone.tokenizer([f"a photo of a {label}." for label in LABELS], context_length=77)
        self.start = backbone.model.token_embedding(self.tokens)[0, 1:5].detach()  # "a photo of a"

    def clean(self, file: Path) -> torch.Tensor:
        """Short side to 32, bicubic, and the centre; the photos here are 90 x 60."""
        image = Image.open(file).resize((48, 32), Image.Resampling.BICUBIC).crop((8, 0, 40, 32))
        levels = torch.tensor(np.array(image)) / 255
        return ((levels - torch.tensor(CLIP_MEAN)) / torch.tensor(CLIP_STD)).permute(2, 0, 1)

    def look(self, file: Path, made: Path, crops: ViewSpec) -> torch.Tensor:
        """Unit features of the clean view, of the crops and of the generated images, each encoded by itself."""
        cut = torch.from_numpy(render_views(Image.open(file), crops, self.backbone.preprocess))[1:]
        pixels = [self.clean(file), *cut, *(self.clean(other) for other in sorted(made.iterdir()))]
        rows = [self.backbone.model.encode_image(one[None])[0] for one in pixels]
        return torch.stack([row / row.norm() for row in rows]).detach()

    def logits(self, views: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        labels = encode_text_with_context(self.backbone, self.tokens, context)
        return self.backbone.logit_scale * views @ labels.T

    def choose(self, views: torch.Tensor) -> list[int]:
        """Both filters in turn, on the logits before the first step."""
        rows = self.logits(views, self.start).detach().double()
        like = [float(rows[0] @ row / rows[0].norm() / row.norm()) for row in rows]
        left = [0, *sorted(range(1, len(rows)), key=lambda j: -like[j])[: self.alike]]
        unsure = [-float((row.softmax(0) * row.log_softmax(0)).sum()) for row in rows]
        return sorted(sorted(left, key=lambda j: unsure[j])[: self.kept])

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        self.chosen = self.choose(views)
        context = torch.nn.Parameter(self.start.clone())
        optimizer = torch.optim.AdamW([context], lr=5e-3)
        for _ in range(self.steps):
            rows = [row.log_softmax(0) for row in self.logits(views[self.chosen], context)]
            log_p = torch.stack(rows).logsumexp(0) - math.log(len(rows))  # of the mean softmax
            optimizer.zero_grad()
            (-(log_p.exp() * log_p).sum()).backward()
            optimizer.step()
        self.context = context.detach()
        return self.logits(views[:1], self.context)[0].detach()


@pytest.mark.parametrize("temperature", ["sharp", "soft"])
@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, {}),  # 10 of 13 views are alike; of these and the clean one, 3 are confident
        ({"cosine_ratio": 0.5, "select_ratio": 0.8, "steps": 2}, {"alike": 6, "kept": 5, "steps": 2}),
    ],
)
def test_photos_score_as_a_twin_written_from_the_description_does(
    tmp_path, monkeypatch, temperature, options, same
):
    backbone, made = golden.backbone("vit", temperature), tmp_path / "made"
    names = [f"photo{i}" for i in range(6)]
    for i, name in enumerate(names):
        photo(i).save(tmp_path / f"{name}.png")
        generate(made, name, 5, seed=1 + i)
    method = create_method(
        "difftpt", backbone, LABELS, generated=str(made), generated_views=5, views=8, **options
    )
    tuned, tune = [], tpt.tune_context
    monkeypatch.setattr(tpt, "tune_context", lambda *a, **k: tuned.append(tune(*a, **k)) or tuned[-1])
    images = [Image.open(tmp_path / f"{name}.png") for name in names]
    # in float32: the pipeline rounds features to half precision, the twin does not
    features = {
        spec: torch.stack(
            [
                backbone.encode_images(render_views(image, spec, backbone.preprocess, name=name))
                for image, name in zip(images, names, strict=True)
            ]
        )
        for spec in method.needs
    }
    got = method(Encoded(features))
    twin, seen = Twin(backbone, **same), set()
    for i, name in enumerate(names):
        views = twin.look(tmp_path / f"{name}.png", made / name, method.needs[0])
        scores = twin(views)
        seen.update(twin.chosen)
        torch.testing.assert_close(got[i], scores, atol=1e-4, rtol=0)
        # Where a gradient vanishes, AdamW steps to either side by its rounding.
        assert ((tuned[0][i] - twin.context).abs() > 1e-4).float().mean() < 0.01
        assert (scores - twin.logits(views[:1], twin.start)[0]).abs().max() > 1e-2  # tuning did something
    assert seen & set(range(1, 9)), "no crop was chosen"
    assert seen & set(range(9, 14)), "no generated image was chosen"


def test_of_128_views_as_released_both_filters_leave_30(tmp_path):
    method = create_method("difftpt", golden.backbone("vit"), LABELS, generated=str(tmp_path))
    assert [spec.count for spec in method.needs] == [1 + 64, 63]
    logits = torch.randn(4, 128, 7, generator=torch.Generator().manual_seed(0))
    assert method.choose(logits).sum(dim=1).tolist() == [30] * 4  # of 1 + 101 that pass the first


def test_the_clean_view_passes_the_first_filter_however_unlike_the_others_it_is(tmp_path):
    backbone = golden.backbone("vit")
    method = create_method(
        "difftpt",
        backbone,
        ["a", "b"],
        generated=str(tmp_path),
        generated_views=2,
        views=2,
        select_ratio=0.25,
    )
    logits = torch.tensor([[[9.0, 0.0], [0.1, 0.0], [0.1, 0.0], [0.0, 0.1], [0.0, 9.0]]])
    assert method.choose(logits).tolist() == [[True, False, False, False, False]]
    # the last one is as sure, but the least like the clean view
    logits[0, 0] = 0.05
    assert method.choose(logits)[0].nonzero().flatten().tolist() == [1]


def test_without_generated_images_it_says_what_to_do(tmp_path):
    backbone = golden.backbone("vit")
    with pytest.raises(ConfigError, match=r"generated beforehand.*mltta\[diffusion\].*generated=DIR"):
        create_method("difftpt", backbone, LABELS)
    with pytest.raises(ConfigError, match="nowhere"):
        create_method("difftpt", backbone, LABELS, generated=str(tmp_path / "nowhere"))


def test_the_tagger_finds_generated_views_by_the_stem_of_a_file(tmp_path):
    photo(7).save(tmp_path / "cat.png")
    photo(8).save(tmp_path / "dog.png")
    generate(tmp_path / "made", "cat", 3)
    backbone = golden.backbone("vit", "soft")
    options = {"method": "difftpt", "generated": str(tmp_path / "made"), "generated_views": 3, "views": 8}
    tagger = Tagger(backbone, LABELS, **options)
    before = list(tagger(tmp_path / "cat.png"))
    answers = tagger([tmp_path / "cat.png", tmp_path / "dog.png", photo(9)])
    assert list(answers[0]) == before
    assert "dog: 3 generated views are needed" in answers[1].error
    assert "contains 0" in answers[1].error
    assert "without a name" in answers[2].error
    generate(tmp_path / "made", "cat", 3, seed=5)
    assert list(tagger(tmp_path / "cat.png")) != before


def test_kept_features_belong_to_the_generated_files(tmp_path):
    photo(7).save(tmp_path / "x.png")
    generate(tmp_path / "made", "a/1", 4)
    backbone, image = golden.backbone("vit"), Photo(0, "a/1", tmp_path / "x.png", "a/1")

    def look(*specs: ViewSpec) -> tuple[int, dict[ViewSpec, torch.Tensor]]:
        """How many images were encoded, and the features."""
        pipeline = FeatureStream(
            backbone, specs, cache=lambda spec: FeatureCache(backbone, spec, folder=tmp_path / "cache")
        )
        ((item,),) = pipeline([image])
        assert set(item.features) == set(specs)
        return pipeline.counts.encoded, item.features

    crops, made = ViewSpec(count=5), ViewSpec(count=4, generated=str(tmp_path / "made"))
    encoded, first = look(crops, made)
    want = backbone.encode_images(
        np.concatenate([render_views(photo(j), ViewSpec(count=1), backbone.preprocess) for j in range(4)])
    )
    torch.testing.assert_close(first[made].float(), want, atol=1e-3, rtol=0)
    again, second = look(crops, made)
    fewer, third = look(replace(made, count=2))  # the first two of four
    assert (encoded, again, fewer) == (1, 0, 0)
    assert torch.equal(torch.as_tensor(second[made]), first[made])
    assert torch.equal(torch.as_tensor(third[replace(made, count=2)]), first[made][:2])

    generate(tmp_path / "made", "a/1", 4, seed=5)  # other files of the same names
    encoded, other = look(crops, made)
    assert encoded == 1
    assert not torch.equal(other[made], first[made])
    assert torch.equal(torch.as_tensor(other[crops]), first[crops])
    assert look(crops)[0] == 0  # the crops depend on the image alone


@pytest.mark.parametrize(
    "bad",
    [{"generated": 3}, {"generated_views": 0}, {"cosine_ratio": 0.0}, {"select_ratio": 1.1}, {"steps": -1}],
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        DiffTPTConfig.make(**bad)
