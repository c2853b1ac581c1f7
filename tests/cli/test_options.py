"""Options as data: the shell, a YAML file and Python set the same fields, and help stays short and quick."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mltta.cli import app
from mltta.cli.eval import EvalOptions
from mltta.cli.options import Words, shell
from mltta.cli.tag import TagOptions, open_tagger
from tests.cli.test_cli import mltta
from tests.golden_data import GOLDEN
from tests.test_tagger import photo

#: modules that no help needs: what decodes, computes or reads settings
HEAVY = ("torch", "numpy", "PIL", "yaml", "open_clip", "huggingface_hub", "rich.progress", "mltta.model")


def commands(command=None, name: str = "") -> dict:
    """Every command by its words."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", None)
    if inner is None:
        return {name.strip(): command}
    return {key: value for word in inner for key, value in commands(inner[word], f"{name} {word}").items()}


def given(options: type, *args: object):
    """The options that the shell makes of arguments."""
    caught: list = []

    def run(options) -> None:
        caught.append(options)

    run.__annotations__["options"] = options
    one = typer.Typer()
    one.command(cls=Words)(shell(run))
    done = CliRunner().invoke(one, list(map(str, args)))
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return caught[0]


def test_the_shell_yaml_and_python_set_the_same_fields(tmp_path):
    wanted = TagOptions(
        images=("a.jpg", "b"),
        labels="voc",
        output=(Path("a.csv"), Path("b.html")),
        top_k=3,
        threshold=0.5,
        keywords="sidecar",
        wide=True,
        compile=False,
        set=("views=4", "bind=false"),
        settings={},
    )
    said = ["-l", "voc", "-o", "a.csv", "-o", "b.html", "--top-k", 3, "--threshold", 0.5, "--wide"]
    said += ["--keywords", "sidecar", "--no-compile", "-s", "views=4", "-s", "bind=false"]
    assert given(TagOptions, "a.jpg", "b", *said) == wanted
    file = tmp_path / "tag.yaml"
    file.write_text(
        "images: [a.jpg, b]\nlabels: voc\noutput: [a.csv, b.html]\ntop-k: 3\nthreshold: 0.5\nwide: true\n"
        "keywords: sidecar\ncompile: false\nset: [views=4, bind=false]\n"
    )
    assert given(TagOptions, "--config", file) == wanted
    file.write_text(file.read_text() + "ml-tta: {views: 8}\n")
    assert given(TagOptions, "--config", file) == replace(wanted, settings={"ml-tta": {"views": 8}})


def test_the_command_line_overrides_the_file(tmp_path):
    (tmp_path / "tag.yaml").write_text(
        "top_k: 3\nthreshold: 0.5\nimages: a.jpg\nallow_urls: true\nray: auto\n"
    )
    found = given(TagOptions, "b.jpg", "--top-k", 7, "--config", tmp_path / "tag.yaml")
    assert (found.images, found.top_k, found.threshold) == (("b.jpg",), 7, 0.5)
    assert (found.allow_urls, found.ray) == (True, "auto")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("top_q: 3", "no option 'top_q'"),
        ("top_k: [3, 4]", "top_k takes one value"),
        ("top_k: {a: 1}", "top_k takes one value"),
        ("top_k: 0", "--top-k"),
        ("threshold: 2", "--threshold"),
        ("wide: maybe", "--wide"),
        ("keywords: everywhere", "--keywords"),
        ("tpt: {views: 4}", "has settings for tpt, but the command runs clip"),
    ],
)
def test_a_config_file_is_checked_as_the_command_line_is(tmp_path, text, said):
    photo(0).save(tmp_path / "a.png")
    (tmp_path / "tag.yaml").write_text(text)
    done = mltta("tag", tmp_path / "a.png", "--method", "clip", "--config", tmp_path / "tag.yaml", check=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_options_are_named_after_their_fields_and_boolean_ones_are_flags():
    for words, command in commands().items():
        for one in command.params:
            if one.param_type_name == "argument" or one.name == "help" or words.startswith("keywords"):
                continue
            flag = "--" + one.name.rstrip("_").replace("_", "-")  # not_ is --not
            assert flag in one.opts, (words, one.opts)
            if one.secondary_opts:  # on, off, or chosen
                assert (one.secondary_opts, one.default) == ([f"--no-{flag[2:]}"], None), (words, one.opts)
            assert one.is_flag == (isinstance(one.default, bool) or bool(one.secondary_opts)), (
                words,
                one.opts,
            )


def test_no_help_shows_more_than_20_options_before_the_panels():
    for words, command in commands().items():
        first = [one for one in command.params if not getattr(one, "rich_help_panel", None)]
        assert len(first) + 1 <= 20, words  # and --help
    assert len([one for one in commands()["tag"].params if one.rich_help_panel]) > 20


def test_no_help_loads_what_it_does_not_need():
    calls = [[*words.split(), "--help"] for words in ("", *commands())]
    code = (
        "import contextlib, io, sys\nfrom mltta.cli import main\n"
        f"for sys.argv in {[['mltta', *call] for call in calls]!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main()\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_opens_the_same_tagger_from_pickled_options(tmp_path):
    photo(0).save(tmp_path / "a.png")
    options = TagOptions(
        images=(str(tmp_path),),
        labels="dog, cat, sofa",
        method="clip",
        weights=str(GOLDEN / "checkpoints/vit.safetensors"),
        quick_gelu=True,
        device="cpu",
        threshold=0.0,
        top_k=2,
    )
    tagger = open_tagger(options)
    there = pickle.loads(pickle.dumps(partial(open_tagger, options)))()
    assert there.about() == tagger.about()
    tags = tagger(tmp_path / "a.png")
    assert len(tags.present) == 2
    assert there(tmp_path / "a.png").record() == tags.record()


def test_options_can_be_made_in_python_and_have_the_defaults_of_the_shell(tmp_path):
    assert given(TagOptions, "a.jpg") == TagOptions(images=("a.jpg",))
    assert given(EvalOptions, "folder", "--data", "x") == EvalOptions(dataset="folder", data="x")
