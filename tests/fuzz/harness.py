"""Coverage-guided fuzzing of the readers with Atheris: bytes go in, and tags, data or one of our errors come out.

python -m tests.fuzz.harness --minutes 5           all targets in turn
python -m tests.fuzz.harness journals -runs=1000   one target, with options of libFuzzer
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

try:
    import atheris
except ImportError:  # no wheel for this system or this Python: the targets still run on single inputs
    atheris = None

with atheris.instrument_imports(include=["mltta"]) if atheris else contextlib.nullcontext():
    from mltta.captions.read import read_texts
    from mltta.errors import MlttaError
    from mltta.images.decode import image_size
    from mltta.labels import LabelSet
    from mltta.output.keywords.jpeg import XMP, Jpeg
    from mltta.output.keywords.xmp import Packet
    from mltta.output.tags_journal import FORMAT, TagsJournal
    from mltta.serve.bodies import fits, room_of
    from mltta.serve.calls import Refused, read_call, read_export
    from mltta.serve.offer import Limits
    from mltta.storage.checksums import sealed
    from mltta.storage.journal import sealed_line

#: more than any input that libFuzzer makes
LARGEST = 1 << 16
#: errors that say what is wrong with an input
EXPECTED = (MlttaError, Refused)
LIMITS = Limits(images=4, labels=20)
PLACE = Path(tempfile.mkdtemp(prefix="mltta-fuzz-"))


def _file(name: str, data: bytes) -> Path:
    file = PLACE / name
    file.write_bytes(data)
    return file


def images(data: bytes) -> None:
    wide, tall = image_size(data, "image")
    assert 0 < wide * tall <= 120_000_000


def labels(data: bytes) -> None:
    kind = ("txt", "csv", "json")[data[0] % 3] if data else "txt"
    assert len(LabelSet.of(_file(f"labels.{kind}", data[1:])))


def captions(data: bytes) -> None:
    kind = ("txt", "csv", "json", "jsonl")[data[0] % 4] if data else "txt"
    read_texts(_file(f"captions.{kind}", data[1:]))


def prompts(data: bytes) -> None:
    from mltta.model.learned_prompts import load_prompts

    load_prompts(_file("prompts.safetensors", data))


def journals(data: bytes) -> None:
    """Each line becomes one with a valid checksum if it is JSON."""
    lines = [sealed_line({"format": FORMAT, "settings": {"labels": ["dog"]}})]
    for line in data.split(b"\n"):
        try:
            held = json.loads(line)
            lines.append(sealed_line(held) if isinstance(held, dict) else line + b"\n")
        except (ValueError, RecursionError):
            lines.append(line + b"\n")
    journal = TagsJournal(_file("journal", b"".join(lines)))
    for image in journal.kept:
        journal.record(image)
    journal.close()


def results(data: bytes) -> None:
    """A description of a run with a valid checksum, beside short files."""
    from mltta.evaluation.results import FORMAT as RESULT
    from mltta.evaluation.results import Result, check_run

    folder = PLACE / "result"
    folder.mkdir(exist_ok=True)
    head, _, rest = data.partition(b"\n")
    with contextlib.suppress(ValueError, RecursionError):
        held = json.loads(head)
        if isinstance(held, dict):
            head = json.dumps(sealed({**held, "format": RESULT})).encode()
    for name, content in (
        ("run.json", head),
        ("images.jsonl", rest),
        ("scores.f32", rest),
        ("targets.i8", rest),
    ):
        (folder / name).write_bytes(content)
    result = Result(folder)
    check_run(result.run, folder)
    assert len(result.scored) <= len(result)


def xmp(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        found = Jpeg.of(data).notes(XMP) if data[:2] == b"\xff\xd8" else data
        packet = Packet(found, "photo")
        Packet(packet.added({"subject": ["dog"], "hierarchy": [], "tags": []}, {"subject": ["dog"]}), "photo")


def requests(data: bytes) -> None:
    from starlette.requests import Request

    kind, _, body = data.partition(b"\n")
    if kind == b"export":
        read_export(body)
        return
    fits(body, *room_of(LIMITS))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", kind or b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
    asyncio.run(read_call(Request(scope, receive), LIMITS))  # type: ignore[arg-type]


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one for one in (images, labels, captions, prompts, journals, results, xmp, requests)
}


def attempt(name: str, data: bytes) -> None:
    """Run a target; anything but an expected error is raised."""
    with contextlib.suppress(*EXPECTED):
        TARGETS[name](data[:LARGEST])


def seeds(name: str) -> list[bytes]:
    """Inputs to start from: whole ones, so that mutations reach beyond the first check."""
    record = {"stamp": None, "image": "a", "present": ["dog"], "labels": [{"label": "dog", "score": 0.5}]}
    run = {
        "shape": [1, 2],
        "images": 2,
        "labels": ["a", "b"],
        "settings": {},
        "template": "x",
        "merge": "sum",
    }
    run |= dict.fromkeys(("method", "dataset", "dataset_digest", "model", "emits"), "logits")
    run |= dict.fromkeys(("teacher", "descriptions", "online", "config", "order", "seed"), None)
    call = {"images": [{"data": "AAAA", "name": "a"}], "labels": ["dog", "cat"], "settings": {"views": 8}}
    form = b"multipart/form-data; boundary=x\n--x\r\ncontent-disposition: form-data; name=images; filename=a\r\n\r\n"
    entry = {"image": "a", "present": ["dog"], "labels": [{"label": "dog", "score": 0.5}]}
    if name == "images":
        from tests.fuzz.targets import _pictures

        return _pictures()
    if name == "prompts":
        import torch
        from safetensors.torch import save

        return [save({"ctx": torch.ones(4, 8)}, {"mltta": '{"format": "mltta-prompts-1", "labels": ["a"]}'})]
    if name == "xmp":
        from PIL import Image

        packet = Packet(None, "photo").added(
            {"subject": ["dog"], "hierarchy": [], "tags": []}, {"subject": ["dog"]}
        )
        held = io.BytesIO()
        Image.new("RGB", (8, 8)).save(held, "JPEG", xmp=packet)
        return [packet, held.getvalue()]
    return {
        "labels": [
            b"\0dog | hound\n- cat # a pet\n",
            b"\1label,n\ndog,1\n",
            b'\2{"dog": ["hound"], "cat": []}',
        ],
        "captions": [
            b"\0A dog.\nA cat.\n",
            b"\1caption\nA dog.\n",
            b'\2{"annotations": [{"caption": "A dog."}]}',
            b'\3{"caption": "A dog."}\n',
        ],
        "journals": [
            json.dumps(record).encode(),
            b'{"stamp": [1, 2], "image": "a", "error": "x"}',
            b'{"written": 3, "of": "0000abcd", "as": ["csv", false], "file": "t.csv"}',
        ],
        "results": [json.dumps(run).encode() + b"\n\0\0\0\0"],
        "requests": [
            b"application/json\n" + json.dumps(call).encode(),
            b"export\n" + json.dumps({"format": "csv", "images": [entry]}).encode(),
            form + b"abc\r\n--x\r\ncontent-disposition: form-data; name=labels\r\n\r\ndog\r\n--x--\r\n",
        ],
    }[name]


def corpus(name: str, folder: Path) -> Path:
    """Write the seeds of a target into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (folder / f"seed-{number:02}").write_bytes(seed[:LARGEST])
    return folder


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in TARGETS:
        name = sys.argv[1]
        if atheris is None:
            sys.exit("atheris is not installed; tests/fuzz/test_slice.py runs the targets without it")
        start = corpus(name, PLACE / "corpus")
        atheris.Setup(
            [sys.argv[0], *sys.argv[2:], f"-max_len={LARGEST}", str(start)], lambda data: attempt(name, data)
        )
        atheris.Fuzz()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5)
    asked = parser.parse_args()
    if atheris is None:
        print("atheris is not installed: coverage-guided fuzzing is skipped")
        return
    failed = 0
    for name in TARGETS:
        seconds = max(1, round(60 * asked.minutes / len(TARGETS)))
        line = [sys.executable, "-m", "tests.fuzz.harness", name, f"-max_total_time={seconds}", "-timeout=10"]
        done = subprocess.run([*line, "-rss_limit_mb=2048"], capture_output=True)
        said = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        last = next((one for one in reversed(said) if one.startswith(("Done", "#"))), "")
        print(f"{name}: {'no crash' if done.returncode == 0 else 'CRASH'}; {last}", flush=True)
        if done.returncode:
            failed += 1
            print("\n".join(said[-40:]))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
