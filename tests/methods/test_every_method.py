"""What every registered method keeps, whatever it does inside. A new method is covered by being registered.

So is the one that docs/write-a-method.md shows, though it is no part of the package.
"""

from __future__ import annotations

import atexit
import dataclasses
import gc
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file

import mltta.methods
from mltta import create_method, list_methods
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, ViewSpec
from mltta.methods import Method, OnlineMethod, State, method_class, registry
from mltta.model.encoded import Encoded
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo
from tests import golden_data as golden


def shown_by_the_guide() -> type[Method]:
    """The method in docs/write-a-method.md, run as it stands, with a registry of its own."""
    text = (Path(__file__).parents[2] / "docs" / "write-a-method.md").read_text(encoding="utf-8")
    source = text.split("```python\n")[1].split("```")[0]
    with mock.patch.dict(registry._REGISTRY, clear=True):
        exec(compile(source, "write-a-method.md", "exec", dont_inherit=True), {"__name__": "mean_view"})
        (example,) = registry._REGISTRY.values()
    return example


EXAMPLE = shown_by_the_guide()
CLASSES = {**{name: method_class(name) for name in list_methods()}, EXAMPLE.name: EXAMPLE}
METHODS = sorted(CLASSES)
ONLINE = [name for name in METHODS if CLASSES[name].online]
TRANSDUCTIVE = [name for name in METHODS if CLASSES[name].transductive]
EPISODIC = [name for name in METHODS if not CLASSES[name].online and name not in TRANSDUCTIVE]
LABELS = ["dog", "cat", "boat", "traffic light", "person", "bus", "chair"]


@pytest.fixture(autouse=True, scope="module")
def _example_is_known():
    """That method is registered while the tests of this file run, and no longer."""
    with mock.patch.dict(registry._REGISTRY, {EXAMPLE.name: EXAMPLE}):
        yield


@cache
def generated() -> str:
    """A folder with four images generated for an image called "photo"."""
    top = Path(tempfile.mkdtemp(prefix="mltta-generated-"))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    (top / "photo").mkdir()
    for j in range(4):
        Image.new("RGB", (40, 40), (60 * j, 90, 120)).save(top / "photo" / f"{j}.png")
    return str(top)


def make(name: str, labels: list[str] = LABELS, **options) -> Method:
    """A method on the tiny backbone; one that asks a teacher asks the backbone itself."""
    if name == "difftpt":
        options = {"generated": generated(), "generated_views": 4, **options}
    return create_method(name, golden.backbone("vit"), labels, teacher="self", **options)


def rows(spec: AnySpec) -> int:
    """Views of a spec; of local ones the whole, its quarters, and nine windows."""
    return spec.count if isinstance(spec, ViewSpec) else spec.clean + spec.PARTS + 9


def encoded(method: Method, images: int = 1, seed: int = 0) -> Encoded:
    """Random views; for a method that looks again, the pixels of a view are noise of that view's own."""
    generator = torch.Generator().manual_seed(seed)
    features = {spec: torch.randn(images, rows(spec), 32, generator=generator) for spec in method.needs}

    def look(image, spec, preprocess, views):
        size = (3, preprocess.size, preprocess.size)
        seeds = [hash((seed, image, j)) for j in views]
        return torch.stack([torch.randn(size, generator=torch.Generator().manual_seed(s)) for s in seeds])

    return Encoded(
        {spec: F.normalize(rows, dim=-1) for spec, rows in features.items()},
        [partial(look, image) for image in range(images)],
    )


def stream(method: OnlineMethod, images: Encoded, state: State) -> Iterator[tuple[torch.Tensor, State]]:
    """The scores of one image after another, and the state after it."""
    for i in range(len(images)):
        branches, state = method.step(state, images[i])
        yield method.merge(branches)[0], state


def test_every_method_in_the_package_is_imported_by_it():
    files = Path(mltta.methods.__file__).parent.glob("*.py")
    names = [
        name for file in files for name in re.findall(r'^@register\(\s*"([^"]+)"', file.read_text(), re.M)
    ]
    assert len(names) >= 6
    assert set(names) <= set(list_methods())


@pytest.mark.parametrize("name", sorted(list_methods()))
def test_every_setting_says_what_it_means(name):
    fields = dataclasses.fields(CLASSES[name].Config)
    assert [field.name for field in fields if not field.metadata.get("help")] == []


