"""Pictures in: any common file, bytes or array becomes one upright RGB image, or an error that says why."""

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

# of EXIF's orientations, from 2 on
_TURNS = "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90"
_UPRIGHT = dict(enumerate((Image.Transpose[name] for name in _TURNS.split()), start=2))
_STRIP_PIXELS = 1 << 20
# A file up to this is read at once, and a decoder given so much at a time: by Pillow's 64 KiB a thread that decodes
# asks for the interpreter dozens of times a photo, and waits for it whenever another thread computes.
_AT_ONCE = 1 << 25
_opening = threading.Lock()
# Many threads decode; what may take a gigabyte is decoded by one of them at a time.
_HUGE_PIXELS, _one_huge = 32_000_000, threading.Lock()


def load_image(source: Any, *, working: bool = False, name: str = "") -> Image.Image:
    """Read one picture as an upright sRGB image, transparency laid over white.

    An image that is RGB and upright already comes back as it is, not copied.

    Args:
        source: a path, the bytes of a file, a PIL image, or pixels as an array or tensor: (H, W), (H, W, 1),
            (H, W, 3) or (H, W, 4), for tensors (C, H, W) too; uint8, or floats in [0, 1].
        working: at the size that views are made of: large photos reduced to 1/2, 1/4 or 1/8 (`scale_of`).
        name: what an error calls bytes; a path is called by itself.

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
    torch = sys.modules.get("torch")  # no tensors before somebody has imported it, which takes seconds
    if torch is not None and isinstance(source, torch.Tensor):
        image = _from_array(_tensor_to_array(source), "tensor")
    elif isinstance(source, np.ndarray):
        image = _from_array(source, "array")
    else:
        kinds = "a path, the bytes of a file, a PIL image, a numpy array or a torch tensor"
        raise ImageError(f"cannot make an image of a {type(source).__name__}; give {kinds}")
    return _reduced(image) if working else image


def image_id(source: Any) -> str:
    """Name a picture by its size and RGB pixels, the same whether it comes from a path, bytes or an array.

    The views of a photo hang on the name of what they are made of: ``image_id(load_image(photo, working=True))``.
    """
    image = load_image(source)
    digest = hashlib.blake2b(f"{image.width}x{image.height}:".encode(), digest_size=16)
    for _, strip in _strips(image):
        digest.update(strip.tobytes())
    return digest.hexdigest()


def image_size(source: bytes, name: str) -> tuple[int, int]:
    """Width and height of an encoded image, by its header alone; one that would not be decoded is an ImageError."""
    check_bytes(len(source), name)
    with _open(io.BytesIO(source), len(source), name) as image:
        return int(image.width), int(image.height)


def _decode(file: IO[bytes], size: int, name: str, working: bool) -> Image.Image:
    image = _open(file, size, name)
    with _one_huge if image.width * image.height > _HUGE_PIXELS else nullcontext():
        return _finish(image, name, working, own=True)


def _open(file: IO[bytes], size: int, name: str) -> Image.Image:
    """An encoded image whose headers were looked at, and no pixel."""
    head = file.read(12) if size else b""
    if not head:
        raise ImageError(f"{name}: the file is empty; copy or download it again")
    formats = formats_of(head, name)
    with _decoding(name):
        check_encoded(file, size, name)
        # Pillow warns from 89 megapixels on. Silence is process-wide: one thread at a time, headers only.
        with _opening, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(file, formats=formats)
    check_header(image, file, name)
    image.decodermaxblock = _AT_ONCE
    return image


def _finish(image: Image.Image, name: str, working: bool, own: bool = False) -> Image.Image:
    """Decode, convert to RGB and turn upright; an image of our own may be told how to decode, and goes at once."""
    with _decoding(name):
        if own and working and (scale := scale_of(image.size)) > 1:
            image.draft(None, (image.width // scale, image.height // scale))  # a JPEG, at less work
        image.load()
        turn = _UPRIGHT.get(_orientation(image))
        plain = image.mode in ("RGB", "CMYK") and "transparency" not in image.info
        # before its colours are changed, which costs more
        given = _reduced(image) if working and plain else image
        rgb = _to_rgb(to_srgb(given) if given.info.get("icc_profile") else given, name)
        if rgb is not given:
            rgb.info.pop("icc_profile", None)  # it was of other pixels: a second reading would heed it
        if working:
            rgb = _reduced(rgb)
        if own and rgb is not image:
            image.close()
        if turn is not None:
            rgb = rgb.transpose(turn)
            rgb.info.clear()  # or the orientation stays noted, and a second reading would turn it again
        return rgb


def _reduced(image: Image.Image) -> Image.Image:
    """An image at its working size, by the mean of boxes of pixels; one that is small enough comes back as it is.

    To the bit a JPEG, reduced as it is decoded, differs from its own pixels given as an array: by a level or so.
    """
    scale = scale_of(image.size)
    return image.reduce(scale) if scale > 1 else image


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Turn whatever a decoder raises into an error that says what is wrong with the picture of that name."""
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
    except Exception:  # a decoder fed with garbage raises almost anything
        raise ImageError(f"{name}: damaged or incomplete image; copy or download it again") from None


