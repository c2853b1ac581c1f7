"""Parses requests, form or JSON, in memory and within limits."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from mltta.errors import ImageError
from mltta.images.decode import image_size
from mltta.images.find import is_url
from mltta.images.remote import fetch
from mltta.serve.bodies import fits, room_of
from mltta.serve.offer import Limits
from mltta.serve.schema import FIELDS, ExportCall, ImageIn, ImageOut, TagCall

_T = TypeVar("_T")
#: threads of one call, and so the URLs that it fetches at once
_THREADS = 4
#: parts and bytes of text of an export: about 6,000 images with 10 labels each
_EXPORT = 500_000, 32 << 20


class Refused(Exception):
    """A request refused with a status and a message."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


#: an image's name, and its bytes or its JSON entry
Sent: TypeAlias = tuple[str, bytes | ImageIn]
#: an image's bytes, or a function that raises the error
Source: TypeAlias = bytes | Callable[[], bytes]


def media_type(request: Request) -> str:
    """The media type of a request."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def checked(kind: Any, content: Any, *where: str | int) -> Any:
    """Validate content against an API model; errors name the field."""
    try:
        return (kind.model_validate_json if isinstance(content, bytes) else kind.model_validate)(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:80] for part in (*where, *first["loc"])) or "the body"
        raise Refused(422, f"{place}: {first['msg']}") from None
    except (RecursionError, ValueError, UnicodeError):
        raise Refused(422, "the body is not valid JSON") from None


async def apart(run: Callable[..., _T], *calls: tuple[Any, ...]) -> list[_T]:
    """Call a function in threads of this request alone: no caller waits for a thread that works for another."""
    pool, loop = ThreadPoolExecutor(_THREADS, "mltta-call"), asyncio.get_running_loop()
    try:
        return await asyncio.gather(*(loop.run_in_executor(pool, run, *given) for given in calls))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _parsed(body: bytes, limits: Limits) -> TagCall:
    if not fits(body, *room_of(limits)):
        most = f"{limits.images} images and {limits.labels:,} labels"
        raise Refused(413, f"too many parts or too much text; the limit per request is {most}")
    return checked(TagCall, body)  # type: ignore[no-any-return]


def read_export(body: bytes) -> ExportCall:
    """Parse a request for an export, entry by entry, so that other threads can run in between."""
    if not fits(body, *_EXPORT):
        raise Refused(413, "too many images or labels in one export; export fewer at once")
    try:
        held = from_json(body)
    except (ValueError, RecursionError):
        raise Refused(422, "the body is not valid JSON") from None
    entries = held.get("images") if isinstance(held, dict) else None
    if isinstance(entries, list):
        held["images"] = [checked(ImageOut, entry, "images", n) for n, entry in enumerate(entries)]
    return checked(ExportCall, held)  # type: ignore[no-any-return]


async def read_call(request: Request, limits: Limits) -> tuple[TagCall, list[Sent]]:
    """Parse a request into its options and images, or raise an error."""
    sent: list[Sent]
    if (kind := media_type(request)) == "multipart/form-data":
        asked, sent = await _from_form(request, limits)
    elif kind == "application/json":
        (asked,) = await apart(_parsed, (await request.body(), limits))
        sent = [(one.name or one.url or f"image {n}", one) for n, one in enumerate(asked.images, start=1)]
    else:
        raise Refused(415, "send multipart/form-data with the fields images and labels, or application/json")
    if len(sent) > limits.images:
        raise Refused(413, f"too many images: {len(sent)}; the limit per request is {limits.images}")
    for place, (_, image) in enumerate(sent, start=1):
        if isinstance(image, ImageIn) and (image.data is None) == (image.url is None):
            raise Refused(422, f"image {place}: give either data or url")
    return asked, sent


async def _from_form(request: Request, limits: Limits) -> tuple[TagCall, list[Sent]]:
    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=limits.images + 1,
        max_fields=limits.labels + len(FIELDS),
        max_part_size=limits.labels * limits.label_length,
    )
    parser.spool_max_size = limits.body_bytes + 1  # never write uploads to disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except (ValueError, KeyError, UnicodeError):
        raise Refused(400, "the form cannot be read") from None
    content: dict[str, Any] = {}
    labels: list[str] = []
    files: list[Sent] = []
    try:
        for name, value in form.multi_items():
            if name == "images":
                if not isinstance(value, UploadFile):
                    raise Refused(422, "images: must be files")
                files.append(((value.filename or f"image {len(files) + 1}")[:1000], await value.read()))
            elif name not in FIELDS or isinstance(value, UploadFile):
                raise Refused(422, f"{name[:80]}: unknown field; available: images, {', '.join(FIELDS)}")
            elif name == "labels":
                labels.append(value)
            elif value != "":  # forms also send empty fields
                content[name] = value
    finally:
        await form.close()
    if not files:
        raise Refused(422, "images: send at least one file")
    if sum(map(len, labels)) > room_of(limits)[1]:
        raise Refused(413, f"labels: too much text; the limit per request is {limits.labels:,} labels")
    if any(labels):
        content["labels"] = "\n".join(filter(None, labels))
    if "settings" in content:
        try:
            content["settings"] = json.loads(content["settings"])
        except (ValueError, RecursionError):
            raise Refused(422, "settings: must be a JSON object") from None
    return checked(TagCall, {"images": [{} for _ in files], **content}), files


async def sources_of(
    sent: Sequence[Sent], limits: Limits, hold: Callable[[int], None], *, allow_urls: bool
) -> list[Source]:
    """The source of each image, within the limits.

    Args:
        hold: counts bytes that are fetched, as if they had been sent.
    """
    if not allow_urls and any(isinstance(image, ImageIn) and image.url is not None for _, image in sent):
        raise Refused(422, "this server does not fetch URLs; send the image itself")
    end = time.monotonic() + limits.seconds / 2  # the rest is for tagging
    return await apart(_source, *((*one, limits, end, hold) for one in sent))


def _source(
    name: str, image: bytes | ImageIn, limits: Limits, end: float, hold: Callable[[int], None]
) -> Source:
    try:
        content = image if isinstance(image, bytes) else _content(name, image, limits, end, hold)
        if len(content) > limits.image_bytes:
            raise _large(name, limits)
        wide, tall = image_size(content, name)
        if wide * tall > (most := limits.megapixels) * 1_000_000:
            raise ImageError(f"{name}: {wide}x{tall} exceeds {most} megapixels; resize it first")
    except ImageError as error:
        return partial(_fail, str(error))
    return content


def _content(name: str, image: ImageIn, limits: Limits, end: float, hold: Callable[[int], None]) -> bytes:
    if image.data is None:
        if not is_url(image.url):
            raise ImageError(f"{image.url}: the URL must start with http:// or https://")
        left = end - time.monotonic()
        return fetch(str(image.url), public=True, most=limits.image_bytes, seconds=left, hold=hold)
    if len(image.data) > limits.image_bytes * 4 // 3 + 4:
        raise _large(name, limits)
    try:
        return base64.b64decode(image.data, validate=True)
    except ValueError:
        raise ImageError(f"{name}: data is not valid base64") from None


def _large(name: str, limits: Limits) -> ImageError:
    return ImageError(f"{name}: larger than {limits.image_bytes:,} bytes; resize it first")


def _fail(why: str) -> bytes:
    raise ImageError(why)
