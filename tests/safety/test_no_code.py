"""No file runs code unless a caller says so: model folders, repositories, pickles."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from mltta.errors import WeightsError
from mltta.model.load import load_backbone
from mltta.model.weights import load
from tests.safety.world import config, model_folder, state

COMMIT = "c0ffee" + "0" * 34
TOKENIZER = """
from pathlib import Path
Path({marker!r}).write_text("it ran")
from transformers import PreTrainedTokenizer
class Own(PreTrainedTokenizer):
    pass
"""


def with_own_tokenizer(folder: Path, marker: Path, kwargs: dict) -> Path:
    """A model folder whose tokenizer brings Python that leaves a mark when it runs."""
    said = config()
    said["model_cfg"]["text_cfg"] |= {"hf_tokenizer_name": "org/model", "tokenizer_kwargs": kwargs}
    model_folder(folder, said)
    (folder / "own.py").write_text(TOKENIZER.format(marker=str(marker)))
    auto = {"auto_map": {"AutoTokenizer": ["own.Own", None]}, "tokenizer_class": "Own"}
    (folder / "tokenizer_config.json").write_text(json.dumps(auto))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return folder


def test_a_model_folder_cannot_ask_for_its_own_python(tmp_path):
    marker = tmp_path / "marker"
    folder = with_own_tokenizer(tmp_path / "model", marker, {"trust_remote_code": True})
    with pytest.raises(
        WeightsError, match=r"own Python code, which is not run by default.*--allow-remote-code"
    ):
        load_backbone(str(folder))
    assert not marker.exists()


def test_a_tokenizer_with_python_beside_it_is_read_without_it(tmp_path):
    marker = tmp_path / "marker"
    folder = with_own_tokenizer(tmp_path / "model", marker, {"clean": "whitespace"})
    with pytest.raises(WeightsError, match="could not be loaded as an open_clip model"):
        load_backbone(str(folder))
    assert not marker.exists()


def test_a_caller_who_says_so_gets_the_tokenizer_that_brings_python(tmp_path):
    marker = tmp_path / "marker"
    folder = with_own_tokenizer(tmp_path / "model", marker, {"trust_remote_code": True})
    with pytest.raises(WeightsError):  # it runs, and is no whole tokenizer
        load_backbone(str(folder), allow_remote_code=True)
    assert marker.read_text() == "it ran"


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("text_cfg", "hf_model_name", "org/other"),
        ("text_cfg", "hf_tokenizer_name", "../elsewhere"),
        ("text_cfg", "hf_tokenizer_name", "/etc"),
        ("text_cfg", "tokenizer_kwargs", {"bpe_path": "/etc/passwd"}),
        ("text_cfg", "tokenizer_kwargs", {"code_revision": "main"}),
        ("text_cfg", "tokenizer_kwargs", "trust_remote_code"),
        ("text_cfg", "act_kwargs", {"inplace": True}),
        ("text_cfg", "norm_kwargs", {"eps": float("inf")}),
        ("text_cfg", "vocab_size", 2_000_000_000),
        ("text_cfg", "layers", -1),
        ("vision_cfg", "timm_model_name", "hf-hub:org/model"),
        ("vision_cfg", "timm_model_name", "local-dir:/tmp"),
        ("vision_cfg", "width", True),
        ("vision_cfg", "unheard_of", 1),
    ],
)
def test_settings_that_are_more_than_data_are_refused_and_named(tmp_path, part, name, value):
    said = config()
    said["model_cfg"][part][name] = value
    with pytest.raises(WeightsError, match=r"open_clip_config\.json"):
        load(str(model_folder(tmp_path / "model", said)))


def test_settings_larger_than_the_weights_beside_them_take_no_memory(tmp_path):
    said = config()
    said["model_cfg"]["text_cfg"] |= {"width": 16384, "layers": 200, "heads": 256}
    with pytest.raises(WeightsError, match="do not belong together"):
        load(str(model_folder(tmp_path / "model", said)))


class Mark:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_pickled_weights_in_a_folder_are_not_opened_unless_they_are_named(tmp_path):
    folder = model_folder(tmp_path / "model")
    (folder / "open_clip_model.safetensors").unlink()
    weights = folder / "open_clip_pytorch_model.bin"
    weights.write_bytes(pickle.dumps(Mark(str(tmp_path / "marker"))))
    with pytest.raises(WeightsError, match="only pickled weights, which are not opened by default"):
        load(str(folder))
    with pytest.raises(WeightsError):
        load(str(folder), weights)  # named, it is still read as tensors only
    assert not (tmp_path / "marker").exists()
    torch.save(state(), weights)
    assert torch.equal(load(str(folder), weights).model.positional_embedding, state()["positional_embedding"])


class Hub(ThreadingHTTPServer):
    """Serves a folder as org/model, at any revision, all of them one commit."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        files = {file.name: file.read_bytes() for file in self.server.folder.iterdir() if file.is_file()}
        if path.startswith("/api/models/org/model/tree/"):
            tree = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in files.items()]
            self.reply(200, json.dumps(tree).encode(), Content_Type="application/json")
        elif path.startswith("/api/models/org/model"):
            info = {"id": "org/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            self.reply(200, json.dumps(info).encode(), Content_Type="application/json")
        elif path.startswith("/org/model/resolve/") and path.rpartition("/")[2] in files:
            body = files[path.rpartition("/")[2]]
            self.reply(200, body, ETag=f'"{hashlib.sha1(body).hexdigest()}"', X_Repo_Commit=COMMIT)
        else:
            self.reply(404, b"{}", X_Error_Code="RepoNotFound")

    do_HEAD = do_GET


@pytest.fixture
def hub(tmp_path) -> Iterator[Hub]:
    (tmp_path / "repository").mkdir()
    server = Hub(tmp_path / "repository")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SCRIPT = """
import sys
from mltta.errors import WeightsError
from mltta.model.weights import load
try:
    found = load(sys.argv[1])
    print(found.name, found.revision, float(found.model.logit_scale.exp()))
except WeightsError as error:
    print(error)
"""


def ask(hub: Hub, home: Path, name: str) -> str:
    """Load a model from the hub in a process of its own: the client reads its address once."""
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(home), "NO_PROXY": "*"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    command = [sys.executable, "-c", SCRIPT, name]
    done = subprocess.run(command, env=kept | own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_repository_is_pinned_to_a_commit_that_the_models_name_says(hub, tmp_path):
    model_folder(hub.folder)
    said = ask(hub, tmp_path / "home", "hf-hub:org/model@v2")
    assert said.startswith(f"hf-hub:org/model@{COMMIT[:12]} {COMMIT} ")
    assert "/api/models/org/model/revision/v2" in hub.asked
    resolved = [path for path in hub.asked if "/resolve/" in path]
    assert resolved
    assert all(f"/resolve/{COMMIT}/" in path for path in resolved)


def test_a_repository_that_asks_for_code_is_refused_before_anything_else_is_fetched(hub, tmp_path):
    marker = tmp_path / "marker"
    with_own_tokenizer(hub.folder, marker, {"trust_remote_code": True})
    said = ask(hub, tmp_path / "home", "hf-hub:org/model")
    assert "which is not run by default" in said
    assert not marker.exists()
    fetched = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert fetched == {"open_clip_config.json"}
