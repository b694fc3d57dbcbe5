"""What holds for the sources of all modules: their names, their imports, and what only some of them use."""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from tests.kit.sources import PACKAGE, imports_of, lazy_imports_of, name_of, sources

_CEILINGS: Final = {
    "code lines": 51_541,
    "code lines of the core": 7_046,
    "modules": 425,
    "imports inside of functions": 62,
    "lines of pages and other files": 5_008,
    "files in a room": 16,
    "code lines in a room": 2_189,
}
"""As last measured. Lower them with each change that deletes; a change that raises one says why in its commit."""
_CORE: Final = {"machine", "questions", "tokens", "resolvers", "engine", "legs"}
_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: Path, tree: ast.Module) -> int:
    """Count the lines of a module without comments and docstrings."""
    with (PACKAGE / path).open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in _NO_CODE]
    code = {line for token in tokens[1:] for line in range(token.start[0], token.end[0] + 1)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return len(code.difference(*(range(text.lineno, (text.end_lineno or 0) + 1) for text in texts)))


def test_package_stays_small() -> None:
    lines = {path: code_lines(path, tree) for path, tree in sources().items()}
    inside = {
        inner
        for tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    others = [path for path in PACKAGE.rglob("*.*") if path.suffix not in (".py", ".pyc")]
    rooms: dict[Path, list[int]] = defaultdict(list)
    for path, count in lines.items():
        if path.name != "__init__.py":
            rooms[path.parent].append(count)
    measured = {
        "code lines": sum(lines.values()),
        "code lines of the core": sum(count for path, count in lines.items() if path.parts[0] in _CORE),
        "modules": len(lines),
        "imports inside of functions": len(inside),
        "lines of pages and other files": sum(path.read_bytes().count(b"\n") for path in others),
        "files in a room": max(map(len, rooms.values())),
        "code lines in a room": max(map(sum, rooms.values())),
    }
    above = {name: count for name, count in measured.items() if count > _CEILINGS[name]}
    assert above == {}


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(path.as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for type checkers count, and those inside of functions."""
    modules = {name_of(path): tree for path, tree in sources().items()}
    assert len(modules) > 200
    graph = {name: imports_of(tree, modules) - {name} for name, tree in modules.items()}
    assert graph["roundtrip.legs.runner"] >= {"roundtrip.engine.leg", "roundtrip.legs.asking"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


_REVISED: Final = {Path("revisions.py"), Path("testing/forms.py")}
"""The module of revisions, and one that fills form fields with dates, one of which is also a revision."""


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module that are evaluated when it runs; annotations are not, where imports are for types."""
    skipped = {id(getattr(node, field, None)) for field in ("annotation", "returns")}
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if id(child) not in skipped and not is_for_types:
            yield child
            yield from _evaluated(child)


def test_module_that_is_loaded_on_use_has_a_twin_for_type_checkers() -> None:
    known = {name_of(path) for path in sources()}
    found = 0
    for path, tree in sources().items():
        loaded = lazy_imports_of(tree)
        blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        twins = {
            f"{node.module}.{alias.name}"
            for block in blocks
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname is None
        }
        names = {module.rpartition(".")[2] for module in loaded}
        evaluated = list(_evaluated(tree))
        used = {node.id for node in evaluated if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        bound = {node.id for node in evaluated if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {alias.name for node in evaluated if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert set(loaded) <= known & twins, path
        assert len(loaded) == len(names), path
        assert {twin.rpartition(".")[2] for twin in twins} & used - bound == names, path
        found += len(loaded)
    assert found > 50


def test_no_other_module_spells_a_revision() -> None:
    spelled = [
        f"{path}:{node.lineno}"
        for path, tree in sources().items()
        if path not in _REVISED
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in KNOWN_PROTOCOL_VERSIONS
    ]
    assert not spelled


KNOWN = {
    "subscriptions/redis.py",
    "system.py",
    "tokens/token.py",  # in the text of an error
    "trace/page/loopback.py",
}

DIRECT = re.compile(
    r"\b(time\.(time|monotonic|perf_counter|sleep)|os\.urandom|random\.\w+|secrets\.token\w+|uuid4)\b(?!`)"
)
"""A direct use of a clock or of randomness; `anyio` keeps its own clock, on which its deadlines are."""


def test_only_known_modules_use_clocks_and_randomness_directly() -> None:
    programs = {"cli", "demo", "doctor", "testing", "client", "playground", "serving", "ui"}
    found = {
        name
        for path in sources()
        if (name := path.as_posix()).partition("/")[0] not in programs
        for line in (PACKAGE / path).read_text("utf-8").splitlines()
        if DIRECT.search(line) and not line.lstrip().startswith(("#", '"', "import", "from"))
    }
    assert found <= KNOWN
