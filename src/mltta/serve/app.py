"""The routes of the API, and the page that uses them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from mltta import __version__
from mltta.errors import ImageError, MlttaError
from mltta.images.remote import fetch, is_url
from mltta.methods import Method
from mltta.serve.answers import export, image_answer
from mltta.serve.calls import Call, Refused, check_image, checked, read_call
from mltta.serve.engine import Answered, Engine, Job
from mltta.serve.guard import refusal
from mltta.serve.metrics import Metrics
from mltta.serve.offer import Offer
from mltta.serve.schema import ExportCall, Problem, TagAnswer, TagCall, tag_bodies
from mltta.session.prepare import Photo

PAGE = Path(__file__).parents[1] / "assets" / "page"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_SAYS = {
    400: "the body cannot be read",
    401: "no token, or a wrong one",
    403: "another site, or another name",
    408: "the call came too slowly",
    413: "too many images or bytes",
    415: "neither multipart nor JSON",
    422: "a field, a label or a setting is wrong",
    429: "too many calls at once; Retry-After says when to come back",
    503: "the server is stopping",
    504: "no answer in time",
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": said} for code, said in _SAYS.items()
}


def make_app(offer: Offer, engine: Engine, metrics: Metrics, *, allow_urls: bool = False) -> FastAPI:
    """The application, without the guard before it."""
    limits = offer.limits

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    app = FastAPI(
        title="mltta",
        summary="Tags images with many labels at once.",
        version=__version__,
        docs_url=None,  # FastAPI's pages ask other hosts for their scripts
        redoc_url=None,
        lifespan=life,
    )
    _speak_plainly(app)

    @app.post(
        "/v1/tag",
        response_model=TagAnswer,
        response_model_exclude_none=True,
        responses=_PROBLEMS,
        openapi_extra=tag_bodies(),
        summary="Tag images",
    )
    async def tag(request: Request) -> TagAnswer:
        """Tag images. One that cannot be read is an entry with an error; the others are tagged all the same."""
        call = await read_call(request, limits)
        start = time.perf_counter()
        asked = call.asked
        choice = offer.choice(
            labels=asked.labels,
            model=asked.model,
            method=asked.method,
            settings=asked.settings,
            where=asked.where,
            captions=asked.captions,
        )
        images = await fetched(call)
        good = [
            Photo(place, name, image)
            for place, (name, image) in enumerate(zip(call.names, images, strict=True))
            if isinstance(image, bytes)
        ]
        found: list[Answered] = []
        if good:
            found = await answered(engine.submit(choice, good), request)
        answers = iter(found)
        entries = [
            image_answer(name, image if isinstance(image, ImageError) else next(answers), asked)
            for name, image in zip(call.names, images, strict=True)
        ]
        for entry in entries:
            metrics.images.labels("tagged" if entry.error is None else "failed").inc()
        return TagAnswer(
            model=choice.model,
            method=asked.method or next(iter(offer.methods)),
            labels=len(choice.labels),
            images=entries,
            seconds=round(time.perf_counter() - start, 4),
        )

    async def fetched(call: Call) -> Sequence[bytes | ImageError]:
        if any(isinstance(image, str) for image in call.images) and not allow_urls:
            raise Refused(422, "this server fetches nothing from addresses; send the image itself")
        waiting = [asyncio.to_thread(_fetch, image, offer) for image in call.images if isinstance(image, str)]
        arrived = iter(await asyncio.gather(*waiting))
        return [next(arrived) if isinstance(image, str) else image for image in call.images]

    async def answered(job: Job, request: Request) -> list[Answered]:
        """What the engine says, unless it takes too long or the client has left."""
        answer = asyncio.wrap_future(job.answer)
        left = asyncio.ensure_future(request.receive())
        try:
            both: set[asyncio.Future[Any]] = {answer, left}
            await asyncio.wait(both, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if left.done():
                raise Refused(400, "the client has left")
            raise Refused(504, f"no answer within {limits.seconds} seconds; send fewer images at once")
        except asyncio.CancelledError:
            raise Refused(503, "the server is stopping; try again", {"retry-after": "2"}) from None
        finally:
            answer.cancel()
            left.cancel()

    @app.post("/v1/export", responses=_PROBLEMS, openapi_extra=_json(ExportCall), summary="Answers as a file")
    async def write(request: Request) -> Response:
        """The entries of answers as CSV, as JSON, or as XMP sidecars in a zip."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "send application/json")
        asked: ExportCall = checked(ExportCall, await request.body())
        content, kind, name = await asyncio.to_thread(export, asked)
        return Response(
            content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'}
        )

    @app.get("/v1/models", summary="Models")
    async def models() -> dict[str, Any]:
        return {
            "models": [
                {"name": name, "default": place == 0, "image_size": backbone.preprocess.size}
                for place, (name, backbone) in enumerate(offer.models.items())
            ]
        }

    @app.get("/v1/methods", summary="Methods, and what a call may set of them")
    async def methods() -> dict[str, Any]:
        return {
            "methods": [
                {
                    "name": name,
                    "default": place == 0,
                    "summary": cls.summary,
                    "where": cls.where is not Method.where,
                    "online": cls.online,
                    "settings": offer.settings_of(name),
                }
                for place, (name, cls) in enumerate(offer.methods.items())
            ]
        }

    @app.get("/v1/labels", summary="Label sets, and the limits of a call")
    async def labels() -> dict[str, Any]:
        names = ("images", "image_bytes", "body_bytes", "megapixels", "labels", "label_length")
        return {
            "default": offer.default_labels,
            "sets": [{"name": name, "count": len(own)} for name, own in offer.sets.items()],
            "limits": {name: getattr(limits, name) for name in names},
            "urls": allow_urls,
        }

    @app.get("/v1/labels/{name}", responses={404: {"model": Problem}}, summary="The labels of a set")
    async def label_set(name: str) -> dict[str, Any]:
        if name not in offer.sets:
            raise Refused(404, f"no label set {name[:80]!r}; there is {', '.join(offer.sets)}")
        return {"name": name, "labels": list(offer.sets[name].names)}

    @app.get("/health", summary="Whether the server runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"model": Problem}}, summary="Whether it takes calls")
    async def ready() -> dict[str, bool]:
        if not engine.alive:
            raise Refused(503, "the server is stopping", {"retry-after": "2"})
        return {"ready": True}

    @app.get("/metrics", response_class=Response, summary="Figures for Prometheus")
    async def figures() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def index() -> FileResponse:
        return _page("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page(name: str) -> FileResponse:
        return _page(name)

    return app


def _page(name: str) -> FileResponse:
    """A file of the page; names come from the folder's own list, so that no other file can be meant."""
    for file in PAGE.iterdir():
        if file.name == name and file.suffix in _KINDS:
            return FileResponse(file, media_type=_KINDS[file.suffix])
    raise Refused(404, "there is no such page")


def _fetch(url: str, offer: Offer) -> bytes | ImageError:
    try:
        if not is_url(url):
            raise ImageError(f"{url}: an address begins with http:// or https://")
        return check_image(url, fetch(url, public=True), offer.limits)
    except ImageError as error:
        return error


def _json(kind: Any) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _speak_plainly(app: FastAPI) -> None:
    """Every answer that is no success is a sentence, and none of them a traceback."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return await refusal(error, request.scope["mltta.body"])

    @app.exception_handler(MlttaError)
    async def wrong(_: Request, error: MlttaError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        said = {
            404: "there is nothing here; /openapi.json says what there is",
            405: "this is not done that way",
        }
        return JSONResponse(
            {"error": said.get(error.status_code, str(error.detail))}, error.status_code, error.headers
        )

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "a fault of the server; its log says more"}, 500)

    make = app.openapi

    def openapi() -> dict[str, Any]:
        found = make()
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        for kind in (TagCall, ExportCall):
            own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(own.pop("$defs", {}))
            schemas[kind.__name__] = own
        return found

    app.openapi = openapi  # type: ignore[method-assign]
