"""The rules of this suite, which keep it small, quick and never red by chance: see CONTRIBUTING.md."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.kit.tiers import TESTS

_MAX_EQUAL_BODIES: Final = 19
"""How many helpers, functions of a module or methods, may have a body of two lines or more that another one has too."""
_MAX_LINES: Final = 98_081
"""The goal is 85,000. Lower it with each change that deletes."""

_TEST_MODULE: Final = re.compile(r"^from (tests\.(?:\w+\.)*test_\w+) import", re.MULTILINE)
_TIMER: Final = re.compile(r"\bthreading\.Timer\(")
_MARK: Final = re.compile(r"\bmark\.(?:full|nightly|slow)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources() -> dict[str, str]:
    return {path.relative_to(TESTS).as_posix(): path.read_text() for path in sorted(TESTS.rglob("*.py"))}


def found(pattern: re.Pattern[str]) -> list[str]:
    return [f"{path}: {match[0]}" for path, source in sources().items() for match in pattern.finditer(source)]


def helpers(tree: ast.Module) -> Iterator[Function]:
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (one for one in inner if isinstance(one, Function) and not one.name.startswith("test"))


def test_no_test_module_imports_another_one() -> None:
    assert found(_TEST_MODULE) == []


def test_no_timer_lets_go_after_a_while() -> None:
    assert found(_TIMER) == []


def test_tiers_are_folders() -> None:
    """A folder or a needed program decides, and no mark of a single test."""
    assert found(_MARK) == []


def test_helper_bodies_exist_once() -> None:
    bodies: dict[str, list[str]] = defaultdict(list)
    for path, source in sources().items():
        for node in helpers(ast.parse(source)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body and (body[-1].end_lineno or 0) > body[0].lineno:
                bodies["\n".join(map(ast.dump, body))].append(f"{path}:{node.lineno} {node.name}")
    equal = [places for places in bodies.values() if len(places) > 1]
    assert sum(map(len, equal)) <= _MAX_EQUAL_BODIES, "\n".join(map(str, equal))


def test_suite_stays_small() -> None:
    lines = Counter({path: source.count("\n") for path, source in sources().items()})
    assert lines.total() <= _MAX_LINES, lines.most_common(10)