def _orientation(image: Image.Image) -> int:
    """Read the EXIF orientation; unreadable notes do not spoil a good picture."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return 1


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Convert any mode, making no more than one full-size copy at a time where that can be avoided."""
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
    """Scale deep grey to 8 bits: white is 65535, for floats 1, 255 or their maximum."""
    white = 65535.0
    if image.mode in ("I", "F"):
        high = float(image.getextrema()[1])  # type: ignore[arg-type]  # one band, so a pair of numbers
        white = max(white, high) if image.mode == "I" else 1.0 if high <= 1 else max(255.0, high)
    grey = Image.new("L", image.size)
    for top, strip in _strips(image):
        values = np.asarray(strip, np.float32)
        if not np.isfinite(values).all():
            raise ImageError(f"{name}: holds values that are not finite numbers; replace them first")
        levels = np.rint(np.clip(values / np.float32(white / 255), 0, 255)).astype(np.uint8)
        grey.paste(Image.fromarray(levels), (0, top))
    return grey


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Cut an image into bands of about a megapixel, so that work on a huge one needs little memory."""
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        whole = rows >= image.height
        yield top, image if whole else image.crop((0, top, image.width, min(top + rows, image.height)))


def _tensor_to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Bring a tensor to the CPU, channels last; (C, H, W) wins where both readings fit."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()  # numpy has no bfloat16
    if tensor.ndim == 3 and tensor.shape[0] in (1, 3, 4):
        tensor = tensor.permute(1, 2, 0)
    return tensor.numpy()


def _from_array(array: NDArray[Any], name: str) -> Image.Image:
    """Make an image of pixels, refusing what would be read wrongly rather than guessing."""
    shape = "x".join(map(str, array.shape))
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or array.size == 0:
        todo = "give (height, width) or (height, width, 1, 3 or 4 channels)"
        raise ImageError(f"{name} of shape {shape}: {todo}")
    check_size(array.shape[1], array.shape[0], name)
    if np.issubdtype(array.dtype, np.floating):
        # Resampling overshoots by a hair; a thousandth is less than half a level of 8 bits. NaN fails too.
        if not (array.min() >= -1e-3 and array.max() <= 1.001):
            raise ImageError(f"{name} of floats must lie in [0, 1]; divide by 255, or undo the normalisation")
        levels = np.clip(array, 0, 1)
        levels *= 255
        array = np.rint(levels, out=levels).astype(np.uint8)
    if array.dtype != np.uint8:
        raise ImageError(f"{name} of {array.dtype}: give uint8 in 0 to 255, or floats in [0, 1]")
    image = Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    return _to_rgb(image, name)
