"""Python client for the API."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from mltta.errors import MlttaError

Image = str | Path | bytes


class ServerError(MlttaError):
    """An error response from the server, or no response."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        #: HTTP status; None without a response
        self.status = status


class Client:
    """Tags images with a server.

    >>> with Client("http://127.0.0.1:8000") as client:                  # doctest: +SKIP
    ...     client.tag(["photo.jpg"], labels=["dog", "cat"])[0]["present"]
    ['dog']

    Requests to a server that is full or restarting are retried, which is safe because tagging changes nothing.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        retries: int = 8,
        timeout: float = 180.0,
    ):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)
        self._retries = retries

    def tag(
        self,
        images: Sequence[Image],
        labels: Sequence[str] | str | None = None,
        *,
        model: str | None = None,
        method: str | None = None,
        settings: Mapping[str, Any] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
        keywords_from: float | None = None,
        language: str | None = None,
        all: bool = False,
        where: bool = False,
        captions: bool = False,
    ) -> list[dict[str, Any]]:
        """Tag images: one entry per image, in order, as from `POST /v1/tag`; unreadable images have an "error"."""
        given = {
            "labels": labels if labels is None or isinstance(labels, str) else "\n".join(labels),
            "model": model,
            "method": method,
            "settings": json.dumps(dict(settings)) if settings else None,
            "top_k": top_k,
            "threshold": threshold,
            "keywords_from": keywords_from,
            "language": language,
            **{name: "true" for name, on in (("all", all), ("where", where), ("captions", captions)) if on},
        }
        data = {name: str(value) for name, value in given.items() if value is not None}
        files = [("images", _file(place, image)) for place, image in enumerate(images, start=1)]
        answer = self._ask("POST", "/v1/tag", data=data, files=files)
        return list(answer.json()["images"])

    def models(self) -> list[dict[str, Any]]:
        """List the server's models."""
        return self._list("/v1/models", "models")

    def methods(self) -> list[dict[str, Any]]:
        """List the server's methods and their settings."""
        return self._list("/v1/methods", "methods")

    def labels(self, name: str | None = None) -> list[str]:
        """List the server's label sets, or the labels of one."""
        if name is None:
            return [one["name"] for one in self._list("/v1/labels", "sets")]
        return self._list(f"/v1/labels/{name}", "labels")

    def ready(self) -> bool:
        """Whether the server accepts requests."""
        try:
            return self._http.get("/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _list(self, path: str, part: str) -> list[Any]:
        return list(self._ask("GET", path).json()[part])

    def _ask(self, verb: str, path: str, **content: Any) -> httpx.Response:
        for number in range(max(0, self._retries) + 1):
            # exponential backoff with jitter
            pause = min(8.0, 0.25 * 2**number) * random.uniform(0.5, 1.0)
            try:
                answer = self._http.request(verb, path, **content)
            except httpx.TransportError as error:
                last = ServerError(f"{self._http.base_url}: no response: {error or type(error).__name__}")
            else:
                if answer.is_success:
                    return answer
                last = ServerError(_said(answer), answer.status_code)
                if answer.status_code not in (429, 503):
                    raise last
                said = answer.headers.get("retry-after", "")
                pause = max(pause, min(30.0, float(said)) if said.isdecimal() else 0.0)
            if number < self._retries:
                time.sleep(pause)
        raise last


def _said(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}"


def _file(place: int, image: Image) -> tuple[str, bytes]:
    if isinstance(image, bytes):
        return f"image {place}", image
    path = Path(image)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise MlttaError(f"{path}: cannot be read: {error.strerror}") from None
