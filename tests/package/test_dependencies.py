"""The package declares what it imports, and imports what it declares; an SDK that has moved a name is rejected."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from importlib.metadata import packages_distributions
from typing import Any, Final

from tests.package.building import ROOT
from tests.package.installed import installed_by

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME: Final = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)
FRAMEWORKS: Final = {"fastmcp-slim", "uncalled-for"}
"""FastMCP, which the users of `roundtrip.fastmcp` have."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    found = (NAME.match(one) for one in requirements)
    return {normal(one[0]) for one in found if one is not None}


def imported() -> dict[str, set[str]]:
    """Return the distributions that the package imports, each with the modules of the package that do."""
    known = packages_distributions()
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "roundtrip").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"roundtrip"}:
                # Several distributions share the namespace of OpenTelemetry.
                owner = "opentelemetry-api" if top == "opentelemetry" else known[top][0]
                found[normal(owner)].add(path.relative_to(ROOT).as_posix())
    return found


BEYOND_MCP: Final = {"docstring-parser", "itsdangerous", "packaging", "shtab", "six", "transitions"}
"""What `pip install mcp-roundtrip` brings beside `mcp`."""
LATER: Final = {
    "anyio",
    "cryptography",
    "h11",
    "jsonschema",
    "opentelemetry-api",
    "pydantic",
    "referencing",
    "starlette",
    "uvicorn",
}
"""What `mcp` brings, too, and roundtrip needs in a later version, or, as pydantic, before its next major one."""


def test_imports_are_declared_or_brought_by_mcp() -> None:
    extras = [
        one
        for extra in ("docket", "fast", "pages", "terminal", "testing")
        for one in PROJECT["optional-dependencies"][extra]
    ]
    used, needed = imported().keys(), declared(PROJECT["dependencies"])
    brought = installed_by("mcp", set())
    assert (used - needed - brought - declared(extras) - FRAMEWORKS, needed - used) == (set(), set())
    assert needed & brought == {"mcp", *LATER}


def test_plain_install_brings_little_beyond_mcp() -> None:
    assert installed_by("mcp-roundtrip", {"mcp"}) - installed_by("mcp", set()) == {"mcp-roundtrip", *BEYOND_MCP}
