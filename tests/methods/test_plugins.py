"""Methods from a user's own file and from installed packages, used as the built-in ones are."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from PIL import Image

import mltta
from mltta.methods import registry
from mltta.methods.registry import source_digest
from tests import golden_data as golden
from tests.cli.test_cli import MODEL
from tests.cli.test_cli import mltta as command

#: as a user would write it: everything comes through the front door
FILE = """
from __future__ import annotations

from dataclasses import dataclass

import mltta


@dataclass(frozen=True)
class Settings(mltta.ViewConfig):
    add: float = {add}


@mltta.register("{name}", "the mean of the views, and something added")
class Mean(mltta.Method):
    Config = Settings

    def branches(self, encoded):
        views = encoded.features(self.needs[0])
        return {{"view": self.logits(views, self.text.features).mean(1) + self.config.add}}
"""
LABELS = ["dog", "cat", "boat"]


@pytest.fixture(autouse=True)
def _forgotten():
    """What a test registers is forgotten after it."""
    before = dict(registry._REGISTRY)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(before)


def write(path: Path, *names: str, add: float = 0.5) -> Path:
    path.write_text("".join(FILE.format(name=name, add=add) for name in names[:1]), encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        for name in names[1:]:
            file.write(f'\n\n@mltta.register("{name}", "the same")\nclass More(Mean):\n    pass\n')
    return path


def scores(method: str, **options) -> torch.Tensor:
    """What a method says of one grey image, by the tiny model."""
    backbone = golden.backbone("vit")
    made = mltta.create_method(method, backbone, LABELS, **options)
    image = Image.new("RGB", (40, 30), (90, 120, 60))
    return made(mltta.encode_images(backbone, [image], made.needs))


def test_a_file_gives_its_method_with_its_settings(tmp_path):
    path = write(tmp_path / "my_method.py", "mine")
    plain = scores(str(path), views=1, add=0.0)
    torch.testing.assert_close(plain, scores("clip"))
    torch.testing.assert_close(scores(str(path), views=1), plain + 0.5)
    torch.testing.assert_close(scores("mine", views=1, add=2.0), plain + 2)  # once loaded, by its name too
    assert "mine" in mltta.list_methods()


def test_of_several_methods_in_a_file_one_is_named(tmp_path):
    path = write(tmp_path / "two.py", "first", "second")
    assert registry.method_class(f"{path}:second").name == "second"
    with pytest.raises(mltta.ConfigError, match=r"several methods: give .*two.py:first or .*two.py:second"):
        registry.method_class(str(path))
    with pytest.raises(mltta.ConfigError, match=r"no method 'third': give .*two.py:first"):
        registry.method_class(f"{path}:third")


def test_a_file_that_was_changed_is_run_again_and_else_once(tmp_path):
    path = write(tmp_path / "my_method.py", "mine")
    first = registry.method_class(str(path))
    assert registry.method_class(str(path)) is first
    before = source_digest(first)
    write(path, "mine", add=7.0)
    again = registry.method_class(str(path))
    assert again.Config().add == 7.0
    assert source_digest(again) != before  # results of the file as it was are not mixed with these
    assert source_digest(registry.method_class("clip")) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the method file"),
        ("x = 1\n", "registers no method"),
        ("import nothing_of_this_name\n", "cannot be executed: ModuleNotFoundError: .*nothing_of_this_name"),
        ("def broken(:\n", "cannot be executed: SyntaxError"),
        (
            FILE.format(name="tpt", add=0),
            "executed: ConfigError: method 'tpt' is already registered",
        ),
        (FILE.format(name="half", add=0) + "\n1 / 0\n", "cannot be executed: ZeroDivisionError"),
    ],
)
def test_a_file_that_gives_no_method_says_why(tmp_path, content, said):
    path = tmp_path / "my_method.py"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    before = dict(registry._REGISTRY)
    with pytest.raises(mltta.ConfigError, match=said):
        registry.method_class(str(path))
    assert before == registry._REGISTRY


def test_the_command_line_tags_and_measures_with_a_file(tmp_path):
    path = write(tmp_path / "my_method.py", "mine")
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, colour in enumerate([(200, 30, 30), (30, 200, 30)]):
        Image.new("RGB", (40, 30), colour).save(photos / f"{i}.png")
    (photos / "labels.csv").write_text("image,labels\n0.png,dog\n1.png,cat\n", encoding="utf-8")
    (photos / "captions.txt").write_text("A dog.\nA cat.\n", encoding="utf-8")
    shared = [*MODEL, "--captions", photos / "captions.txt", "--set", "views=2", "--method"]
    tags = ["tag", photos / "0.png", "--labels", "dog, cat", "-f", "json", "--top-k", 2, *shared]
    mine, plain = (json.loads(command(*tags, method).stdout)[0]["labels"] for method in (path, "tpt"))
    assert mine != plain

    out = ["eval", "folder", "--data", photos, "--out", tmp_path / "results", "--no-cache", "--workers", 0]
    done = command(*out, "--draws", 20, *shared, path, "--set", "mine.add=3")
    assert "mine (views=2, add=3.0)" in done.stdout
    (run,) = (tmp_path / "results").rglob("run.json")
    assert "-mine-views-2-add-3-0-" in run.parent.name
    said = json.loads(run.read_text(encoding="utf-8"))
    assert (said["method"], said["settings"]) == ("mine", {"views": 2, "add": 3.0})
    assert said["source"] == source_digest(registry.method_class(str(path)))


def install(site: Path, package: str, entries: dict[str, str]) -> None:
    """A package as pip leaves it: a folder that says what it offers."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8"
    )
    offered = "\n".join(f"{name} = {where}" for name, where in entries.items())
    (info / "entry_points.txt").write_text(f"[mltta.methods]\n{offered}\n", encoding="utf-8")


def test_an_installed_package_offers_its_methods(tmp_path, monkeypatch):
    install(tmp_path, "some-methods", {"offered": "some_methods"})
    write(tmp_path / "some_methods.py", "offered")
    monkeypatch.syspath_prepend(tmp_path)
    torch.testing.assert_close(scores("offered", views=1), scores("clip") + 0.5)
    assert "offered" in mltta.list_methods()


def test_a_broken_package_is_named_and_left_out(tmp_path, monkeypatch, caplog):
    entries = {"lost": "no_such_module_anywhere", "tpt": "second_tpt", "silent": "registers_nothing"}
    install(tmp_path, "broken-methods", entries)
    write(tmp_path / "second_tpt.py", "tpt")
    (tmp_path / "registers_nothing.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    known = dict(registry._REGISTRY)
    with caplog.at_level(logging.WARNING, logger="mltta"):
        assert mltta.list_methods() == sorted([*registry.built_in(), *known])
    warned = "\n".join(record.getMessage() for record in caplog.records)
    assert "skipping method 'lost' of broken-methods: ModuleNotFoundError" in warned
    assert "skipping method 'tpt' of broken-methods: ConfigError: method 'tpt'" in warned
    assert "broken-methods declares method 'silent', but registers_nothing lacks it" in warned
    assert known == registry._REGISTRY
    caplog.clear()
    mltta.list_methods()
    assert not caplog.records  # said once
