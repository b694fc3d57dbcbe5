"""Test that every path and name that the pages quote exists, so that no map of the repository lies."""

import importlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from roundtrip import Context, Server
from roundtrip.server.context import BlockingContext
from tests.docs.pages import ROOT, blocks, name_of, pages

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


def _all_quoted(pages: Sequence[Path] = PAGES) -> Iterator[tuple[str, str]]:
    """Yield the names of pages with all that they quote."""
    for page in pages:
        for quoted in _quoted(page):
            yield name_of(page), quoted


def _is_path(page: str, quoted: str) -> bool:
    return bool(_PATH.fullmatch(quoted)) and (page in _MAPS or quoted.partition("/")[0] in _FOLDERS)


def _path_is_known(quoted: str) -> bool:
    return quoted.startswith(".") or quoted in _READERS_FILES or _path_exists(quoted) or _is_literal(quoted)


def test_every_quoted_path_exists() -> None:
    paths = [(page, quoted) for page, quoted in _all_quoted() if _is_path(page, quoted)]
    assert [(page, quoted) for page, quoted in paths if not _path_is_known(quoted)] == []


def _name_is_known(quoted: str) -> bool:
    owners: dict[str, object] = {"ctx": Context, "ctx.blocking": BlockingContext, "server": Server}
    if _PATH.fullmatch(quoted):
        return True
    if (match := _DOTTED.fullmatch(quoted)) is not None:
        return _resolves(match[1]) or _is_literal(match[1])
    if (match := _MEMBER.fullmatch(quoted)) is not None:
        return hasattr(owners[match[1]], match[2])
    return True


def test_every_quoted_name_of_the_package_resolves() -> None:
    assert [(page, quoted) for page, quoted in _all_quoted() if not _name_is_known(quoted)] == []


def test_every_quoted_test_exists() -> None:
    tests = [(page, quoted) for page, quoted in _all_quoted() if re.fullmatch(r"test_\w+", quoted)]
    assert [(page, quoted) for page, quoted in tests if quoted not in _tests()] == []


def test_maps_use_only_names_of_the_code() -> None:
    names = [(page, quoted) for page, quoted in _all_quoted([ROOT / name for name in _MAPS]) if _NAME.fullmatch(quoted)]
    unknown = [(page, quoted) for page, quoted in names if not set(quoted.removesuffix("()").split(".")) <= _words()]
    assert unknown == []


def test_page_of_modules_lists_every_package_and_module() -> None:
    text = (ROOT / "specs" / "modules.md").read_text(encoding="utf-8")
    package = ROOT / "roundtrip"
    paths = [
        path.relative_to(package)
        for path in package.rglob("*.py")
        if path.parent != package or path.name != "__init__.py"
    ]
    names = [f"{path.parent.as_posix()}/" if path.name == "__init__.py" else path.as_posix() for path in paths]
    assert [name for name in names if f"`{name}`" not in text] == []
