"""The routes of the API, and the web page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from mltta import __version__
from mltta.decision import Decision
from mltta.errors import MlttaError
from mltta.labels.languages import LANGUAGES, in_language
from mltta.methods import Method
from mltta.serve.answers import export, image_answer
from mltta.serve.calls import Refused, apart, media_type, read_call, read_export, sources_of
from mltta.serve.engine import Answered, Engine, Job
from mltta.serve.guard import LEFT, Metrics, full, refusal
from mltta.serve.offer import Offer, allowed_settings
from mltta.serve.schema import SCHEMAS, ErrorOut, ExportCall, TagAnswer, TagCall, body
from mltta.session.prepare import Photo

PAGE = Path(__file__).parents[1] / "assets" / "page"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_SAYS = {
    400: "the request body cannot be read",
    401: "missing or invalid token",
    403: "origin or host name not allowed",
    404: "not found",
    408: "the request body arrived too slowly",
    413: "too many images or bytes",
    415: "unsupported media type: send a form or JSON",
    422: "invalid field, label or setting",
    429: "too many requests; retry after the time in Retry-After",
    503: "the server is shutting down",
    504: "timeout",
}


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": ErrorOut, "description": _SAYS[code]} for code in codes}


_CALL = _errors(*(code for code in _SAYS if code != 404))


def make_app(offer: Offer, engine: Engine, metrics: Metrics, *, allow_urls: bool = False) -> FastAPI:
    """Create the application, without the guard in front of it."""
    limits = offer.limits
    fetching: set[Request] = set()  # requests whose URLs are being fetched

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    app = FastAPI(
        title="mltta",
        summary="Multi-label image tagging.",
        version=__version__,
        docs_url=None,  # FastAPI's docs pages load scripts from other hosts
        redoc_url=None,
        lifespan=life,
    )
    _speak_plainly(app)

    @app.post(
        "/v1/tag",
        response_model=TagAnswer,
        response_model_exclude_none=True,
        responses=_CALL,
        openapi_extra=body(TagCall, form=True),
        summary="Tag images",
    )
    async def tag(request: Request) -> TagAnswer:
        """Tag images. An image that cannot be read gets an entry with an error; the others are tagged."""
        asked, sent = await read_call(request, limits)
        start = time.perf_counter()
        choice = offer.choice(**asked.model_dump(include=offer.CHOICE))
        fetches = allow_urls and any(image.url is not None for image in asked.images)
        if fetches and len(fetching) >= max(1, limits.calls // 2):  # the rest is for callers that send images
            raise full()
        fetching.update([request] if fetches else [])
        try:
            sources = await sources_of(sent, limits, request.scope["mltta.body"].take, allow_urls=allow_urls)
        finally:
            fetching.discard(request)
        given = asked.model_dump(include={"threshold", "top_k", "keywords_from"}, exclude_none=True)
        decision = Decision(**given) if given else None
        photos = [
            Photo(place, name, source, decision=decision)
            for place, ((name, _), source) in enumerate(zip(sent, sources, strict=True))
        ]
        job = engine.submit(choice, photos)
        entries = [image_answer(one, asked) for one in await answered(job, request)]
        for entry in entries:
            metrics.images.labels("tagged" if entry.error is None else "failed").inc()
        count, seconds = len(choice.labels), round(time.perf_counter() - start, 4)
        notes = job.tagger.notes if job.tagger else []
        return TagAnswer(
            model=choice.model,
            method=choice.method,
            labels=count,
            images=entries,
            notes=notes,
            seconds=seconds,
        )

    async def answered(job: Job, request: Request) -> list[Answered]:
        """Wait for the engine, unless it takes too long or the client has disconnected."""
        answer = asyncio.wrap_future(job.answer)
        left = asyncio.ensure_future(request.receive())
        try:
            both: set[asyncio.Future[Any]] = {answer, left}
            await asyncio.wait(both, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if left.done():
                raise Refused(LEFT, "the client has disconnected")
            raise Refused(504, f"timeout after {limits.seconds} seconds; send fewer images per request")
        except asyncio.CancelledError:
            raise Refused(503, "the server is shutting down; try again", {"retry-after": "2"}) from None
        finally:
            answer.cancel()
            left.cancel()

    @app.post("/v1/export", responses=_CALL, openapi_extra=body(ExportCall), summary="Export results")
    async def write(request: Request) -> Response:
        """Export entries of results as CSV, as JSON, or as XMP sidecars in a zip."""
        if media_type(request) != "application/json":
            raise Refused(415, "unsupported media type: send application/json")
        (asked,) = await apart(read_export, (await request.body(),))
        ((content, kind, name),) = await apart(export, (asked,))
        return Response(content, 200, {"content-disposition": f'attachment; filename="{name}"'}, kind)

    @app.get("/v1/models", summary="Models")
    async def models() -> dict[str, Any]:
        return {
            "models": [
                {"name": name, "default": place == 0, "image_size": backbone.preprocess.size}
                for place, (name, backbone) in enumerate(offer.models.items())
            ]
        }

    @app.get("/v1/methods", summary="List methods and their settings")
    async def methods() -> dict[str, Any]:
        return {
            "methods": [
                {
                    "name": name,
                    "default": place == 0,
                    "summary": cls.summary,
                    "where": cls.where is not Method.where,
                    "online": cls.online,
                    "settings": allowed_settings(cls),
                }
                for place, (name, cls) in enumerate(offer.methods.items())
            ]
        }

    @app.get("/v1/labels", summary="List label sets and request limits")
    async def labels() -> dict[str, Any]:
        return {
            "default": offer.default_labels,
            "languages": {"en": "English", **LANGUAGES},
            "sets": [{"name": name, "count": len(own)} for name, own in offer.sets.items()],
            "limits": asdict(limits),
            "urls": allow_urls,
        }

    @app.get(
        "/v1/labels/{name}", responses=_errors(404), summary="List the labels of a set, and their synonyms"
    )
    async def label_set(name: str, language: str | None = None) -> dict[str, Any]:
        if name not in offer.sets:
            raise Refused(404, f"unknown label set {name[:80]!r}; available: {', '.join(offer.sets)}")
        own = in_language(offer.sets[name], language)
        synonyms = dict(zip(own.display, own.synonyms, strict=True))
        return {"name": name, "labels": list(synonyms), "synonyms": synonyms}

    @app.get("/health", summary="Liveness check")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", responses=_errors(503), summary="Readiness check")
    async def ready() -> dict[str, bool]:
        if not engine.alive:
            raise Refused(503, "the server is shutting down", {"retry-after": "2"})
        return {"ready": True}

    @app.get("/metrics", response_class=Response, summary="Prometheus metrics")
    async def figures() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    @app.get("/page/{name}", include_in_schema=False)
    async def page(name: str = "index.html") -> FileResponse:
        for file in PAGE.iterdir():  # only names listed in the folder, to prevent path traversal
            if file.name == name and file.suffix in _KINDS:
                return FileResponse(file, media_type=_KINDS[file.suffix])
        raise Refused(404, "no such page")

    return app


def _speak_plainly(app: FastAPI) -> None:
    """Return every error as a JSON sentence, and add request bodies that are parsed manually to the schema."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return await refusal(error, request.scope["mltta.body"])

    @app.exception_handler(MlttaError)
    async def wrong(_: Request, error: MlttaError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        said = {404: "no such route; see /openapi.json", 405: "method not allowed"}
        message = said.get(error.status_code, str(error.detail))
        return JSONResponse({"error": message}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "internal server error; see the server log"}, 500)

    make = app.openapi

    def openapi() -> dict[str, Any]:
        found = make()
        found["components"]["schemas"] |= SCHEMAS
        return found

    app.openapi = openapi  # type: ignore[method-assign]
