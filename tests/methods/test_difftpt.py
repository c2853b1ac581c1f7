"""DiffTPT against a loop written from its description, and the generated views that it looks at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from mltta import LabelSet, Tagger, create_method
from mltta.data import Dataset
from mltta.encode import Encoded
from mltta.errors import ConfigError
from mltta.evaluation.cache import FeatureCache
from mltta.evaluation.stream import Counts, feature_stream
from mltta.methods.base import Problem
from mltta.methods.difftpt import DiffTPT, DiffTPTConfig
from mltta.views import ViewSpec, render_views
from tests import golden_data as golden

LABELS = ["cat", "dog", "boat", "lamp", "tree", "red bus", "child"]


def photo(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((90, 60), Image.Resampling.BICUBIC)


def generate(folder, name: str, count: int, seed: int = 0) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for j in range(count):
        photo(1000 * seed + j).save(folder / name / f"{j}.png")


def by_hand(text, scale: float, views: torch.Tensor, lr: float = 5e-3):
    """One image as the description says it: views of it, the clean one first, then crops, then generated."""
    rows = [scale * view @ text.features.T for view in views]
    like = [float(rows[0] @ row / rows[0].norm() / row.norm()) for row in rows]
    alike = sorted(range(1, len(rows)), key=lambda j: -like[j])[: int((len(rows) - 1) * 0.8)]
    left = [0, *alike]
    unsure = {j: -float((rows[j].softmax(0) * rows[j].log_softmax(0)).sum()) for j in left}
    kept = sorted(left, key=lambda j: unsure[j])[: int(len(left) * 0.3)]
    context = torch.nn.Parameter(text.context.clone())
    optimizer = torch.optim.AdamW([context], lr=lr)
    for _ in range(4):
        features = text.plain(context[None])[0]
        p = sum((scale * views[j] @ features.T).softmax(0) for j in kept) / len(kept)
        optimizer.zero_grad()
        (-(p * p.log()).sum()).backward()
        optimizer.step()
    return kept, (scale * views[0] @ text.plain(context[None])[0].T).detach()


def test_scores_equal_a_loop_over_images_filters_and_steps(tmp_path):
    generator = torch.Generator().manual_seed(0)
    backbone = golden.backbone("vit", "soft")
    text = backbone.encode_labels(LabelSet.of(LABELS))
    views = F.normalize(torch.randn(12, 128, 32, generator=generator), dim=-1)  # 1 + 64 + 63
    method = DiffTPT(Problem(text, backbone.logit_scale), DiffTPTConfig(generated=str(tmp_path)))
    crops, made = method.needs
    assert (crops.count, made.count) == (65, 63)
    chosen = method.choose(method.logits(views, text.features))
    got = method(Encoded({crops: views[:, :65], made: views[:, 65:]}))
    for i in range(12):
        kept, scores = by_hand(text, backbone.logit_scale, views[i])
        assert len(kept) == 30  # of 1 + 101 that pass the first filter
        assert chosen[i].nonzero().flatten().tolist() == sorted(kept)
        torch.testing.assert_close(got[i], scores, atol=2e-3, rtol=0)


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
    with pytest.raises(ConfigError, match=r"generated beforehand.*mltta\[diffusion\].*generated=FOLDER"):
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
    assert "dog: 3 generated views are asked for" in answers[1].error
    assert "holds 0" in answers[1].error
    assert "without a name" in answers[2].error
    generate(tmp_path / "made", "cat", 3, seed=5)
    assert list(tagger(tmp_path / "cat.png")) != before


def test_kept_features_belong_to_the_generated_files(tmp_path):
    photo(7).save(tmp_path / "x.png")
    generate(tmp_path / "made", "a/1", 4)
    backbone, labels = golden.backbone("vit"), LabelSet.of(LABELS)
    dataset = Dataset("some", labels, ("a/1",), [tmp_path / "x.png"], np.zeros((1, 7), np.int8))

    def look(*specs: ViewSpec) -> tuple[int, dict[ViewSpec, torch.Tensor]]:
        """How many images were encoded, and the features."""
        caches, counts = [FeatureCache(backbone, spec, folder=tmp_path / "cache") for spec in specs], Counts()
        ((item,),) = feature_stream(dataset, np.arange(1), backbone, caches, counts=counts)
        assert item.error is None
        return counts.encoded, item.features

    crops, made = ViewSpec(count=5), ViewSpec(count=4, generated=str(tmp_path / "made"))
    encoded, first = look(crops, made)
    want = backbone.encode_images(
        torch.cat([render_views(photo(j), ViewSpec(count=1), backbone.preprocess) for j in range(4)])
    )
    torch.testing.assert_close(first[made].float(), want, atol=1e-3, rtol=0)
    again, second = look(crops, made)
    fewer, third = look(replace(made, count=2))  # the first two of four
    assert (encoded, again, fewer) == (1, 0, 0)
    assert torch.equal(second[made], first[made])
    assert torch.equal(third[replace(made, count=2)], first[made][:2])

    generate(tmp_path / "made", "a/1", 4, seed=5)  # other files of the same names
    encoded, other = look(crops, made)
    assert encoded == 1
    assert not torch.equal(other[made], first[made])
    assert torch.equal(other[crops], first[crops])
    assert look(crops)[0] == 0  # the crops depend on the image alone


@pytest.mark.parametrize(
    "bad",
    [{"generated": 3}, {"generated_views": 0}, {"cosine_ratio": 0.0}, {"select_ratio": 1.1}, {"steps": -1}],
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        DiffTPTConfig.make(**bad)
