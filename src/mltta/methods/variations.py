"""Generate variations of images with a diffusion model, once and beforehand, for DiffTPT to look at."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError, ImageError, WeightsError
from mltta.images.decode import load_image
from mltta.images.generated import generated_folder
from mltta.images.views import CLIP_MEAN, CLIP_STD
from mltta.model.torch_backbone import pick_device
from mltta.storage import atomic

log = logging.getLogger("mltta")
MODEL, REVISION = "lambdalabs/sd-image-variations-diffusers", "v2.0"
SOURCE_SIZE = 224
#: what a folder of variations was made with
MADE_WITH = "variations.json"


#: what diffusers' StableDiffusionImageVariationPipeline does: given an image (1, 3, 224, 224), ``guidance_scale``,
#: ``num_images_per_prompt`` and ``generator``, a list, it answers with ``images`` of Pillow's kind
VariationPipeline: TypeAlias = Callable[..., Any]


def generate_variations(
    images: Iterable[Any],
    out: str | Path,
    pipeline: VariationPipeline | None = None,
    *,
    count: int = 63,
    guidance: float = 3.0,
    seed: int = 0,
    batch_size: int = 9,
    device: str = "auto",
    progress: Callable[[str], None] | None = None,
) -> int:
    """Generate ``count`` variations of every image as ``OUT/<name>/000.jpg`` and so on; how many were made.

    Variation j depends on (seed, name, j) alone. Files are written in one step and existing ones are kept, so rerun
    a killed call to resume it. An image that cannot be read is reported and skipped.

    Args:
        images: pairs of a name and an image, such as ``zip(dataset.ids, dataset.images)``; or paths, whose stems
            are their names, as the tagger takes them.
        out: the folder that ``generated`` of DiffTPT's settings then names; made with one seed and guidance.
        pipeline: makes the variations; by default the model that DiffTPT used, fetched and run by diffusers.
        guidance: how closely a variation keeps to its image.
        batch_size: variations made at once.
        progress: called with each image's name when it is done.
    """
    if count < 1 or batch_size < 1:
        raise ConfigError(f"count = {count} and batch_size = {batch_size}: give at least 1")
    _refuse_others(Path(out), {"seed": seed, "guidance": float(guidance)})
    made, folders = 0, set()
    for item in images:
        name, source = (Path(item).stem, item) if isinstance(item, (str, Path)) else item
        folder = generated_folder(out, name)
        if folder in folders or folder == Path(out):
            raise ConfigError(f"the image name {name!r} is empty or taken: variations are kept by name")
        folders.add(folder)
        missing = [j for j in range(count) if not _file(folder, j).is_file()]
        if missing:
            try:
                pixels = _source(source)
            except ImageError as error:
                log.warning("no variations of %s: %s", name, error)
                continue
            pipeline = pipeline or load_pipeline(device)
            for start in range(0, len(missing), batch_size):
                part = missing[start : start + batch_size]
                answer = pipeline(
                    pixels,
                    guidance_scale=guidance,
                    num_images_per_prompt=len(part),
                    generator=[_generator(seed, name, j) for j in part],
                )
                folder.mkdir(parents=True, exist_ok=True)
                for j, image in zip(part, answer.images, strict=True):  # a kill leaves no half of a file
                    with atomic.replacing(_file(folder, j), durable=False) as half:
                        image.convert("RGB").save(half, format="JPEG", quality=95)
            made += len(missing)
        if progress is not None:
            progress(name)
    return made


def load_pipeline(device: str = "auto") -> VariationPipeline:
    """The image variation model that DiffTPT used, ready on a device."""
    try:
        diffusers = import_module("diffusers")
    except ImportError:
        raise ConfigError(
            "generating variations needs the package diffusers: pip install mltta[diffusion]. Or use generated images "
            "of your own, in one folder per photo"
        ) from None
    try:
        pipeline = diffusers.StableDiffusionImageVariationPipeline.from_pretrained(MODEL, revision=REVISION)
    except OSError as error:
        raise WeightsError(
            f"{MODEL} ({REVISION}) is not available: {error}. It is downloaded from the Hugging Face hub once; on a "
            "machine without network, copy the hub's cache (HF_HOME) there"
        ) from error
    return pipeline.to(pick_device(device))  # type: ignore[no-any-return]


def _refuse_others(out: Path, made_with: dict[str, float]) -> None:
    """Keep variations of different settings apart."""
    file = out / MADE_WITH
    if not file.is_file():
        with atomic.writing(out):
            out.mkdir(parents=True, exist_ok=True)
            atomic.write(file, json.dumps(made_with).encode(), durable=False)
    elif (kept := file.read_text("utf-8", errors="replace")) != json.dumps(made_with):
        raise ConfigError(
            f"{out} holds variations made with {kept}, not {json.dumps(made_with)}: use another folder"
        )


def _file(folder: Path, j: int) -> Path:
    return folder / f"{j:03}.jpg"


def _source(source: Any) -> Tensor:
    """An image as the model is conditioned on it: (1, 3, 224, 224), squashed without antialias, normalised."""
    levels = torch.from_numpy(np.array(load_image(source))).permute(2, 0, 1)[None].float() / 255
    pixels = F.interpolate(levels, (SOURCE_SIZE, SOURCE_SIZE), mode="bicubic", align_corners=False)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (CLIP_MEAN, CLIP_STD))
    return (pixels - mean) / std


def _generator(seed: int, name: str, j: int) -> torch.Generator:
    """The randomness of one variation."""
    digest = hashlib.blake2b(f"{seed}|{name}|{j}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
