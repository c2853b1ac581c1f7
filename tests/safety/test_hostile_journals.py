"""Journals, manifests and plans whose checksums are right and whose content is not: one message with file and line."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mltta.distributed.plan import FORMAT as PLAN_FORMAT
from mltta.distributed.plan import PLAN, make_plan
from mltta.errors import MlttaError
from mltta.output.partitions import FORMAT as PARTITIONS
from mltta.output.partitions import MANIFEST, Partitions
from mltta.output.tags_file import Output
from mltta.output.tags_journal import FORMAT, TagsJournal
from mltta.storage import journal as journal_
from mltta.storage.checksums import sealed
from mltta.storage.folders import Folder
from mltta.storage.journal import sealed_line
from tests.fuzz.mutate import VALUES

HEAD = {"format": FORMAT, "settings": {"labels": ["dog", "cat"], "synonyms": ["", ""], "mltta": "0.3.0"}}
LABELS = [{"label": "dog", "score": 0.5}]
RECORD = {"stamp": [5, 6], "image": "a.jpg", "present": ["dog"], "labels": LABELS, "thumbnail": "AAAA"}
FAILED = {"stamp": None, "image": "b.jpg", "error": "b.jpg: damaged"}
SEAL = {"written": 3, "of": "0000abcd", "as": ["csv", False], "file": "tags.csv"}

WRONG = {
    "a script as thumbnail": RECORD | {"thumbnail": "</script><script>alert(1)</script>"},
    "a script as heat map": RECORD | {"where": {"dog": "</script>"}},
    "labels that are no list": RECORD | {"labels": 5},
    "labels without scores": RECORD | {"labels": [{"label": "dog"}]},
    "a score that is a text": RECORD | {"labels": [{"label": "dog", "score": "high"}]},
    "a score that is not finite": RECORD | {"labels": [{"label": "dog", "score": float("nan")}]},
    "a label of no list": RECORD | {"present": ["fox"], "labels": [{"label": "fox", "score": 0.5}]},
    "a label shown without score": RECORD | {"present": ["cat"]},
    "no labels": {"stamp": None, "image": "a.jpg"},
    "no stamp": {"image": "a.jpg", "error": "x"},
    "an image that is a list": RECORD | {"image": []},
    "an image that is a number": RECORD | {"image": 5},
    "an error that is an object": FAILED | {"error": {}},
    "a stamp that is a text": RECORD | {"stamp": "now"},
    "a checksum that is no number": SEAL | {"of": "zz"},
    "a file that is a list": SEAL | {"file": []},
    "a format that is a number": SEAL | {"as": 7},
    "a size that is a text": SEAL | {"written": "3"},
    "something else": {"x": 1},
}
HEADS = {
    "settings that are a list": HEAD | {"settings": []},
    "labels that are a number": HEAD | {"settings": {"labels": 5}},
    "another format with settings that are a text": HEAD | {"format": "x", "settings": "y"},
}


def used(path: Path) -> None:
    """Everything that is done with a journal: read it, write each format from it, add to it, read it again."""
    for _ in range(2):
        with Output({path / f"tags.{format}": format for format in ("csv", "html", "json")}) as output:
            kept = output.journal.kept
            output.begin(output.journal.settings or HEAD["settings"], ["dog", "cat"])
            output.grow(list(kept))
            output.add({"image": "new.jpg", "error": "gone"}, None)
            output.finish([*kept, "new.jpg"])


def written(path: Path, lines: list[dict]) -> Path:
    journal = path / ".tags.csv.mltta"
    journal.write_bytes(b"".join(map(sealed_line, lines)))
    return journal


@pytest.mark.parametrize("what", WRONG)
def test_a_record_with_a_valid_checksum_and_wrong_content_is_named(tmp_path, what):
    journal = written(tmp_path, [HEAD, RECORD, WRONG[what]])
    with pytest.raises(MlttaError, match=r"line 3: is intact, but not from") as caught:
        used(tmp_path)
    assert str(journal) in str(caught.value)
    assert not (tmp_path / "tags.html").exists()


@pytest.mark.parametrize("what", HEADS)
def test_a_head_with_wrong_content_is_named(tmp_path, what):
    written(tmp_path, [HEADS[what], RECORD])
    with pytest.raises(MlttaError, match="line 1: is intact, but not from"):
        used(tmp_path)


def test_what_is_written_is_read_again(tmp_path):
    written(tmp_path, [HEAD, RECORD, FAILED, RECORD | {"where": {"dog": "AA=="}, "note": None}])
    used(tmp_path)
    page = (tmp_path / "tags.html").read_text()
    assert "AAAA" in page
    assert '"AA=="' in page


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_, "MOST_LINE", 1000)
    journal = written(tmp_path, [HEAD, RECORD | {"image": "x" * 2000}])
    with pytest.raises(MlttaError, match=r"\.mltta: a line has more than 1,000 bytes"):
        TagsJournal(journal)


def spoiled(held: dict, chance: random.Random) -> dict:
    """A copy with other values somewhere."""
    held = copy.deepcopy(held)
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = held
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(place[key], (dict, list)) and chance.random() < 0.6:
                place = place[key]
                continue
            if chance.random() < 0.2:
                del place[key]
            else:
                place[key] = chance.choice(VALUES)
            break
    return held


def journals(count: int, path: Path) -> tuple[int, int]:
    """How many spoiled journals were read and how many were refused; anything else is raised."""
    read = refused = 0
    for seed in range(count):
        chance = random.Random(seed)
        lines = [HEAD, RECORD, FAILED, SEAL, RECORD | {"image": "c.jpg"}]
        place = chance.randrange(len(lines))
        lines[place] = spoiled(lines[place], chance)
        folder = path / str(seed)
        folder.mkdir()
        written(folder, lines)
        try:
            used(folder)
            read += 1
        except MlttaError:
            refused += 1
        assert "<script>alert" not in "".join(page.read_text() for page in folder.glob("*.html"))
    return read, refused


def test_spoiled_journals_with_valid_checksums_are_read_or_refused(tmp_path):
    read, refused = journals(40, tmp_path)
    assert refused > 20
    assert read > 1


@pytest.mark.soak
def test_five_hundred_spoiled_journals_with_valid_checksums_are_read_or_refused(tmp_path):
    assert sum(journals(500, tmp_path)) == 500


MANIFEST_HELD = {
    "format": PARTITIONS,
    "shards": 1,
    "settings": {"labels": ["dog"]},
    "parts": [
        {"shard": 0, "size": 3, "crc32": "0000abcd", "images": 1, "failed": 0, "threads": 1, "seconds": 0.5}
    ],
}
PLAN_HELD = {
    "format": PLAN_FORMAT,
    "sources": ["photos"],
    "shard size": None,
    "skipped": "",
    "shards": [{"number": 0, "kind": "names", "base": "", "of": "", "start": 0, "count": 1, "crc32": "0"}],
}


@pytest.mark.parametrize("seed", range(3))
def test_spoiled_manifests_and_plans_are_read_or_refused(tmp_path, seed):
    chance = random.Random(seed)
    refused = 0
    for _ in range(40):
        (tmp_path / MANIFEST).write_text(json.dumps(sealed(spoiled(MANIFEST_HELD, chance))))
        (tmp_path / PLAN).write_text(json.dumps(sealed(spoiled(PLAN_HELD, chance))))
        for use in (
            lambda: list(Partitions(str(tmp_path)).records()),
            lambda: make_plan(["photos"], Folder(str(tmp_path))),
        ):
            try:
                use()
            except MlttaError:
                refused += 1
    assert refused > 60


class Kept(RuleBasedStateMachine):
    """A journal, beside a plain dict of what it has to remember."""

    @initialize(folder=st.uuids())
    def start(self, folder):
        self.path = HOME / f"{folder}.mltta"
        self.journal = TagsJournal(self.path)
        self.journal.begin(HEAD["settings"])
        #: bytes of the journal, and what it remembers, after each line
        self.ends = [(self.path.stat().st_size, {})]

    @rule(image=st.sampled_from("abcd"), score=st.integers(0, 9), failed=st.booleans())
    def add(self, image, score, failed):
        record = {"image": image, "present": [], "labels": [{"label": "dog", "score": score / 10}]}
        record = {"image": image, "error": f"failed {score}"} if failed else record
        self.journal.add(record, [score, 0])
        self.ends.append((self.path.stat().st_size, self.ends[-1][1] | {image: (record, [score, 0])}))

    @rule(cut=st.integers(0, 200))
    def kill(self, cut):
        """The process is killed, and the last bytes are lost."""
        self.journal.close()
        size = max(self.ends[0][0], self.path.stat().st_size - cut)
        with self.path.open("rb+") as file:
            file.truncate(size)
        self.ends = [(end, held) for end, held in self.ends if end <= size]
        self.journal = TagsJournal(self.path)

    @invariant()
    def remembers(self):
        if not hasattr(self, "journal"):
            return
        held = self.ends[-1][1]
        assert self.journal.settings == HEAD["settings"]
        assert set(self.journal.kept) == set(held)
        for image, (record, stamp) in held.items():
            assert self.journal.record(image) == record
            assert self.journal.kept[image].stamp == stamp
            assert self.journal.kept[image].failed == ("error" in record)

    def teardown(self):
        if hasattr(self, "journal"):
            self.journal.close()


@pytest.fixture(autouse=True)
def _home(tmp_path_factory):
    global HOME
    HOME = tmp_path_factory.mktemp("journals")


Kept.TestCase.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
TestAJournalRemembersWhatWasAddedThroughKills = Kept.TestCase
