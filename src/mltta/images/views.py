"""Views of an image: the clean view, as preprocessed for the model, and random crops that depend on the image.

Views can also be images that a diffusion model generated from it, in a folder with the name of the image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mltta.images.augmix import AUGMIX_DRAWS, augmix, draw_plans
from mltta.images.decode import image_id as content_id
from mltta.images.decode import load_image
from mltta.images.generated import generated_files
from mltta.images.geometry import CROP_DRAWS, Floats, clean_axes, crop_boxes, working_size
from mltta.images.specs import LocalSpec, ViewSpec, floats, is_count, require

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
#: views (N, 3, S, S), normalised for a model
Pixels = NDArray[np.float32]
_BILINEAR = Image.Resampling.BILINEAR
_RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": _BILINEAR}
_RESIZE_MODES = ("shortest", "squash", "longest")
_MOST_RESIZED = 1 << 24
#: version of the rendering; changes if the same spec gives other pixels, to invalidate cached features
RENDERING = "pillow-2"


@dataclass(frozen=True)
class Preprocess:
    """Preprocessing of a model: input size, resizing and normalisation."""

    size: int = 224
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    interpolation: str = "bicubic"
    resize_mode: str = "shortest"

    def __post_init__(self) -> None:
        require(is_count(self.size), f"input size must be a positive integer, not {self.size!r}")
        for name in ("mean", "std"):
            object.__setattr__(self, name, floats(getattr(self, name), 3, f"{name} must be three numbers"))
        require(min(self.std) > 0, f"std must be above 0, not {self.std}")
        for name, known in (("interpolation", _RESAMPLING), ("resize_mode", _RESIZE_MODES)):
            own = getattr(self, name)
            require(own in known, f"{name} {own!r}: choose from {', '.join(known)}")

    def at(self, size: int) -> Preprocess:
        """Return the preprocessing for another input size with the whole image squashed."""
        return replace(self, size=size, resize_mode="squash")

    @classmethod
    def from_open_clip(cls, cfg: Mapping[str, Any]) -> Preprocess:
        """Read the settings of `open_clip.get_model_preprocess_cfg(model)`; missing ones default to CLIP's."""
        size = cfg.get("size", 224)
        if isinstance(size, (tuple, list)):
            sides = set(size)
            require(len(sides) == 1, f"input size {tuple(size)}: only square inputs are supported")
            size = sides.pop()
        require(cfg.get("mode", "RGB") == "RGB", f"input mode {cfg.get('mode')!r}: only RGB is supported")
        fill = cfg.get("fill_color") if cfg.get("resize_mode") == "longest" else 0
        require(not fill, f"fill_color {fill!r}: only 0, black, is supported")
        colours = cfg.get("mean") or CLIP_MEAN, cfg.get("std") or CLIP_STD
        mean, std = ((own,) * 3 if isinstance(own, (int, float)) else own for own in colours)
        resampling = cfg.get("interpolation") or "bicubic"
        resampling = "bicubic" if resampling == "random" else resampling
        return cls(size, mean, std, resampling, cfg.get("resize_mode") or "shortest")


def render_local(image: Image.Image, spec: LocalSpec, preprocess: Preprocess) -> Pixels:
    """Render the input of local views, normalised for the model, (1, 3, size, size)."""
    shown = clean_view(load_image(image, working=True), preprocess.at(spec.size))
    return normalise_levels(np.asarray(shown)[None], preprocess)


