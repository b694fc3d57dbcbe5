"""Every class name of the package is used once, so that a name means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import roundtrip

PACKAGE = Path(roundtrip.__file__).parent


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
