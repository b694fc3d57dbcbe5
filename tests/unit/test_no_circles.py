"""No module of roundtrip imports itself by way of others, wherever in a file its imports stand."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.kit.hosts import ROOT

PACKAGE = ROOT / "roundtrip"
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def _modules() -> Mapping[str, ast.Module]:
    found: dict[str, ast.Module] = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Return its imports, except those for type checkers only."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _BLOCKS):
            yield from _statements(child)


def _imported(tree: ast.Module, known: Mapping[str, ast.Module]) -> set[str]:
    names: set[str] = set()
    for statement in _statements(tree):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
            continue
        assert statement.module is not None
        assert not statement.level, "imports are absolute"
        for alias in statement.names:
            inner = f"{statement.module}.{alias.name}"
            names.add(inner if inner in known else statement.module)
    return names & known.keys()


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = _modules()
    assert len(modules) > 200
    graph = {name: _imported(tree, modules) - {name} for name, tree in modules.items()}
    assert graph["roundtrip.server.leg_runner"] >= {"roundtrip.engine.leg", "roundtrip.server.context"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
