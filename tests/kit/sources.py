"""The package's modules as parsed sources, and those that a plain-tools server does not load."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import roundtrip

__all__ = ["PACKAGE", "UNUSED", "imports_of", "lazy_imports_of", "name_of", "sources"]

PACKAGE: Final = Path(roundtrip.__file__).parent

UNUSED: Final = frozenset(
    (
        "roundtrip.cli",
        "roundtrip.engine.answers",
        "roundtrip.engine.body",
        "roundtrip.engine.leg_run",
        "roundtrip.known_clients",
        "roundtrip.ledger",
        "roundtrip.pages",
        "roundtrip.trace.writing.writer",
        "roundtrip.trace.writing.recorder",
        "roundtrip.trace.writing.telemetry",
        "roundtrip.questions.forms",
        "roundtrip.questions.wire",
        "roundtrip.connections.redis",
        "roundtrip.resolvers.planner",
        "roundtrip.resolvers.scheduler",
        "roundtrip.serving",
        "roundtrip.subscriptions",
        "roundtrip.testing",
        "roundtrip.tokens.signing",
        "roundtrip.trace.drawings",
        "roundtrip.trace.explaining",
        "roundtrip.trace.page",
        "roundtrip.trace.reading",
        "roundtrip.tracing",
    )
)
"""Modules that a plain-tools server does not load."""

_BLOCKS: Final = (ast.stmt, ast.ExceptHandler, ast.match_case)


@cache
def sources() -> Mapping[Path, ast.Module]:
    """Return all modules, by their paths in the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def name_of(path: Path) -> str:
    """Return a module's import name."""
    parts = ("roundtrip", *path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, known: Mapping[str, ast.Module]) -> set[str]:
    """Return the known modules that a module imports, including imports for type checkers."""
    names = set(lazy_imports_of(tree))
    for statement in _imports(tree):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
            continue
        assert statement.module is not None
        assert not statement.level, "imports are absolute"
        for alias in statement.names:
            inner = f"{statement.module}.{alias.name}"
            names.add(inner if inner in known else statement.module)
    return names & known.keys()


def lazy_imports_of(tree: ast.Module) -> list[str]:
    """Return the modules that a module imports on first use."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "load_on_use")
    return [ast.literal_eval(module) for call in calls for module in call.args[1:]]


def _imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _BLOCKS):
            yield from _imports(child)