def test_a_setting_with_another_default_keeps_help_and_range():
    config = method_class("rlcf").Config
    assert config().steps == 3
    assert config.__dataclass_fields__["steps"].metadata["help"] == "optimizer steps per image"
    with pytest.raises(ConfigError, match="steps = -1 is out of range: give at least 0, at most 1000"):
        config(steps=-1)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_the_labels_does_not_matter(name):
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(1))
    plain, mixed = make(name), make(name, [LABELS[i] for i in order])
    images = encoded(plain, 12)
    torch.testing.assert_close(mixed(images), plain(images)[:, order], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", METHODS)
def test_one_label_works(name):
    method = make(name, ["dog"])
    scores = method(encoded(method, 3))
    assert scores.shape == (3, 1)
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_a_thousand_labels_work(name):
    method = make(name, [f"thing {i}" for i in range(1000)])
    scores = method(encoded(method))
    assert scores.shape == (1, 1000)
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_constant_image_seen_three_times_gives_finite_scores(name, level):
    method, backbone = make(name), golden.backbone("vit")
    image = Image.new("RGB", (64, 48), (level,) * 3)
    pipeline = FeatureStream(backbone, method.needs)
    photos = [item for batch in pipeline(Photo(i, "", image, "photo") for i in range(3)) for item in batch]
    images = pipeline.encoded(photos)
    scores = method(images)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_scores_and_probabilities_are_made_of_the_branches_it_names(name):
    method = make(name)
    branches = method.branches(encoded(method, 3))
    assert list(branches) == method.branch_names
    torch.testing.assert_close(method(encoded(method, 3)), method.merge(branches), atol=1e-4, rtol=0)
    likely = method.probabilities(branches)
    if method.emits == "odds":  # of each label on its own
        torch.testing.assert_close(likely.logit(), torch.stack(list(branches.values())).mean(dim=0))
    else:
        torch.testing.assert_close(likely.sum(dim=-1), torch.ones(3))


@pytest.mark.parametrize("name", [name for name in METHODS if "context" in CLASSES[name].requires])
def test_a_template_without_words_cannot_be_tuned_and_says_so(name):
    with pytest.raises(ConfigError, match="no context"):
        make(name, template="{}")


@pytest.mark.parametrize("name", EPISODIC)
def test_images_adapted_together_score_as_alone(name):
    method = make(name)
    images = encoded(method, 3)
    together = method(images)
    for i in range(3):
        torch.testing.assert_close(method(images[i])[0], together[i], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", TRANSDUCTIVE)
def test_a_transductive_method_keeps_rows_of_each_image_alone_and_answers_from_all(name):
    method = make(name)
    images = encoded(method, 12)
    rows = method.keep(images)
    for i in range(12):
        torch.testing.assert_close(method.keep(images[i])[0], rows[i], atol=1e-4, rtol=0)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    mixed = method.merge(method.finish(rows[order]))
    torch.testing.assert_close(mixed, method(images)[order], atol=1e-4, rtol=0)
    assert not torch.allclose(method.merge(method.finish(rows[:6])), method(images)[:6], atol=1e-3)


@pytest.mark.parametrize("name", ONLINE)
def test_a_state_saved_and_resumed_gives_the_same_scores_to_the_bit(name, tmp_path):
    method = make(name)
    images = encoded(method, 60)
    whole = [scores for scores, _ in stream(method, images, method.start())]
    for i, (scores, state) in enumerate(stream(method, images, method.start())):
        assert torch.equal(scores, whole[i])
        if i == 29:
            save_file(state, tmp_path / "state.safetensors")
            break
    # Copied, so that it lies in memory as before: products may round differently for tensors that are not aligned.
    state = {key: value.clone() for key, value in load_file(tmp_path / "state.safetensors").items()}
    other = make(name)
    for i in range(30, 60):
        branches, state = other.step(state, images[i])
        assert torch.equal(other.merge(branches)[0], whole[i])


@pytest.mark.parametrize("name", ONLINE)
def test_an_online_method_learns_from_the_images_before_and_keeps_nothing_outside_its_state(name):
    method = make(name)
    images, others = encoded(method, 20), encoded(method, 20, seed=1)
    alone = [scores for scores, _ in stream(method, images, method.start())]
    beside = zip(stream(method, images, method.start()), stream(method, others, method.start()), strict=True)
    assert all(torch.equal(scores, alone[i]) for i, ((scores, _), _) in enumerate(beside))
    state, backwards = method.start(), []
    for i in reversed(range(20)):
        branches, state = method.step(state, images[i])
        backwards.append(method.merge(branches)[0])
    assert any(not torch.equal(*pair) for pair in zip(reversed(backwards), alone, strict=True))


@pytest.mark.parametrize("name", ONLINE)
def test_a_state_never_changes_its_names_shapes_or_kinds(name):
    method = make(name)

    def layout(state):
        return {key: (value.shape, value.dtype, value.device) for key, value in state.items()}

    first = layout(method.start())
    assert all(layout(state) == first for _, state in stream(method, encoded(method, 30), method.start()))


def held() -> tuple[int, int]:
    """Objects that Python keeps, tensors among them, and bytes that the process holds."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        pytest.skip("memory is measured where /proc is")
    return len(gc.get_objects()), pages * 4096


@pytest.mark.parametrize("name", METHODS)
def test_memory_stays_flat_over_a_long_stream(name):
    method = make(name, **({"views": 16} if "views" in CLASSES[name].Config.__dataclass_fields__ else {}))
    views = max(rows(spec) for spec in method.needs)
    # 20,000 features, but where each image is tuned on or sent through the image tower again
    total = 200 if method.requires & {"context", "pixels"} else 20_000 // views
    state = method.start() if isinstance(method, OnlineMethod) else {}
    for part in range(10):
        images = encoded(method, total // 10, seed=part)
        if isinstance(method, OnlineMethod):
            *_, (_, state) = stream(method, images, state)
        else:
            method(images)
        if part == 2:
            objects, size = held()
    objects_after, size_after = held()
    assert objects_after - objects < 7, "something is kept of each of the last seven parts"
    assert size_after - size < 16 * 2**20
