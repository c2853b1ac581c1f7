"""Claims about a run: what is kept, what is on disk, and what an interruption changes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

import pytest

from mltta.captions.generate.build import generate_captions
from mltta.captions.generate.sampling import Answer, ComposerEngine, Cooccurrence, Request
from mltta.captions.nouns import NounFilter
from mltta.captions.read import read_texts
from mltta.captions.store import CaptionBase
from mltta.errors import CaptionError, ConfigError, EngineError
from mltta.labels import LabelSet
from tests.cli.test_cli import mltta

VOC = LabelSet.load("voc")
PETS = LabelSet.of("dog, cat, sofa")


class Fickle:
    """Answers by request alone, one in three unusably, in whatever order; stops after so many if told to."""

    def __init__(self, stop_after: int | None = None, order: int = 0) -> None:
        self.identity = {"engine": "fickle", "model": "one"}
        self.left, self.order, self.asked = stop_after, random.Random(order), []

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        for request in self.order.sample(requests, len(requests)):
            if self.left == 0:
                raise EngineError("the engine is gone")
            self.left = None if self.left is None else self.left - 1
            self.asked.append(request.n)
            kind = request.seed % 3
            # few different captions with few labels, so that some come twice
            text = f"A photo of {' and '.join(sorted(request.keywords)[:2])}." if kind else "Nothing at all."
            yield Answer(request.n, text, 10, 5)


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("stops", [(0,), (1,), (7, 20), (3, 1, 1, 30), (55,)])
def test_a_run_stopped_and_taken_up_again_ends_in_the_same_bytes(stops, tmp_path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    first = generate_captions(VOC, Fickle(), whole, 60, seed=3)
    asked = []
    for order, stop in enumerate(stops, start=1):
        engine = Fickle(stop, order)
        with pytest.raises(EngineError, match="answers are saved in"):
            generate_captions(VOC, engine, parts, 60, seed=3)
        asked += engine.asked
        with parts.open("ab") as file:  # a kill in the middle of a line
            file.write(b'{"n": 59, "keywords": ["do')
    engine = Fickle(order=99)
    done = generate_captions(VOC, engine, parts, 60, seed=3)
    asked += engine.asked
    assert whole.read_bytes() == parts.read_bytes()
    assert done.entries == first.entries
    assert len(done.captions) == 60
    assert sorted(asked) == list(range(len(done.entries)))  # nothing was asked twice
    assert done.new == len(engine.asked)
    assert done.tokens == (10 * done.new, 5 * done.new)


def test_more_captions_asked_for_later_are_the_same_as_at_once(tmp_path) -> None:
    for count in (5, 12, 31):
        generate_captions(VOC, Fickle(order=count), tmp_path / "grown.jsonl", count)
    generate_captions(VOC, Fickle(), tmp_path / "at_once.jsonl", 31)
    assert (tmp_path / "grown.jsonl").read_bytes() == (tmp_path / "at_once.jsonl").read_bytes()
    engine = Fickle()
    assert len(generate_captions(VOC, engine, tmp_path / "grown.jsonl", 10).captions) == 31
    assert not engine.asked


def test_kept_captions_are_different_and_the_last_request_made_them_enough(tmp_path) -> None:
    out = tmp_path / "captions.jsonl"
    done = generate_captions(PETS, Fickle(), out, 6, attempts=200)
    header, *answers = lines(out)
    kept = [answer["caption"] for answer in answers if answer["kept"]]
    assert header["labels"][0] == {"name": "dog", "text": "dog", "synonyms": []}
    assert (header["engine"], header["model"], header["seed"]) == ("fickle", "one", 0)
    assert kept == done.captions == read_texts(out)
    assert len(set(kept)) == len(kept) == 6  # all there are: three labels alone and three pairs
    assert answers[-1]["kept"]
    assert done.rejected["repeated"] > 0
    assert done.rejected["no label"] > 0
    assert answers[0].keys() >= {"n", "keywords", "caption", "kept"}


def test_attempts_bound_what_is_asked(tmp_path) -> None:
    engine = Fickle()
    done = generate_captions(PETS, engine, tmp_path / "c.jsonl", 50)  # only six can be had
    assert len(done.captions) == 6
    assert sorted(engine.asked) == list(range(200))
    assert len(done.entries) == 200
    with pytest.raises(ConfigError, match="at least one attempt per caption"):
        generate_captions(PETS, engine, tmp_path / "d.jsonl", 50, attempts=49)


def test_an_answer_is_on_disk_when_the_next_one_is_made(tmp_path) -> None:
    out = tmp_path / "c.jsonl"

    class Watching(Fickle):
        def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
            for seen, answer in enumerate(super().answers(requests)):
                assert len(lines(out)) == 1 + seen
                yield answer
            assert len(lines(out)) == 1 + len(requests)

    with pytest.raises(EngineError):
        generate_captions(VOC, Watching(9), out, 10)
    assert len(lines(out)) == 10


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 1}, r"another seed \(0, now 1\)"),
        ({"labels": PETS}, "another labels"),
        ({"labels": LabelSet.of({name: ["x"] for name in VOC.names})}, "another labels"),
        ({"model": "two"}, r"another model \('one', now 'two'\)"),
        ({"engine": "other"}, "another engine"),
        ({"cooccurrence": Cooccurrence.of_pairs(VOC, [("dog", "cat", 1)])}, "another sampling"),
    ],
)
def test_a_file_begun_otherwise_is_refused_and_left_alone(changed, said, tmp_path) -> None:
    out = tmp_path / "c.jsonl"
    generate_captions(VOC, Fickle(), out, 3)
    before = out.read_bytes()
    engine = Fickle()
    engine.identity = {**engine.identity, **{k: v for k, v in changed.items() if k in ("model", "engine")}}
    labels = changed.get("labels", VOC)
    more = {k: v for k, v in changed.items() if k in ("seed", "cooccurrence")}
    with pytest.raises(CaptionError, match=said):
        generate_captions(labels, engine, out, 5, **more)
    assert out.read_bytes() == before


def test_files_that_are_something_else_or_damaged_are_refused(tmp_path) -> None:
    other = tmp_path / "notes.jsonl"
    other.write_text("my notes\n")
    with pytest.raises(CaptionError, match="was not written by"):
        generate_captions(VOC, Fickle(), other, 3)
    assert other.read_text() == "my notes\n"
    out = tmp_path / "c.jsonl"
    generate_captions(VOC, Fickle(), out, 3)
    header, first, *rest = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join([header, first[:9] + b"\n", *rest]))
    with pytest.raises(CaptionError, match="line 2: not a valid answer"):
        generate_captions(VOC, Fickle(), out, 3)
    with pytest.raises(CaptionError, match="cannot be written"):
        generate_captions(VOC, Fickle(), tmp_path, 3)


def test_half_a_surrogate_pair_does_not_break_the_file(tmp_path) -> None:
    class Odd(Fickle):
        def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
            for request in requests:
                yield Answer(request.n, f"A dog \ud83d number {request.n}.")

    done = generate_captions(VOC, Odd(), tmp_path / "c.jsonl", 3)
    assert len(done.captions) == 3
    assert read_texts(tmp_path / "c.jsonl") == [f"A dog number {n}." for n in range(3)]


def test_composed_captions_name_their_keywords(tmp_path) -> None:
    done = generate_captions(VOC, ComposerEngine(VOC), tmp_path / "c.jsonl", 200)
    nouns = NounFilter(VOC)
    for entry in done.entries:
        named = {VOC.texts[i] for i in nouns(entry.caption)}
        assert named <= set(entry.keywords)
        assert len(named) >= min(3, len(entry.keywords)), entry


def test_the_command_writes_a_base_that_other_commands_take(tmp_path) -> None:
    out = tmp_path / "c.jsonl"
    command = ["captions", "generate", "--labels", "voc", "--engine", "composer", "--out", out]
    said = mltta(*command, "--count", "25").stdout
    assert "25 captions kept of 25 answers (100.0%), mentioning" in said
    assert "25 answers in" in said
    assert "10 answers in" in (again := mltta(*command, "--count", "35").stdout)
    assert "25 from earlier runs" in again
    assert "no further requests were needed" in mltta(*command, "--count", "35").stdout
    from mltta.model.load import load_backbone

    base = CaptionBase.from_file(out, load_backbone("mini", device="cpu"))
    assert base.texts == read_texts(out)


def test_the_command_says_what_is_missing(tmp_path) -> None:
    out = tmp_path / "c.jsonl"
    command = ["captions", "generate", "--out", out, "--labels"]
    assert "--engine openai needs --model" in mltta(*command, "voc", "--engine", "openai", check=2).stderr
    few = mltta(*command, "dog", "--engine", "composer", "--count", "900", "--attempts", "1000", check=1)
    assert "of 900 captions after 1,000 attempts: rerun with a larger --attempts to continue" in few.stderr
