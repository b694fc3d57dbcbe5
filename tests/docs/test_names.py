"""Test that every path and name that the pages quote exists, so that no map of the repository lies."""

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip import Context, Server
from roundtrip.server.context import BlockingContext
from tests.docs.pages import ROOT, blocks, pages

_QUOTED: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PATH: Final = re.compile(r"(?:[\w.-]+/)*[\w.-]+(?:/|\.(?:py|md|toml|json|conf|yaml))")
_DOTTED: Final = re.compile(r"(roundtrip(?:\.\w+)+)(?:\(.*\))?")
_MEMBER: Final = re.compile(r"(?:await )?(ctx\.blocking|ctx|server)\.(\w+)\b.*")
_NAME: Final = re.compile(r"_?[A-Za-z]\w+(?:\.\w+)*(?:\(\))?")
_FOLDERS: Final = ("roundtrip", "tests", "specs", "benchmarks", "examples")
_MAPS: Final = ("CONTRIBUTING.md", "docs/architecture.md")
"""Pages about the code: every path and every single name in them must exist."""

_READERS_FILES: Final = frozenset({"cinema.py", "tour.py", "test_cinema.py", "test_tour.py"})
"""Files that the pages tell readers to write."""

PAGES: Final = [page for page in pages() if page.name != "CHANGELOG.md"]  # which also names what is gone


def _page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _quoted(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    return _QUOTED.findall(text)


@cache
def _sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py")}


@cache
def _tests() -> frozenset[str]:
    return frozenset(name for text in _sources().values() for name in re.findall(r"\bdef (test_\w+)", text))


@cache
def _words() -> frozenset[str]:
    other = [ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    texts = [*_sources().values(), *(path.read_text(encoding="utf-8") for path in other)]
    return frozenset(word for text in texts for word in re.findall(r"[\w-]+", text)) | {
        path.stem for path in _sources()
    }


def _path_exists(quoted: str) -> bool:
    if "/" not in quoted:
        return any(path.name == quoted for path in _sources()) or (ROOT / quoted).exists()
    return any((base / quoted).exists() for base in (ROOT, ROOT / "roundtrip", ROOT / "tests"))


def _is_literal(quoted: str) -> bool:
    """Return True for a text of the code that looks like a name, such as a metric or a label of a key."""
    return any(f'"{quoted}' in text for text in _sources().values())


def _resolves(dotted: str) -> bool:
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for part in parts[split:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_every_quoted_path_exists(page: Path) -> None:
    is_map = _page_name(page) in _MAPS
    for quoted in _quoted(page):
        if _PATH.fullmatch(quoted) and (is_map or quoted.partition("/")[0] in _FOLDERS):
            exists = _path_exists(quoted) or _is_literal(quoted)
            assert exists or quoted.startswith(".") or quoted in _READERS_FILES, quoted


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_every_quoted_name_of_the_package_resolves(page: Path) -> None:
    owners: dict[str, object] = {"ctx": Context, "ctx.blocking": BlockingContext, "server": Server}
    for quoted in _quoted(page):
        if _PATH.fullmatch(quoted):
            continue
        if (match := _DOTTED.fullmatch(quoted)) is not None:
            assert _resolves(match[1]) or _is_literal(match[1]), quoted
        elif (match := _MEMBER.fullmatch(quoted)) is not None:
            assert hasattr(owners[match[1]], match[2]), quoted


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_every_quoted_test_exists(page: Path) -> None:
    for quoted in _quoted(page):
        if re.fullmatch(r"test_\w+", quoted):
            assert quoted in _tests(), quoted


@pytest.mark.parametrize("page", [ROOT / name for name in _MAPS], ids=_page_name)
def test_maps_use_only_names_of_the_code(page: Path) -> None:
    for quoted in _quoted(page):
        if _NAME.fullmatch(quoted):
            for word in quoted.removesuffix("()").split("."):
                assert word in _words(), quoted


def test_architecture_lists_every_package_and_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "roundtrip"
    for path in package.rglob("*.py"):
        if path.name != "__init__.py":
            assert f"`{path.relative_to(package).as_posix()}`" in text
        elif path.parent != package:
            assert f"`{path.parent.relative_to(package).as_posix()}/`" in text
