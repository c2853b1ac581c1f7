"""Claims about the engine that asks a chat endpoint, made to a server that really misbehaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from email.utils import formatdate

import pytest

from mltta.captions.generate.build import generate_captions
from mltta.captions.generate.endpoint import OpenAIEngine, wait_asked_for
from mltta.captions.generate.sampling import Sampler
from mltta.captions.read import read_texts
from mltta.errors import EngineError
from mltta.labels import LabelSet
from tests.captions.generate.endpoints import endpoint

VOC = LabelSet.load("voc")


def engine(url: str, **changed) -> OpenAIEngine:
    return OpenAIEngine(
        "tiny", url, **{"pause": 0.01, "timeout": 5, "retries": 2, "concurrency": 4, **changed}
    )


def requests(count: int):
    return [Sampler(VOC)(n) for n in range(count)]


def hang(i, handler) -> bool:
    handler.server.released.wait(10)
    return True


def drip(i, handler) -> bool:
    """A header, then a byte now and then: no single wait is long, the whole never ends."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.released.wait(0.05):
        handler.wfile.write(b" ")
    return True


def drop(i, handler) -> bool:
    handler.connection.close()
    return True


def half(i, handler) -> bool:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "500")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"message": {"content": "A dog')
    return True


BROKEN = {
    "html": lambda i, h: h.send(200, b"<html><body>Welcome to the login page</body></html>"),
    "no choices": lambda i, h: h.send(200, b'{"object": "list", "choices": []}'),
    "not an object": lambda i, h: h.send(200, b"[1, 2]"),
    "wrong content": lambda i, h: h.send(200, b'{"choices": [{"message": {"content": 7}}]}'),
    "deep": lambda i, h: h.send(200, b"[" * 200_000),
    "500": lambda i, h: h.send(500, b'{"error": {"message": "out of memory"}}'),
    "429": lambda i, h: h.send(429, b"slow down", Retry_After="0"),
    "dropped": drop,
    "half": half,
    "hangs": hang,
    "drips": drip,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_passing_failure_is_tried_again_and_nothing_is_lost(kind: str) -> None:
    with endpoint(lambda i, h: i % 3 == 0 and BROKEN[kind](i, h)) as server:
        server.released = threading.Event()
        patient = engine(server.url, timeout=0.3 if kind in ("hangs", "drips") else 5, retries=20)
        answers = list(patient.answers(requests(12)))
        server.released.set()
    assert sorted(answer.n for answer in answers) == list(range(12))
    assert all((a.prompt_tokens, a.answer_tokens) == (30, 9) for a in answers)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("html", "not a chat completion: Welcome to the login page"),
        ("no choices", "not a chat completion"),
        ("500", "HTTP 500 out of memory"),
        ("429", "HTTP 429 slow down"),
        ("dropped", "closed connection"),
        ("hangs", "no answer within 0.3 s"),
    ],
)
def test_a_lasting_failure_ends_with_the_endpoint_the_reason_and_all_answers_received(
    kind, said, tmp_path
) -> None:
    out = tmp_path / "captions.jsonl"
    with endpoint(lambda i, h: i >= 5 and BROKEN[kind](i, h)) as server:
        server.released = threading.Event()
        short = engine(server.url, timeout=0.3 if kind == "hangs" else 5, concurrency=2)
        with pytest.raises(EngineError) as raised:
            generate_captions(VOC, short, out, 20)
        server.released.set()
        url = server.url
        assert len(server.bodies) <= 5 + 2 * 3  # two at once, each tried three times
    message = str(raised.value)
    assert f"{url}/chat/completions failed 3 times in a row" in message
    assert said in message
    assert f"5 answers are saved in {out}; rerun the command to continue" in message
    assert len(read_texts(out)) == 5
    with endpoint() as server:
        done = generate_captions(VOC, engine(server.url), out, 20)
        assert len(server.bodies) == done.new == 15
    with endpoint() as server:
        whole = generate_captions(VOC, engine(server.url), tmp_path / "whole.jsonl", 20)
    assert done.entries == whole.entries
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_answers_under_way_are_waited_for_when_another_one_fails() -> None:
    def behave(i, handler) -> bool:
        if i == 0:
            return handler.send(401, b'{"error": {"message": "no such key"}}')
        time.sleep(0.3)
        return False

    received = []
    with endpoint(behave) as server:
        answers = engine(server.url).answers(requests(40))
        with pytest.raises(EngineError, match="HTTP 401 no such key; set OPENAI_API_KEY"):
            received.extend(answers)
        assert len(received) == len(server.bodies) - 1 == 3


