"""Shell and Python blocks of a page: found, told apart, and run in one process that loads the model once."""

from __future__ import annotations

import io
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from mltta.cli import app

REASON = re.compile(r"<!-- not run: (.+) -->")
FENCE = re.compile(r"^( *)```(\w*)\s*$")
HEREDOC = re.compile(r"^cat > (\S+) <<(\w+)$")


@dataclass(frozen=True)
class Block:
    """A block, where it begins, and why it is not run, if it is not."""

    page: str
    line: int
    kind: str
    text: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}"


def blocks_of(page: Path, name: str) -> Iterator[Block]:
    """Every fenced block of sh and python, and every indented one, which is a shell's in our pages."""
    lines = page.read_text(encoding="utf-8").splitlines()
    said, at = "", 0
    while at < len(lines):
        line, start = lines[at], at
        fence = FENCE.match(line)
        found = REASON.fullmatch(line.strip())
        if fence and fence[2]:
            end = next(n for n in range(at + 1, len(lines)) if lines[n] == f"{fence[1]}```")
            text = "\n".join(part.removeprefix(fence[1]) for part in lines[at + 1 : end])
            if fence[2] in ("sh", "python") or text.startswith("$ mltta"):
                yield Block(name, start + 1, fence[2], text, said)
            said, at = "", end + 1
        elif fence:  # what a command printed
            at = next(n for n in range(at + 1, len(lines)) if FENCE.match(lines[n])) + 1
        elif line.startswith("    ") and (not at or not lines[at - 1].strip() or lines[at - 1][0] in "#<"):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            yield Block(name, start + 1, "sh", "\n".join(part[4:] for part in lines[start:at]), said)
            said = ""
        else:
            said = found[1] if found else said if not line.strip() else ""
            at += 1


def run_python(block: Block, names: dict[str, object]) -> None:
    """Run a block in the names of its page; one that begins with the name of a file is saved as that file."""
    saved = re.match(r"# (\w+\.py)\n", block.text)
    if saved:
        Path(saved[1]).write_text(block.text + "\n", encoding="utf-8")
        return
    with redirect_stdout(io.StringIO()):
        exec(compile("\n" * block.line + block.text, block.page, "exec", dont_inherit=True), names)


def check_printed(block: Block) -> None:
    """Run the command behind the $ and compare what it prints with what the page shows."""
    command, _, shown = block.text.partition("\n")
    done = CliRunner().invoke(app, shlex.split(command)[2:])
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines(), f"{block}"


def run_shell(block: Block) -> None:
    """Run a block line by line: mltta in this process, files written by `cat > FILE <<END`, and our examples."""
    lines = iter(block.text.replace("\\\n", " ").splitlines())
    for line in lines:
        heredoc = HEREDOC.match(line)
        if heredoc:
            text = "".join(f"{part}\n" for part in iter(lambda: next(lines), heredoc[2]))
            Path(heredoc[1]).write_text(text, encoding="utf-8")
            continue
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "python" and words[1].startswith("examples/"):
            with redirect_stdout(io.StringIO()):
                runpy.run_path(words[1], run_name="__main__")
            continue
        assert words[0] == "mltta", f"{block}: `{line}` cannot be run here; mark the block with a reason"
        given = b""
        if "<" in words:
            given = Path(words.pop()).read_bytes()
            words.pop()
        done = CliRunner().invoke(app, words[1:], input=given)
        assert done.exit_code == 0, (
            f"{block}: `{line}` ended with {done.exit_code}\n{done.output}\n{done.exception!r}"
        )
