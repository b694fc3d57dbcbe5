"""Generate the layers in `docs/architecture.md` and the module list, from pyproject.toml and docstrings."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from specs.sections import with_section

__all__ = ["PAGE", "architecture_page", "modules_page"]

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "roundtrip"
PAGE: Final = ROOT / "docs" / "architecture.md"

_FIRST_ROOM_OF_LAYER: Final = {
    "roundtrip.revisions": 0,
    "roundtrip.machine": 1,
    "roundtrip.tokens": 2,
    "roundtrip.engine": 3,
    "roundtrip.tracing": 4,
    "roundtrip.legs": 5,
    "roundtrip.visibility": 6,
    "roundtrip.trace.drawings": 7,
}
"""The entry in pyproject.toml at which each layer on the page begins. A layer ends where the next layer begins."""


def architecture_page() -> str:
    """Return the page with a regenerated section."""
    return with_section(PAGE.read_text(encoding="utf-8"), "layers", _layer_rows())


def modules_page() -> str:
    """Return the page that lists every module."""
    introduction = "Generated from docstrings by `python -m specs.generate`. Paths are relative to `roundtrip/`."
    return "\n".join(["# Modules", "", introduction, "", *_module_rows(), ""])


def _layers() -> list[list[str]]:
    """Return the import contract's layers, each with its packages and modules. The lowest layer comes first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [layer.split(" | ") for layer in reversed(layers)]


def _layer_rows() -> Iterator[str]:
    number, rows = 0, list[str]()
    for layer in _layers():
        number = next((_FIRST_ROOM_OF_LAYER[name] for name in layer if name in _FIRST_ROOM_OF_LAYER), number)
        for name in layer:
            path = name.removeprefix("roundtrip.").replace(".", "/")
            is_package = (PACKAGE / path).is_dir()
            source = PACKAGE / path / "__init__.py" if is_package else PACKAGE / f"{path}.py"
            rows.append(f"| {number} | `{path}{'/' if is_package else '.py'}` | {_first_line(source)} |")
    yield from ("| layer | where | provides |", "|---|---|---|", *reversed(rows))


def _module_rows() -> Iterator[str]:
    yield from ("| module | provides |", "|---|---|")
    for source in sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent.relative_to(PACKAGE).parts, path.name)):
        path = source.relative_to(PACKAGE)
        name = f"**`{path.parent.as_posix()}/`**" if path.name == "__init__.py" else f"`{path.as_posix()}`"
        if path.as_posix() != "__init__.py":
            yield f"| {name} | {_first_line(source)} |"


def _first_line(source: Path) -> str:
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    sentence = re.sub(r"\s+", " ", docstring.partition("\n\n")[0]).strip()
    return sentence.partition(". ")[0].removesuffix(".").replace("|", "\\|")
