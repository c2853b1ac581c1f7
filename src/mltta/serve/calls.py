"""A call read from its request: multipart or JSON, in memory and within its limits."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from mltta.errors import ImageError
from mltta.images.decode import image_size
from mltta.serve.limits import Limits
from mltta.serve.schema import TagCall

FIELDS = ("labels", "model", "method", "settings", "top_k", "threshold", "all", "where", "captions")


class Refused(Exception):
    """A call that is answered with a status and a sentence."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


@dataclass(frozen=True)
class Call:
    """What was asked for, and the images: names, and bytes, an address, or what is wrong with one."""

    asked: TagCall
    names: Sequence[str]
    images: Sequence[bytes | str | ImageError]


async def read_call(request: Request, limits: Limits) -> Call:
    """Read a call, or say what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _from_form(request, limits)
    if kind == "application/json":
        # reading much of it, and headers that lie, would keep all others waiting
        return await asyncio.to_thread(_from_json, await request.body(), limits)
    raise Refused(415, "send multipart/form-data with the fields images and labels, or application/json")


def checked(kind: Any, content: Any) -> Any:
    """Content as one of the API's own kinds, or a sentence that names the field at fault."""
    try:
        return (
            kind.model_validate_json(content) if isinstance(content, bytes) else kind.model_validate(content)
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:80] for part in first["loc"]) or "the body"
        raise Refused(422, f"{place}: {first['msg']}") from None
    except (RecursionError, ValueError, UnicodeError):
        raise Refused(422, "the body is not JSON that can be read") from None


def _from_json(body: bytes, limits: Limits) -> Call:
    asked: TagCall = checked(TagCall, body)
    _check_count(len(asked.images), limits)
    names, images = [], []
    for place, image in enumerate(asked.images, start=1):
        if (image.data is None) == (image.url is None):
            raise Refused(422, f"image {place}: give either data or url")
        names.append(image.name or image.url or f"image {place}")
        images.append(image.url if image.url is not None else _decoded(image.data or "", names[-1]))
    return _call(asked, names, images, limits)


def _decoded(data: str, name: str) -> bytes | ImageError:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return ImageError(f"{name}: its data are not base64")


async def _from_form(request: Request, limits: Limits) -> Call:
    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=limits.images + 1,
        max_fields=limits.labels + len(FIELDS),
        max_part_size=limits.labels * limits.label_length,
    )
    parser.spool_max_size = limits.body_bytes + 1  # nothing that is sent is written to disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refused(400, f"this is not a form that can be read: {error.message}") from None
    except (ValueError, KeyError, UnicodeError):
        raise Refused(400, "this is not a form that can be read") from None
    try:
        return await _of_form(form, limits)
    finally:
        await form.close()


async def _of_form(form: FormData, limits: Limits) -> Call:
    content: dict[str, Any] = {}
    names: list[str] = []
    images: list[bytes | str | ImageError] = []
    for name, value in form.multi_items():
        if name == "images":
            if not isinstance(value, UploadFile):
                raise Refused(422, "images: send files")
            names.append((value.filename or f"image {len(names) + 1}")[:1000])
            images.append(await value.read())
        elif name not in FIELDS or isinstance(value, UploadFile):
            raise Refused(422, f"{name[:80]}: there is no such field; there is images, {', '.join(FIELDS)}")
        elif name == "labels":
            content["labels"] = [*content.get("labels", []), value]
        else:
            content[name] = value
    if not images:
        raise Refused(422, "images: send at least one file")
    _check_count(len(images), limits)
    said = content.get("labels")
    if said is not None:
        content["labels"] = "\n".join(said)
    if "settings" in content:
        try:
            content["settings"] = json.loads(content["settings"] or "{}")
        except (ValueError, RecursionError):
            raise Refused(422, "settings: give a JSON object") from None
    for name in ("top_k", "threshold", "model", "method"):
        if content.get(name) == "":  # a form sends what was left empty, too
            del content[name]
    asked = checked(TagCall, {"images": [{} for _ in images], **content})
    return await asyncio.to_thread(_call, asked, names, images, limits)


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.images:
        raise Refused(
            413, f"{count} images are too many for one call, the limit is {limits.images}; send several"
        )


def _call(asked: TagCall, names: list[str], images: list[bytes | str | ImageError], limits: Limits) -> Call:
    return Call(asked, names, [_fit(*own, limits) for own in zip(names, images, strict=True)])


def _fit(name: str, image: bytes | str | ImageError, limits: Limits) -> bytes | str | ImageError:
    return check_image(name, image, limits) if isinstance(image, bytes) else image


def check_image(name: str, image: bytes, limits: Limits) -> bytes | ImageError:
    """An image whose bytes and pixels are within the limits, by its header; or what is wrong with it."""
    if len(image) > limits.image_bytes:
        return ImageError(f"{name}: more than {limits.image_bytes:,} bytes; make it smaller first")
    try:
        wide, tall = image_size(image, name)
    except ImageError as error:
        return error
    if wide * tall > limits.megapixels * 1_000_000:
        return ImageError(
            f"{name}: {wide}x{tall} is more than {limits.megapixels} megapixels; make it smaller first"
        )
    return image
