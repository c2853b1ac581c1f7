"""The command line: one module per command or group of related commands."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import traceback
from typing import Annotated, Any, TextIO

import typer

from mltta.cli import captions, diffusion, eval, generate, kept, lists, reproduce, serve, tag
from mltta.cli.options import WithRay, alone, shell
from mltta.errors import MlttaError
from mltta.storage.reading import Escaped

#: errno values of disk and permission problems, which are not bugs
_DISKS = "ENOSPC EDQUOT EFBIG EROFS EACCES EPERM EIO EMFILE ENFILE ENAMETOOLONG ELOOP ENOTDIR EISDIR"
DISKS = {getattr(errno, name) for name in _DISKS.split(" ") if hasattr(errno, name)}
#: libraries that are not part of the light install, and the extras that have them
EXTRAS = {
    "torch": "torch",
    "open_clip": "torch",
    "timm": "torch",
    "matplotlib": "plots",
    "huggingface_hub": "hub",
}
#: shown below the traceback of an unexpected error
FAULT = (
    "error: this is a bug in mltta. Please open an issue with the lines above and the command you ran "
    "(for security issues, see SECURITY.md)."
)

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: command groups by name ("" for top-level commands): help text, then the commands
GROUPS: dict[str, tuple[Any, ...]] = {
    "": (
        "",
        *(tag.tag, serve.serve, eval.eval_, eval.compare, reproduce.reproduce, diffusion.variations),
        lists.methods,
    ),
    "captions": (
        "Generate, build, inspect, search, merge and share caption bases.",
        *(generate.generate, captions.build, captions.info, captions.search, captions.merge, captions.push),
    ),
    "models": ("", lists.export),
    "prompts": ("Inspect or share learned prompts (CoOp, MaPLe).", kept.push, kept.info),
    "cache": ("List or remove features cached by `mltta eval`.", kept.list_, kept.clear),
    "keywords": ("Remove keywords written by `mltta tag --keywords`.", kept.undo),
}
for word, (about, *runs) in GROUPS.items():
    group = typer.Typer(no_args_is_help=word != "models", rich_markup_mode="markdown") if word else app
    if word == "models":  # alone it lists them
        group.callback(invoke_without_command=True)(alone(lists.models))
    for run in runs:
        group.command(run.__name__.rstrip("_"), cls=WithRay)(shell(run))
    if word:
        app.add_typer(group, name=word, **({"help": about} if about else {}))


def show_version(asked: bool) -> None:
    if asked:
        from mltta import __version__

        typer.echo(f"mltta {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tag images with many labels at once, and evaluate test-time adaptation of CLIP-style models."""


def main() -> None:
    """Run the command line; input errors print one line and exit with code 2, bugs ask for a report."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        print_anything(stream := getattr(sys, name))
        if name == "stderr" or stream.isatty():
            setattr(sys, name, Escaped(stream))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("mltta").setLevel(logging.INFO)
    code: int | str | None = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    except MlttaError as error:
        code = say(f"error: {error}", 2)
    except ModuleNotFoundError as error:
        code = lacking(error)
    except KeyboardInterrupt:
        code = say("interrupted", 130)
    except BrokenPipeError:
        code = 141  # the reader closed the pipe
    except MemoryError:
        said = "not enough memory; use fewer views, a smaller model or smaller files"
        code = say(f"error: {said}", 2)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISKS:
            code = say(f"error: {error.filename or 'the output'} cannot be used: {error.strerror}", 2)
        else:
            code = say(f"{traceback.format_exc().rstrip()}\n{FAULT}", 1)
    sys.exit(flushed(code))


def lacking(error: ModuleNotFoundError) -> int:
    """Say what to install where the light install lacks something."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return say(f"{traceback.format_exc().rstrip()}\n{FAULT}", 1)
    return say(f"error: this needs {library}: pip install 'mltta[{EXTRAS[library]}]'", 2)


def say(line: str, code: int) -> int:
    """Print a line to stderr, unless it is closed, and return the exit code."""
    with contextlib.suppress(OSError, ValueError):
        typer.echo(line, err=True)
    return code


def flushed(code: int | str | None) -> int | str | None:
    """Flush stdout and return the exit code; Python would print a traceback if this failed at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or 141
    except (OSError, ValueError) as error:
        told = say(f"error: cannot write the output: {getattr(error, 'strerror', None) or error}", 2)
        code = code or told
    else:
        return code
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def print_anything(stream: TextIO) -> None:
    """Let streams that are not UTF-8, as on Windows, print bars and labels in any language."""
    if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
        if stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8")
