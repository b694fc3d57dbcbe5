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

_LAYERS: Final = {
    "roundtrip.revisions": "what every package may use",
    "roundtrip.machine": "a call's states and journal, and questions",
    "roundtrip.tokens": "tokens, and parameters that functions fill",
    "roundtrip.engine": "one leg, in either era",
    "roundtrip.tracing": "ledgers, question pages, transcripts and threads",
    "roundtrip.legs": "the request around a leg",
    "roundtrip.visibility": "servers, tools and features",
    "roundtrip.trace.drawings": "commands, serving and the testing kit",
}
"""The entry in pyproject.toml at which each layer on the page begins, from layer 0 up, and what the layer provides."""


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
    layers = list[list[str]]()
    for entry in _layers():
        if any(name in _LAYERS for name in entry):
            layers.append([])
        layers[-1] += [_where(name) for name in entry]
    yield from ("| layer | provides | where |", "|---|---|---|")
    for number, (purpose, places) in reversed([*enumerate(zip(_LAYERS.values(), layers, strict=True))]):
        yield f"| {number} | {purpose} | {', '.join(reversed(places))} |"


def _where(name: str) -> str:
    path = name.removeprefix("roundtrip.").replace(".", "/")
    return f"`{path}{'/' if (PACKAGE / path).is_dir() else '.py'}`"


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
