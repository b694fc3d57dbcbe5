"""What holds for the sources of all modules: their names, their imports, and what only some of them use."""

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from tests.kit.sources import PACKAGE, imported, name_of, sources


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(path.as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """It does not matter where in a file its imports stand."""
    modules = {name_of(path): tree for path, tree in sources().items()}
    assert len(modules) > 200
    graph = {name: imported(tree, modules) - {name} for name, tree in modules.items()}
    assert graph["roundtrip.server.leg_runner"] >= {"roundtrip.engine.leg", "roundtrip.server.context"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


_REVISED: Final = {Path("revisions.py"), Path("testing/forms.py")}
"""The module of revisions, and one that fills form fields with dates, one of which is also a revision."""


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
