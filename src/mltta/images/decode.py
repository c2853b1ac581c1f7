"""Decoding: any common file, bytes or array becomes an upright RGB image, or an error with the reason."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from mltta.errors import ImageError
from mltta.images.budget import check_bytes, check_encoded, check_header, check_size, open_file, too_large
from mltta.images.colour import to_srgb
from mltta.images.find import KINDS, formats_of
from mltta.images.geometry import scale_of

if TYPE_CHECKING:
    import torch

# for EXIF orientations 2 to 8
_TURNS = "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90"
_UPRIGHT = dict(enumerate((Image.Transpose[name] for name in _TURNS.split()), start=2))
_STRIP_PIXELS = 1 << 20
# Bytes to read and decode at once. With Pillow's 64 KiB, decoding threads would request the interpreter lock dozens
# of times per photo, and wait whenever another thread computes.
_AT_ONCE = 1 << 25
_opening = threading.Lock()
# Images that may take a gigabyte are decoded by one thread at a time.
_HUGE_PIXELS, _one_huge = 32_000_000, threading.Lock()


def load_image(source: Any, *, working: bool = False, name: str = "") -> Image.Image:
    """Read an upright sRGB image; transparency is blended with white.

    An upright RGB image is returned without copying.

    Args:
        source: a path, the bytes of a file, a PIL image, or pixels as an array or tensor: (H, W), (H, W, 1),
            (H, W, 3) or (H, W, 4), for tensors also (C, H, W); uint8, or floats in [0, 1].
        working: return the working size for views: large photos reduced to 1/2, 1/4 or 1/8 (`scale_of`).
        name: name of bytes in errors; paths name themselves.

    Example:
        >>> load_image(np.full((2, 3), 255, np.uint8)).getpixel((0, 0))
        (255, 255, 255)
    """
    if isinstance(source, (str, os.PathLike)):
        name = os.fsdecode(source)
        file, size = open_file(name)
        with file:
            if size > _AT_ONCE:
                return _decode(file, size, name, working)
            try:
                source = file.read(_AT_ONCE)
            except OSError as error:
                raise ImageError(f"{name}: cannot be read: {error.strerror}") from None
    if isinstance(source, (bytes, bytearray, memoryview)):
        name = name or "image bytes"
        check_bytes(len(source), name)
        return _decode(io.BytesIO(source), len(source), name, working)
    if isinstance(source, Image.Image):
        check_size(*source.size, "image")
        return _finish(source, "image", working)
    torch = sys.modules.get("torch")  # not imported here, which takes seconds: a tensor implies it is
    if torch is not None and isinstance(source, torch.Tensor):
        image = _from_array(_tensor_to_array(source), "tensor")
    elif isinstance(source, np.ndarray):
        image = _from_array(source, "array")
    else:
        kinds = "a path, the bytes of a file, a PIL image, a numpy array or a torch tensor"
        raise ImageError(f"expected an image, got {type(source).__name__}; give {kinds}")
    return _reduced(image) if working else image


def image_id(source: Any) -> str:
    """Return an id from size and RGB pixels, the same for a path, bytes or an array.

    The views of a photo depend on the id of its working size: ``image_id(load_image(photo, working=True))``.
    """
    image = load_image(source)
    digest = hashlib.blake2b(f"{image.width}x{image.height}:".encode(), digest_size=16)
    for _, strip in _strips(image):
        digest.update(strip.tobytes())
    return digest.hexdigest()


def image_size(source: bytes, name: str) -> tuple[int, int]:
    """Return width and height of an encoded image from its header; raises ImageError if it exceeds a limit."""
    check_bytes(len(source), name)
    with _open(io.BytesIO(source), len(source), name) as image:
        return int(image.width), int(image.height)


def _decode(file: IO[bytes], size: int, name: str, working: bool) -> Image.Image:
    image = _open(file, size, name)
    with _one_huge if image.width * image.height > _HUGE_PIXELS else nullcontext():
        return _finish(image, name, working, own=True)


def _open(file: IO[bytes], size: int, name: str) -> Image.Image:
    """Open an encoded image and check its headers without decoding pixels."""
    head = file.read(12) if size else b""
    if not head:
        raise ImageError(f"{name}: the file is empty; copy or download it again")
    formats = formats_of(head, name)
    with _decoding(name):
        check_encoded(file, size, name)
        # Pillow warns above 89 megapixels. Suppressing is process-wide: one thread at a time, headers only.
        with _opening, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(file, formats=formats)
    check_header(image, file, name)
    image.decodermaxblock = _AT_ONCE
    return image


def _finish(image: Image.Image, name: str, working: bool, own: bool = False) -> Image.Image:
    """Decode, convert to RGB and rotate upright; ``own`` images may be decoded smaller and are closed early."""
    with _decoding(name):
        if own and working and (scale := scale_of(image.size)) > 1:
            image.draft(None, (image.width // scale, image.height // scale))  # decodes a JPEG at reduced size
        image.load()
        turn = _UPRIGHT.get(_orientation(image))
        plain = image.mode in ("RGB", "CMYK") and "transparency" not in image.info
        # before the more expensive colour conversion
        given = _reduced(image) if working and plain else image
        rgb = _to_rgb(to_srgb(given) if given.info.get("icc_profile") else given, name)
        if rgb is not given:
            rgb.info.pop("icc_profile", None)  # a second reading would apply it again
        if working:
            rgb = _reduced(rgb)
        if own and rgb is not image:
            image.close()
        if turn is not None:
            rgb = rgb.transpose(turn)
            rgb.info.clear()  # otherwise a second reading would rotate it again
        return rgb


def _reduced(image: Image.Image) -> Image.Image:
    """Reduce an image to its working size by averaging boxes of pixels; small images are returned unchanged.

    A JPEG that is reduced during decoding differs by about one level from its pixels passed as an array.
    """
    scale = scale_of(image.size)
    return image.reduce(scale) if scale > 1 else image


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Convert any error of a decoder to an ImageError that names the image."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError(f"{name}: not a readable {KINDS} image; convert it to JPEG or PNG") from None
    except Image.DecompressionBombError:
        raise too_large(name, "it") from None
    except MemoryError:
        raise ImageError(f"{name}: not enough memory to decode it; make it smaller first") from None
    except Exception:  # decoders raise almost anything on invalid data
        raise ImageError(f"{name}: damaged or incomplete image; copy or download it again") from None


def _orientation(image: Image.Image) -> int:
    """Read the EXIF orientation; damaged EXIF data is ignored."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return 1


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Convert any mode to RGB with at most one full-size copy at a time where possible."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _to_grey8(image, name).convert("RGB")
    if image.mode in ("1", "L", "P", "RGB") and "transparency" in image.info:
        image = image.convert("RGBA")
    elif image.mode in ("PA", "La", "RGBa"):
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    if image.mode in ("LA", "RGBA"):
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image)
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_grey8(image: Image.Image, name: str) -> Image.Image:
    """Scale 16-bit or float grey to 8 bits; white is 65535, for floats 1, 255 or the maximum."""
    white = 65535.0
    if image.mode in ("I", "F"):
        high = float(image.getextrema()[1])  # type: ignore[arg-type]  # one band, so a pair of numbers
        white = max(white, high) if image.mode == "I" else 1.0 if high <= 1 else max(255.0, high)
    grey = Image.new("L", image.size)
    for top, strip in _strips(image):
        values = np.asarray(strip, np.float32)
        if not np.isfinite(values).all():
            raise ImageError(f"{name}: contains NaN or infinite values; replace them first")
        levels = np.rint(np.clip(values / np.float32(white / 255), 0, 255)).astype(np.uint8)
        grey.paste(Image.fromarray(levels), (0, top))
    return grey


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield strips of about a megapixel, so that huge images need little memory."""
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        whole = rows >= image.height
        yield top, image if whole else image.crop((0, top, image.width, min(top + rows, image.height)))


def _tensor_to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Move a tensor to the CPU, channels last; ambiguous shapes are read as (C, H, W)."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()  # numpy has no bfloat16
    if tensor.ndim == 3 and tensor.shape[0] in (1, 3, 4):
        tensor = tensor.permute(1, 2, 0)
    return tensor.numpy()


def _from_array(array: NDArray[Any], name: str) -> Image.Image:
    """Make an image from pixels; ambiguous arrays are refused."""
    shape = "x".join(map(str, array.shape))
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or array.size == 0:
        todo = "give (height, width) or (height, width, 1, 3 or 4 channels)"
        raise ImageError(f"{name} of shape {shape}: {todo}")
    check_size(array.shape[1], array.shape[0], name)
    if np.issubdtype(array.dtype, np.floating):
        # Resampling may overshoot slightly; 0.001 is less than half an 8-bit level. NaN fails too.
        if not (array.min() >= -1e-3 and array.max() <= 1.001):
            raise ImageError(f"{name} of floats must lie in [0, 1]; divide by 255, or undo the normalization")
        levels = np.clip(array, 0, 1)
        levels *= 255
        array = np.rint(levels, out=levels).astype(np.uint8)
    if array.dtype != np.uint8:
        raise ImageError(f"{name} of {array.dtype}: give uint8 in 0 to 255, or floats in [0, 1]")
    image = Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    return _to_rgb(image, name)
