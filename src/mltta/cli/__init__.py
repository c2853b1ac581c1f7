"""The command line: one file a command, or a few that belong together."""

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
from mltta.cli.options import WithRay, shell
from mltta.errors import MlttaError

#: what a disk, a folder or a system may say, and no fault of ours
_DISKS = "ENOSPC EDQUOT EFBIG EROFS EACCES EPERM EIO EMFILE ENFILE ENAMETOOLONG ELOOP ENOTDIR EISDIR"
DISKS = {getattr(errno, name) for name in _DISKS.split(" ") if hasattr(errno, name)}
#: what is said below the traceback of what is no mistake of the user's
FAULT = (
    "error: this is a fault of mltta. Please report it with the lines above and the command you gave, as an issue "
    "of its repository (SECURITY.md says how, if it may be a hole)."
)

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: by the word before them, none for most: what the help says, and the commands
GROUPS: dict[str, tuple[Any, ...]] = {
    "": (
        "",
        *(tag.tag, serve.serve, eval.eval_, eval.compare, reproduce.reproduce, diffusion.variations),
        *(lists.methods, lists.models),
    ),
    "captions": (
        "Generate, build, inspect, search, merge and share captions: the sentences that methods retrieve.",
        *(generate.generate, captions.build, captions.info, captions.search, captions.merge, captions.push),
    ),
    "prompts": ("Look at a file of learned prompts (CoOp's, MaPLe's), or share it.", kept.push, kept.info),
    "cache": ("List or remove the view features that `mltta eval` caches on disk.", kept.list_, kept.clear),
    "keywords": ("Keywords that `mltta tag --keywords` has written into photos.", kept.undo),
}
for word, (about, *runs) in GROUPS.items():
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown") if word else app
    for run in runs:
        group.command(run.__name__.rstrip("_"), cls=WithRay)(shell(run))
    if word:
        app.add_typer(group, name=word, help=about)


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
    """Tag images with many labels at once, adapting a frozen CLIP-style model to every single image."""


def main() -> None:
    """Run the command line: errors of the input become one line and exit code 2, faults of ours a request to report."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("mltta").setLevel(logging.INFO)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: there is nobody to talk to
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        print_anything(getattr(sys, name))
    code: int | str | None = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    except MlttaError as error:
        code = say(f"error: {error}", 2)
    except KeyboardInterrupt:
        code = say("interrupted", 130)
    except BrokenPipeError:
        code = 141  # whoever read our output has seen enough
    except MemoryError:
        said = "there is not enough memory for this; give fewer views, a smaller model or smaller files"
        code = say(f"error: {said}", 2)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISKS:
            code = say(f"error: {error.filename or 'the output'} cannot be used: {error.strerror}", 2)
        else:
            code = say(f"{traceback.format_exc().rstrip()}\n{FAULT}", 1)
    sys.exit(flushed(code))


def say(line: str, code: int) -> int:
    """Tell the user, and give the exit code, which has to do where nothing can be told."""
    with contextlib.suppress(OSError, ValueError):
        typer.echo(line, err=True)
    return code


def flushed(code: int | str | None) -> int | str | None:
    """The exit code, once what was printed has gone out; Python would end with a traceback where it cannot."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or 141
    except (OSError, ValueError) as error:
        told = say(f"error: the output cannot be written: {getattr(error, 'strerror', None) or error}", 2)
        code = code or told
    else:
        return code
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def print_anything(stream: TextIO) -> None:
    """Let a stream of another encoding than UTF-8, as on Windows, take bars and the labels of any language."""
    if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
        if stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8")
