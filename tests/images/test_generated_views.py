"""Views that a diffusion model made lie in a folder of the image's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta.errors import ImageError
from mltta.images.generated import generated_folder, lacking_variations, variations_folder
from mltta.images.specs import ViewSpec
from mltta.images.views import render_views
from mltta.model.encoded import Encoded, union
from tests.images.test_views import SMALL, noise


def generate(folder: Path, count: int) -> list[Image.Image]:
    """Images by number, whose names sort by number, among files of other kinds."""
    folder.mkdir(parents=True)
    made = [noise(50 + j, 40, seed=j) for j in range(count)]
    for j, image in enumerate(made):
        image.save(folder / f"{j:02}.png")
    for name in ("notes.txt", "00.part", ".hidden.png"):
        (folder / name).write_text("")
    return made


def test_generated_views_are_the_clean_views_of_the_images_in_the_folder_of_that_name(tmp_path: Path) -> None:
    made = generate(tmp_path / "cat", 11)
    spec = ViewSpec(count=10, generated=str(tmp_path))
    rendered = render_views(noise(), spec, SMALL, name="cat")
    for view, image in zip(rendered, made, strict=False):
        assert np.array_equal(view, render_views(image, ViewSpec(count=1), SMALL)[0])
    assert len(rendered) == 10
    chosen = render_views(noise(), spec, SMALL, name="cat", indices=[7, 2])
    assert np.array_equal(chosen, rendered[[7, 2]])


def test_a_generated_spec_and_a_spec_of_crops_never_stand_for_each_other() -> None:
    crops, made = ViewSpec(count=8), ViewSpec(count=8, generated="folder")
    first = replace(made, count=1)
    assert made.covers(first)
    assert made.covers(replace(made, count=3))
    assert not made.covers(replace(made, count=9))
    for one, other in ((crops, first), (made, ViewSpec(count=1)), (first, ViewSpec(count=1)), (crops, made)):
        assert not one.covers(other)
        assert not other.covers(one)
    assert not made.covers(replace(first, generated="another"))
    assert union([ViewSpec(count=1), made, first, crops]) in ([made, crops], [crops, made])
    shared = Encoded({made: np.ones((1, 8, 2)), crops: np.zeros((1, 8, 2))})
    assert not shared.features(ViewSpec(count=1)).any()
    assert shared.features(first).all()


def test_too_few_generated_images_are_an_error_that_names_image_folder_and_number(tmp_path: Path) -> None:
    generate(tmp_path / "cat", 2)
    spec = ViewSpec(count=3, generated=str(tmp_path))
    with pytest.raises(ImageError, match=r"cat: 3 generated views are needed, but .*/cat contains 2"):
        render_views(noise(), spec, SMALL, name="cat")
    with pytest.raises(ImageError, match=r"dog: .* contains 0"):
        render_views(noise(), spec, SMALL, name="dog")
    with pytest.raises(ImageError, match="without a name"):
        render_views(noise(), spec, SMALL)


@pytest.mark.parametrize("name", ["a/b.jpg", "/a/b.jpg", "../a/b.jpg", "a\\b.jpg", "./a/../b.jpg"])
def test_generated_views_of_any_name_lie_inside_the_folder(tmp_path: Path, name: str) -> None:
    assert generated_folder(tmp_path, name) == tmp_path / "a" / "b.jpg"


def test_one_folder_holds_the_variations_of_several_datasets_or_of_one(tmp_path: Path) -> None:
    generate(tmp_path / "voc2012-val" / "cat", 3)
    assert variations_folder(tmp_path, "voc2012-val") == tmp_path / "voc2012-val"
    assert variations_folder(tmp_path / "voc2012-val", "voc2012-val") == tmp_path / "voc2012-val"
    assert lacking_variations(tmp_path / "voc2012-val", ("cat", "dog"), 3) == ["dog"]
    assert lacking_variations(tmp_path / "voc2012-val", ("cat", "dog"), 4) == ["cat", "dog"]
