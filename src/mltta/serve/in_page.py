"""The API of the web page inside a browser: the same taggers, without a server.

A browser runs ONNX graphs asynchronously, and Python cannot wait for it. A call that needs a graph stops with
`Pending`. The page runs what was asked for and makes the same call again.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mltta.errors import MlttaError
from mltta.model.load import load_backbone
from mltta.model.model_folder import find_weights
from mltta.model.onnx_backbone import IMAGE, TEXT
from mltta.serve.answers import export, image_answer
from mltta.serve.offer import Choice, Limits, Offer
from mltta.session.prepare import Photo
from mltta.storage.folders import MINI
from mltta.tagger import Tagger

METHODS = ("auto", "clip")


class Pending(Exception):
    """A graph has to be run first."""


class Graph:
    """Stands for a session of ONNX Runtime."""

    def __init__(self, name: str, page: Page):
        self._name, self._page = name, page

    def run(self, outputs: list[str], inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[Any]:
        """The output, if it is known; otherwise note what to run."""
        digest = hashlib.blake2b(f"{self._name} {outputs}".encode(), digest_size=16)
        for name, array in inputs.items():
            digest.update(f"{name} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        key = digest.hexdigest()
        if key not in self._page.known:
            self._page.asked[key] = (self._name, outputs[0], dict(inputs))
            raise Pending
        return [self._page.known[key]]


class Page:
    """Answers the calls of a page, and lists the graphs that have to be run first."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[str, str, dict[str, Any]]] = {}
        self.known: dict[str, Any] = {}
        self.folder, self.weights = str(MINI), find_weights(MINI).name
        backbone = load_backbone("mini", engine="onnx")
        backbone.__dict__.update(_image=Graph(IMAGE, self), _text=Graph(TEXT, self))
        self._offer = Offer({"mini": backbone}, METHODS, {}, Limits())
        self._taggers: dict[Choice, Tagger] = {}

    def answer(self, path: str, fields: str, names: Sequence[str] = (), files: Sequence[Any] = ()) -> str:
        """The answer of a route as JSON; empty if graphs have to be run first."""
        try:
            found = self._route(path, json.loads(fields), list(names), [bytes(one.to_py()) for one in files])
        except Pending:
            return ""
        except MlttaError as error:
            found = {"error": str(error)}
        self.known.clear()
        return json.dumps(found)

    def take(self) -> list[tuple[str, str, str, dict[str, Any]]]:
        """What to run: key, graph, output, inputs."""
        asked, self.asked = self.asked, {}
        return [(key, *one) for key, one in asked.items()]

    def give(self, key: str, values: Any, shape: Any) -> None:
        """The output of a graph that was asked for."""
        self.known[key] = np.frombuffer(values.to_py(), np.float32).reshape([int(n) for n in shape]).copy()

    def _route(
        self, path: str, asked: dict[str, Any], names: list[str], files: list[bytes]
    ) -> dict[str, Any]:
        if path == "export":
            content, kind, name = export(**asked)
            return {"content": base64.b64encode(content).decode(), "kind": kind, "name": name}
        if path != "tag":
            return self._offer.describe(path, asked.get("language")) or {"error": f"unknown: {path}"}
        wanted = {name: bool(asked.pop(name, False)) for name in ("all", "where", "captions")}
        choice = self._offer.choice(**asked, where=wanted["where"], captions=wanted["captions"])
        if choice not in self._taggers:
            settings = dict(choice.settings) | {"where": choice.where, "explain": choice.captions}
            settings["language"] = choice.language
            model = self._offer.models[choice.model]
            self._taggers = {choice: Tagger(model, choice.labels, choice.method, **settings)}
        photos = [Photo(i, name, file) for i, (name, file) in enumerate(zip(names, files, strict=True))]
        tagger = self._taggers[choice]
        images = [image_answer(tags, 0.0, **wanted) for tags in tagger.stream(photos)]
        return {"images": images, "notes": tagger.notes}
