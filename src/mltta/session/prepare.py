"""From a photo to pixels: read, decode, and render views that are not cached. Runs in threads or worker processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.decision import Decision
from mltta.errors import ImageError
from mltta.images.budget import open_file
from mltta.images.decode import image_id, load_image
from mltta.images.generated import generated_files
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.images.views import RENDERING, Preprocess, render_local, render_views

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone
    from mltta.session.cache import FeatureCache

#: length in bytes of an image's name in the feature cache
NAME_BYTES = 16


@dataclass(frozen=True)
class Photo:
    """An image in a session."""

    index: int
    #: its name in records and errors
    id: str
    #: anything `load_image` takes
    source: Any
    #: key of its generated views
    name: str = ""
    #: the decision for this photo, if it differs from the session's
    decision: Decision | None = None
    #: its name in feature caches, if known: it then need not be read to look up its features
    content: bytes = b""


@dataclass(frozen=True)
class Prepared:
    """A photo ready to be encoded: its views that are not cached, or the image if the device renders views."""

    photo: Photo
    #: the clean view (1, 3, S, S), if a missing spec has one
    clean: NDArray[np.float32] | None = None
    #: by missing spec: its views without the clean one (N - 1, 3, S, S), a local input, or all generated views
    pixels: dict[AnySpec, NDArray[np.float32]] = field(default_factory=dict)
    #: the image (H, W, 3), for a device that renders views, and the name that seeds their randomness
    decoded: NDArray[np.uint8] | None = None
    identity: str = ""
    #: by spec, the name under which its features are cached; and the specs that are not cached
    names: dict[AnySpec, bytes] = field(default_factory=dict)
    missing: tuple[AnySpec, ...] = ()
    #: errors of the views that could not be rendered
    errors: dict[AnySpec, str] = field(default_factory=dict)


class Prepare:
    """Prepares the photo of a key, which may be the photo itself; an unreadable file never raises."""

    def __init__(
        self,
        fetch: Callable[[Any], Photo],
        specs: Sequence[AnySpec],
        preprocess: Preprocess,
        *,
        caches: Sequence[FeatureCache] = (),
        seed: int = 0,
        on_device: bool = False,
    ):
        """Args:
        fetch: returns the photo for a key.
        caches: one per spec, or empty.
        on_device: only decode; views are rendered on the device.
        """
        self.fetch, self.specs, self.preprocess = fetch, specs, preprocess
        self.caches, self.seed, self.on_device = caches, seed, on_device

    def __call__(self, key: Any) -> Prepared:
        photo: Photo | None = None
        try:
            photo = self.fetch(key)
            content, source = photo.content, photo.source
            if self.caches and not content:
                content, source = content_of(source)
        except ImageError as error:
            given = key if isinstance(key, Photo) else Photo(key if isinstance(key, int) else 0, "", None)
            photo = photo or given
            return Prepared(photo, errors=dict.fromkeys(self.specs, str(error)))
        names: dict[AnySpec, bytes] = {}
        errors: dict[AnySpec, str] = {}
        for spec in self.specs if self.caches else ():
            # generated views may be missing although the image is there
            try:
                names[spec] = _views_name(content, spec, photo.name)
            except ImageError as error:
                errors[spec] = str(error)
        kept = {cache.spec for cache in self.caches if cache.spec in names and cache.holds(names[cache.spec])}
        missing = [spec for spec in self.specs if spec not in kept and spec not in errors]
        try:
            image = load_image(source, working=True, name=photo.id) if missing else None
        except ImageError as error:
            return Prepared(photo, names=names, errors=errors | dict.fromkeys(missing, str(error)))
        if image is None:
            return Prepared(photo, names=names, errors=errors)
        seeded = any(isinstance(s, ViewSpec) and s.has_clean and not s.is_clean for s in missing)
        identity = image_id(image) if seeded else ""
        render = partial(render_views, preprocess=self.preprocess, seed=self.seed, name=photo.name)
        clean: NDArray[np.float32] | None = None
        pixels: dict[AnySpec, NDArray[np.float32]] = {}
        decoded: NDArray[np.uint8] | None = None
        if self.on_device and any(not spec.generated for spec in missing):
            decoded = np.array(image)
        elif any(spec.has_clean for spec in missing):
            clean = render(image, ViewSpec(count=1), image_id=identity, indices=[0])
        for spec in missing:
            try:
                if isinstance(spec, LocalSpec):
                    if not self.on_device:
                        pixels[spec] = render_local(image, spec, self.preprocess)
                elif spec.generated or not (self.on_device or spec.is_clean):
                    views = range(0 if spec.generated else 1, spec.count)
                    pixels[spec] = render(image, spec, image_id=identity, indices=views)
            except ImageError as error:
                errors[spec] = str(error)
        made = tuple(spec for spec in missing if spec not in errors)
        return Prepared(photo, clean, pixels, decoded, identity, names, made, errors)


def content_of(source: Any) -> tuple[bytes, Any]:
    """Name an image by its content (a file's bytes, else its pixels), and return what to decode."""
    if isinstance(source, (str, Path)):
        digest = hashlib.blake2b(digest_size=NAME_BYTES)
        file, _ = open_file(str(source))
        try:
            with file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        except OSError as error:
            raise ImageError(f"{source}: cannot be read: {error.strerror}") from None
        return digest.digest(), source
    if isinstance(source, bytes):
        return hashlib.blake2b(source, digest_size=NAME_BYTES).digest(), source
    image = load_image(source, working=True)
    return bytes.fromhex(image_id(image)), image


def _views_name(content: bytes, spec: AnySpec, name: str) -> bytes:
    """Name the source of an image's views: the image, or the images generated from it."""
    if isinstance(spec, LocalSpec) or not spec.generated:
        return content
    digest = hashlib.blake2b(digest_size=NAME_BYTES)
    for file in generated_files(spec, name):
        digest.update(content_of(file)[0])
    return digest.digest()


def rendering(backbone: Backbone, spec: AnySpec) -> str:
    """How views are rendered for this backbone: AugMix on a GPU differs from Pillow's by at most a level or so."""
    return f"{RENDERING}, augmix on gpu" if spec.augmix and backbone.device.type != "cpu" else RENDERING