def render_views(
    image: Image.Image,
    spec: ViewSpec,
    preprocess: Preprocess,
    *,
    seed: int = 0,
    image_id: str | None = None,
    indices: Iterable[int] | None = None,
    name: str | None = None,
) -> Pixels:
    """Render the views of an image, normalised for the model.

    View j depends only on (seed, image id, spec without count, j), so 16 views are the first 16 of 64.

    Args:
        image_id: id that seeds the random crops (default: that of the pixels at working size).
        indices: render only these views, bit for bit as in the full rendering.
        name: name of the image, to find its generated views.

    Returns:
        views of shape (N, 3, size, size), float32.

    Example:
        >>> views = render_views(Image.new("RGB", (500, 375)), ViewSpec(count=4), Preprocess())
        >>> views.shape
        (4, 3, 224, 224)
    """
    chosen = range(spec.count) if indices is None else [int(j) for j in indices]
    outside = [j for j in chosen if not 0 <= j < spec.count]
    require(not outside, f"views {outside} are out of range: give 0 to {spec.count - 1}")
    size = preprocess.size
    if spec.generated:
        files = generated_files(spec, name)
        shown = [clean_view(load_image(files[j], working=True), preprocess) for j in chosen]
        pixels = np.array([np.asarray(view) for view in shown], np.uint8).reshape(-1, size, size, 3)
        return normalise_levels(pixels, preprocess)
    image = load_image(image, working=True)
    identity = content_id(image) if image_id is None else image_id
    # AugMix results are not integers, crops are.
    pixels = np.empty((len(chosen), size, size, 3), np.float32 if spec.augmix else np.uint8)
    cut = [j for j in chosen if j]
    small = working_size(image.size, spec.working_size)
    source = image.resize(small, _BILINEAR) if cut and small != image.size else image
    numbers = draw_numbers(seed, identity, cut, "crop", CROP_DRAWS)
    boxes, _ = crop_boxes(numbers, np.tile(source.size, (len(cut), 1)), spec.scale, spec.ratio, spec.flip)
    plans = draw_plans(draw_numbers(seed, identity, cut, "augmix", AUGMIX_DRAWS)) if spec.augmix else None
    drawn = enumerate(boxes.tolist())
    for row, j in zip(pixels, chosen, strict=True):
        if j == 0:
            row[:] = np.asarray(clean_view(image, preprocess))
            continue
        v, (left, top, width, height, flipped) = next(drawn)
        crop = source.crop((left, top, left + width, top + height)).resize((size, size), _BILINEAR)
        if flipped:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        row[:] = np.asarray(crop) if plans is None else augmix(crop, plans, v)
    return normalise_levels(pixels, preprocess)


def draw_numbers(seed: int, identity: str, views: Iterable[int], stream: str, draws: int) -> Floats:
    """Draw random numbers (V, draws) in [0, 1) for views of an image, with one generator per view.

    Streams are independent, so that crops are the same with and without AugMix.
    """
    names = (f"{seed}|{identity}|{j}|{stream}".encode() for j in views)
    seeds = (int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "big") for name in names)
    # Only random() is used: other distributions may change between numpy releases.
    rows = [np.random.Generator(np.random.PCG64(seed)).random(draws) for seed in seeds]
    return np.array(rows).reshape(-1, draws)


def clean_view(image: Image.Image, preprocess: Preprocess) -> Image.Image:
    """Resize and crop exactly as open_clip does at inference."""
    size, resampling = preprocess.size, _RESAMPLING[preprocess.interpolation]
    x, y = clean_axes(image.size, preprocess)
    if x.size * y.size > _MOST_RESIZED:
        # 1 x 100,000 pixels would be enlarged to 224 x 22 million: resample only what is kept.
        left, top, right, bottom = ((a.first + n) * a.length / a.size for n in (0, size) for a in (x, y))
        return image.resize((size, size), resampling, box=(left, top, right, bottom))
    resized = image.resize((x.size, y.size), resampling)
    return resized.crop((x.first, y.first, x.first + size, y.first + size))


def normalise_levels(pixels: NDArray[Any], preprocess: Preprocess) -> Pixels:
    """Normalise levels (N, S, S, 3) to `(x / 255 - mean) / std`, channels first."""
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (preprocess.mean, preprocess.std))
    views: Pixels = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")
    views /= 255
    views -= mean
    views /= std
    return views
