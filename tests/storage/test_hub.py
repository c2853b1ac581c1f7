"""Caption bases fetched from a hub and sent to one, over real HTTP: a small server that speaks the hub's protocol."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from mltta import CaptionBase
from mltta.model.learned_prompts import load_prompts, save_prompts
from tests.model.prompted import coop

COMMIT, TOKEN = "a" * 40, "hf_right"
TEXTS = ["A dog on a sofa.", "Two cats.", "A red bus."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A caption base as it lies on the hub, beside a file that nobody should fetch."""
    folder = tmp_path_factory.mktemp("base")
    CaptionBase(TEXTS, torch.eye(3), "0" * 32, "tiny").save(folder)
    (folder / "code.py").write_text("raise SystemExit('run')")
    return folder


class Hub(ThreadingHTTPServer):
    """Serves one repository, org/captions; anything else is unknown. With the right token org/new may be written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.asked: list[str] = []
        self.received: dict[str, bytes] = {}


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
        self.server.asked.append(f"{self.command} {path}")
        files = sorted(file.name for file in self.server.folder.iterdir())
        if path.startswith("/api/models/org/captions/tree/"):
            sizes = [(self.server.folder / name).stat().st_size for name in files]
            tree = [
                {"type": "file", "path": n, "size": s, "oid": "0" * 40}
                for n, s in zip(files, sizes, strict=True)
            ]
            self.reply(200, json.dumps(tree).encode(), Content_Type="application/json")
        elif path.startswith("/api/models/org/captions"):
            info = {"id": "org/captions", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            self.reply(200, json.dumps(info).encode(), Content_Type="application/json")
        elif path.startswith("/org/captions/resolve/") and path.rpartition("/")[2] in files:
            body = (self.server.folder / path.rpartition("/")[2]).read_bytes()
            tag = hashlib.sha1(body).hexdigest()
            self.reply(200, body, ETag=f'"{tag}"', X_Repo_Commit=COMMIT)
        else:
            self.reply(404, b"{}", X_Error_Code="RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.server.asked.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.reply(401, b'{"error": "Invalid username or password."}', Content_Type="application/json")
            return
        answer: dict[str, object] = {}
        if self.path == "/api/repos/create":
            answer = {"url": "https://huggingface.co/org/new", "name": "org/new", "id": "0"}
        elif "/preupload/" in self.path:
            files = [file["path"] for file in json.loads(body)["files"]]
            answer = {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in files]}
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    self.server.received[value["path"]] = base64.b64decode(value["content"])
            answer = {"commitUrl": f"https://huggingface.co/org/new/commit/{COMMIT}", "commitOid": COMMIT}
        self.reply(200, json.dumps(answer).encode(), Content_Type="application/json")


@pytest.fixture
def hub(folder) -> Iterator[Hub]:
    server = Hub(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SCRIPT = """
import sys, time
from mltta.errors import HubError
from mltta.storage.hub import pull, push
start = time.monotonic()
for what in (lambda: pull("hf-hub:org/captions"), lambda: pull("org/unknown"), lambda: push(sys.argv[1], "org/new")):
    try:
        print(what())
    except HubError as error:
        print(error)
print(time.monotonic() - start)
"""


def run(folder: Path, hub: Hub, home: Path, script: str = SCRIPT, **extra: str) -> list[str]:
    """Pull what is there, pull what is not and push, in a process of its own: the client reads its address once."""
    own = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(home),
        "NO_PROXY": "*",
        **extra,
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, env=kept | own, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_base_is_fetched_once_nothing_but_data_and_every_failure_is_one_clear_line(folder, hub, tmp_path):
    fetched, unknown, sent, _ = run(folder, hub, tmp_path)
    names = sorted(file.name for file in Path(fetched).iterdir())
    assert names == ["config.json", "embeddings.safetensors", "texts.txt"]
    assert CaptionBase.load(fetched).texts == TEXTS
    assert any(asked.startswith("GET /org/captions/resolve/") for asked in hub.asked)
    assert not any("code.py" in asked for asked in hub.asked)
    assert unknown.startswith("org/unknown could not be downloaded from the Hugging Face Hub: ")
    assert sent == (
        f"{folder} was not uploaded: you have no permission to write to org/new. Log in with "
        "`hf auth login` and a token with write access."
    )
    hub.shutdown()
    hub.server_close()
    again, unknown, sent, seconds = run(folder, hub, tmp_path)
    assert again == fetched  # from the cache
    assert "org/unknown is not cached and the Hugging Face Hub cannot be reached" in unknown
    assert sent.endswith("was not uploaded: the Hugging Face Hub cannot be reached. Try again later.")
    assert float(seconds) < 10


SEND = """
import sys, torch
from pathlib import Path
from mltta.storage.hub import push
from mltta.model.learned_prompts import CoOp, push_prompts
print(push(sys.argv[1], "org/new"))
print(push_prompts(CoOp({"ctx": torch.ones(4, 8)}, {"model": "tiny"}), "org/new"))
"""


def test_what_is_sent_arrives_whole_and_without_programs(folder, hub, tmp_path):
    sent = run(folder, hub, tmp_path, SEND, HF_TOKEN=TOKEN)
    assert [line.partition("/org/")[2] for line in sent] == ["new", "new"]
    prompts = hub.received.pop("prompts.safetensors")
    assert hub.received == {
        name: (folder / name).read_bytes() for name in ("config.json", "embeddings.safetensors", "texts.txt")
    }
    (tmp_path / "back.safetensors").write_bytes(prompts)
    back = load_prompts(tmp_path / "back.safetensors")
    assert torch.equal(back.context, torch.ones(4, 8))
    assert back.about == {"model": "tiny"}


PULL = """
import sys
from mltta.errors import WeightsError
from mltta.model.learned_prompts import load_prompts
try:
    print(load_prompts("hf-hub:org/captions").title)
except WeightsError as error:
    print(error)
"""


def test_prompts_are_read_from_the_hub(tmp_path):
    own = tmp_path / "repository"
    own.mkdir()
    save_prompts(coop(torch.ones(4, 8)), own / "prompts.safetensors")
    for number, said in (
        (1, "CoOp"),
        (2, "hf-hub:org/captions has 2 safetensors files; expected a repository"),
    ):
        server = Hub(own)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (line,) = run(own, server, tmp_path / str(number), PULL)
        assert line.startswith(said)
        server.shutdown()
        server.server_close()
        save_prompts(coop(torch.ones(4, 8)), own / "more.safetensors")
