"""Which room of the package may know which: data flows down the list, knowledge flows up it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1] / "src" / "mltta"

#: every room, and the rooms that it may import from, each of which stands above it
MAY_KNOW = {
    "errors": "",
    "arrays": "",
    "storage": "errors arrays",
    "labels": "errors storage",
    "objectives": "",
    "images": "errors storage",
    "data": "errors storage labels images",
    "metrics": "errors",
    "model": "errors arrays storage labels images",
    "captions": "errors arrays storage labels images data model",
    "methods": "errors arrays storage labels objectives images model captions",
    "decision": "errors arrays labels model captions methods",
    "session": "errors arrays storage labels images model captions methods decision",
    "tagger": "errors arrays labels images model captions methods decision session",
    "library": "errors arrays storage labels images model methods decision session tagger",
    "output": "errors storage images tagger",
    "tables": "errors storage",
    "evaluation": "errors arrays storage labels images data metrics model captions methods decision session tables",
    "reproduction": "errors storage labels objectives images data metrics model captions methods session output tables "
    "evaluation",
    "serve": "errors storage labels images model methods decision session tagger output",
    "distributed": "errors storage images data methods session tagger output evaluation",
    "cli": "errors storage labels images data metrics model captions methods decision session tagger library output "
    "tables evaluation reproduction serve distributed",
}
#: only speed: it knows what it speeds up, and one file of the core opens it, by name
ACCELERATE, SEAM = "errors arrays labels images model", "mltta.model.acceleration"


class Import(NamedTuple):
    module: str
    line: int
    target: str


def module_name(path: Path) -> str:
    return ".".join(("mltta", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(module: str) -> Iterator[Import]:
    """What a module imports of the package, inside functions too, but not what only a type checker reads."""

    def walk(node: ast.AST) -> Iterator[Import]:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            return
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(module, node.lineno, name.name)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}, line {node.lineno}: relative imports hide which room they mean"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                front = node.module == "mltta"  # then say what is taken through the front door
                yield Import(module, node.lineno, inner if front or inner in MODULES else str(node.module))
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    found = walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    return (one for one in found if one.target.split(".")[0] == "mltta")


def room(module: str) -> str:
    return [*module.split("."), ""][1]


EVERY = [one for module in MODULES for one in imports(module)]


def test_each_room_knows_only_rooms_above_it():
    above: list[str] = []
    for name, known in MAY_KNOW.items():
        assert set(known.split()) <= set(above), f"{name} is allowed rooms that do not stand above it"
        above.append(name)


def test_the_architecture_lists_the_rooms_in_this_order():
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", page, re.MULTILINE)
    assert listed == [*MAY_KNOW, "accelerate", "assets"]


def test_every_module_is_in_a_room():
    assert {room(module) for module in MODULES} - {"", "__main__"} == {*MAY_KNOW, "accelerate"}


@pytest.mark.parametrize("name", [*MAY_KNOW, "accelerate"])
def test_a_room_imports_only_what_it_may_know(name):
    allowed = {name, *(MAY_KNOW | {"accelerate": ACCELERATE})[name].split()}
    strangers = [
        f"{one.module}, line {one.line}: {one.target}"
        for one in EVERY
        if room(one.module) == name and one.target != "mltta.__version__" and room(one.target) not in allowed
    ]
    assert not strangers


def test_only_the_seam_names_what_is_only_speed():
    named = [
        module
        for module, path in MODULES.items()
        if room(module) != "accelerate"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == "mltta.accelerate"
    ]
    assert named == [SEAM]
    assert not [one for one in EVERY if room(one.target) == "accelerate" != room(one.module)]


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: {one.target for one in EVERY if one.module == module} - {module} for module in MODULES}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join((*way[way.index(module) :], module))
        if module not in done:
            for target in sorted(graph.get(module, ())):
                visit(target, (*way, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())
