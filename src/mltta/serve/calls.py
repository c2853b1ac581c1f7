"""A call read from its request: a form or JSON, in memory and within its limits."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Any, TypeAlias

from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from mltta.errors import ImageError
from mltta.images.decode import image_size
from mltta.serve.limits import Limits
from mltta.serve.schema import FIELDS, TagCall


class Refused(Exception):
    """A call that is answered with a status and a sentence."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


#: an image's name, and its bytes, its address, or what is wrong with it
Sent: TypeAlias = tuple[str, bytes | str | ImageError]


async def read_call(request: Request, limits: Limits) -> tuple[TagCall, list[Sent]]:
    """What is asked for, and the images; or what is wrong with the call."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _from_form(request, limits)
    if kind == "application/json":
        # reading a long one, and false headers, would block all others
        return await asyncio.to_thread(_from_json, await request.body(), limits)
    raise Refused(415, "send multipart/form-data with the fields images and labels, or application/json")


def checked(kind: Any, content: Any) -> Any:
    """Content as a model of the API, or a sentence that names the field at fault."""
    try:
        if isinstance(content, bytes):
            return kind.model_validate_json(content)
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:80] for part in first["loc"]) or "the body"
        raise Refused(422, f"{place}: {first['msg']}") from None
    except (RecursionError, ValueError, UnicodeError):
        raise Refused(422, "the body is not valid JSON") from None


def _from_json(body: bytes, limits: Limits) -> tuple[TagCall, list[Sent]]:
    asked: TagCall = checked(TagCall, body)
    _check_count(len(asked.images), limits)
    sent: list[Sent] = []
    for place, image in enumerate(asked.images, start=1):
        if (image.data is None) == (image.url is None):
            raise Refused(422, f"image {place}: give either data or url")
        name = image.name or image.url or f"image {place}"
        if image.data is None:
            sent.append((name, image.url or ""))
            continue
        try:
            sent.append((name, check_image(name, base64.b64decode(image.data, validate=True), limits)))
        except (binascii.Error, ValueError):
            sent.append((name, ImageError(f"{name}: its data are not base64")))
    return asked, sent


async def _from_form(request: Request, limits: Limits) -> tuple[TagCall, list[Sent]]:
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
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except (ValueError, KeyError, UnicodeError):
        raise Refused(400, "the form cannot be read") from None
    try:
        return await _of_form(form, limits)
    finally:
        await form.close()


async def _of_form(form: FormData, limits: Limits) -> tuple[TagCall, list[Sent]]:
    content: dict[str, Any] = {}
    files: list[tuple[str, bytes]] = []
    for name, value in form.multi_items():
        if name == "images":
            if not isinstance(value, UploadFile):
                raise Refused(422, "images: send files")
            files.append(((value.filename or f"image {len(files) + 1}")[:1000], await value.read()))
        elif name not in FIELDS or isinstance(value, UploadFile):
            raise Refused(422, f"{name[:80]}: no such field; the fields are images, {', '.join(FIELDS)}")
        elif name == "labels":
            content["labels"] = "\n".join(filter(None, (content.get("labels"), value)))
        elif value != "":  # a form also sends fields that were left empty
            content[name] = value
    if not files:
        raise Refused(422, "images: send at least one file")
    _check_count(len(files), limits)
    if "settings" in content:
        try:
            content["settings"] = json.loads(content["settings"])
        except (ValueError, RecursionError):
            raise Refused(422, "settings: give a JSON object") from None
    asked = checked(TagCall, {"images": [{} for _ in files], **content})
    return asked, await asyncio.to_thread(
        lambda: [(name, check_image(name, own, limits)) for name, own in files]
    )


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.images:
        raise Refused(413, f"{count} images are too many for one call; the limit is {limits.images}")


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