def test_retry_after_is_honoured_as_seconds_and_as_a_date() -> None:
    with endpoint(lambda i, h: i == 0 and h.send(429, b"", Retry_After="0.4")) as server:
        start = time.monotonic()
        assert len(list(engine(server.url).answers(requests(1)))) == 1
        assert 0.4 <= time.monotonic() - start < 3
    assert 8 < (wait_asked_for(formatdate(time.time() + 10, usegmt=True)) or 0) <= 10
    assert wait_asked_for("soon") is None


def test_an_endpoint_that_asks_for_hours_is_given_up_at_once() -> None:
    with endpoint(lambda i, h: h.send(429, b"quota used up", Retry_After="7200")) as server:
        with pytest.raises(EngineError, match="HTTP 429 quota used up"):
            list(engine(server.url).answers(requests(1)))
        assert len(server.bodies) == 1


def test_parameters_that_an_endpoint_refuses_are_left_out() -> None:
    def behave(i, handler) -> bool:
        body = handler.server.bodies[i]
        refused = next((name for name in ("max_tokens", "temperature") if name in body), None)
        reason = {"error": {"message": f"Unsupported parameter: '{refused}'"}}
        return refused is not None and handler.send(400, json.dumps(reason).encode())

    with endpoint(behave) as server:
        assert len(list(engine(server.url, concurrency=1).answers(requests(5)))) == 5
        assert len(server.bodies) == 7
        assert server.bodies[-1].keys() == {"model", "messages", "seed"}


def test_what_is_sent_is_the_papers_prompt_with_the_key_and_a_seed_of_the_request() -> None:
    with endpoint() as server:
        list(engine(server.url, key=" secret\n", concurrency=1).answers(requests(2)))
    assert server.headers_seen[0]["Authorization"] == "Bearer secret"
    first, second = server.bodies
    assert first["messages"] == [
        {
            "role": "user",
            "content": "Make a sentence to describe a photo. Requirements: Each sentence should be less than 15 words "
            "and include keywords: cat, bottle, dog",
        }
    ]
    assert first["seed"] != second["seed"]


def test_a_key_is_not_carried_to_another_address() -> None:
    with endpoint() as other, endpoint(lambda i, h: h.send(302, b"", Location=other.url)) as server:
        with pytest.raises(EngineError, match="HTTP 302"):
            list(engine(server.url, key="secret").answers(requests(1)))
        assert not other.bodies


def test_nothing_but_http_is_asked() -> None:
    with pytest.raises(EngineError, match="file:///etc is not a URL"):
        OpenAIEngine("m", "file:///etc")


def test_an_empty_answer_of_a_filter_is_an_answer() -> None:
    with endpoint(lambda i, h: h.send(200, b'{"choices": [{"message": {"content": null}}]}')) as server:
        assert [a.text for a in engine(server.url).answers(requests(1))] == [""]


# The command, deaf to nothing: under nohup, or behind a shell's &, a process starts with SIGINT ignored.
COMMAND = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("mltta", run_name="__main__")
"""


def test_ctrl_c_keeps_what_is_under_way_and_the_same_command_goes_on(tmp_path) -> None:
    def slow(i, handler) -> bool:
        if i == 6:
            handler.server.reached.set()
        time.sleep(0.5 if i >= 4 else 0)
        return False

    out = tmp_path / "captions.jsonl"
    with endpoint(slow) as server:
        server.reached = threading.Event()
        command = [sys.executable, "-c", COMMAND, "captions", "generate", "--labels", "voc", "--count", "30"]
        command += ["--engine", "openai", "--base-url", server.url, "--model", "tiny", "--concurrency", "3"]
        process = subprocess.Popen(
            [*command, "--out", out], stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}
        )
        assert server.reached.wait(30)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[1].decode()
        assert process.returncode == 130, said
        assert "Rerun the command to continue" in said
        assert len(read_texts(out)) == len(server.bodies)  # what was asked for has been written down
    with endpoint() as server:
        done = generate_captions(VOC, OpenAIEngine("tiny", server.url), out, 30)
        whole = generate_captions(VOC, OpenAIEngine("tiny", server.url), tmp_path / "whole.jsonl", 30)
    assert 0 < done.new < 30
    assert done.entries == whole.entries
