"""Photos decoded while libraries load: the same tags and errors, no more memory than is allowed, no thread left."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from mltta.cli import inputs
from mltta.cli.inputs import Early, Piped, loading
from mltta.errors import ConfigError
from mltta.images.decode import load_image
from tests.cli.test_cli import MODEL, mltta
from tests.images.test_colour import ADOBE, matrix_profile
from tests.safety.world import photo

CLIP = ["--labels", "dog, cat", *MODEL, "--method", "clip", "--threshold", "0", "-f", "jsonl"]


@pytest.fixture
def photos(tmp_path):
    """Good, rotated, large, with a profile that is not of its pixels, damaged, empty and misnamed files."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(3):
        photo(seed).save(folder / f"good{seed}.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(4, (300, 200)).save(folder / "rotated.jpg", exif=exif)
    photo(5, (4000, 3000)).save(folder / "large.jpg")
    photo(6).convert("L").save(folder / "grey.png", icc_profile=matrix_profile(ADOBE, 2.2))
    photo(7, (300, 200)).save(folder / "truncated.jpg")
    whole = (folder / "truncated.jpg").read_bytes()
    (folder / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.png").touch()
    (folder / "text.jpg").write_text("no image")
    return folder


@pytest.fixture
def slowly(monkeypatch):
    """The loading lasts until all is decoded that will be; what was decoded then."""
    kept: list[Early] = []
    leave = Early.__exit__

    def patient(self, *args):
        for thread in self._threads:
            thread.join()
        kept.append(self)
        self.decoded = sorted(Path(file).name for file in self._ready)
        leave(self, *args)

    monkeypatch.setattr(Early, "__exit__", patient)
    return kept


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mltta-early")]


def filled(files, *args, **options) -> Early:
    """What is decoded of files where there is time enough."""
    early = Early(files, *args, **options)
    with early:
        for thread in early._threads:
            thread.join()
    return early


def test_tags_and_errors_are_those_of_a_run_that_decodes_nothing_early(photos, tmp_path, slowly, monkeypatch):
    args = [photos, photos / "gone.png", *CLIP]
    with_ = mltta("tag", *args, check=1)
    good = ["good0.png", "good1.png", "good2.png", "grey.png", "large.jpg", "rotated.jpg"]
    assert slowly[0].decoded == good
    assert not slowly[0]._ready, "each was taken, and is kept no longer"
    monkeypatch.setattr(Early, "_work", lambda self: None)
    without = mltta("tag", *args, check=1)
    assert slowly[1].decoded == []
    assert with_.stdout == without.stdout
    for name in ("truncated.jpg", "empty.png", "text.jpg", "gone.png"):
        said = [line for line in without.stderr.splitlines() if name in line]
        assert said
        assert [line for line in with_.stderr.splitlines() if name in line] == said


def test_what_is_done_is_not_decoded_again_unless_all_is(photos, tmp_path, slowly):
    args = [photos / "good0.png", photos / "good1.png", *CLIP, "-o", tmp_path / "tags.jsonl"]
    for more in ([], [], [photos / "good2.png"], ["--overwrite"]):
        mltta("tag", *args, *more)
    assert [own.decoded for own in slowly] == [
        ["good0.png", "good1.png"],
        [],
        ["good2.png"],
        ["good0.png", "good1.png"],
    ]


def test_no_more_waits_than_is_allowed(photos):
    files = [photos / f"good{i}.png" for i in range(3)]
    one = inputs._IMAGE + inputs._PIXEL * 48 * 36
    assert len(filled(files, most=2 * one)._ready) == 2
    assert len(filled(files, most=2 * one - 1)._ready) == 1
    assert not filled(files, most=0)._ready


def test_it_gives_what_load_image_gives_once_and_the_file_from_then_on(photos):
    file = photos / "rotated.jpg"
    early = filled([file])
    found = early.take(file)
    assert isinstance(found, Image.Image)
    assert found.size == (200, 300)
    assert found.tobytes() == load_image(file, working=True).tobytes()
    assert early.take(file) == file


def test_a_file_that_has_changed_since_or_gone_is_read_again(photos):
    changed, gone = photos / "good0.png", photos / "good1.png"
    early = filled([changed, gone])
    photo(9).save(changed)
    os.utime(changed, ns=(1, 1))
    gone.unlink()
    assert early.take(changed) == changed
    assert early.take(gone) == gone


def test_addresses_and_what_was_piped_are_left_alone(photos):
    data = Piped((photos / "good0.png").read_bytes())
    assert not filled(["https://example.org/a.png", data])._ready


def test_an_error_while_loading_leaves_no_thread_and_decodes_no_more(photos):
    without_end = itertools.repeat(photos / "text.jpg")

    def load():
        with loading(), Early(without_end):
            assert threads()
            assert not gc.isenabled()
            raise ConfigError("wrong")

    with pytest.raises(ConfigError):
        load()
    assert not threads()
    assert gc.isenabled()


def test_a_command_that_fails_while_loading_says_so_and_ends(photos):
    done = mltta("tag", photos, "--labels", "dog, cat", "--model", "no-such-model", check=2)
    assert "no-such-model" in done.stderr
    assert not threads()


def test_photos_are_decoded_before_torch_is_there_which_is_never_looked_through_again(photos, tmp_path):
    code = (
        "import gc, sys\nfrom mltta.cli import inputs, main\n"
        "begin, take = inputs.Early.__enter__, inputs.Early.take\n"
        "def told(self):\n"
        "    print('torch' in sys.modules, gc.isenabled(), file=sys.stderr)\n"
        "    return begin(self)\n"
        "def tell(self, file):\n"
        "    print('torch' in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000, file=sys.stderr)\n"
        "    return take(self, file)\n"
        "inputs.Early.__enter__, inputs.Early.take = told, tell\n"
        "main()\n"
    )
    line = [sys.executable, "-c", code, "tag", photos / "good0.png", *CLIP, "-o", tmp_path / "tags.jsonl"]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=True)
    before, after, *rest = done.stderr.splitlines()
    assert before == "False False"
    assert after == "True True True"
    assert rest[-1].startswith("written to"), "nothing is told behind the summary"
