"""Read Markdown pages as far as tests need it: their fenced blocks and their links."""

import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
LANGUAGES: Final = frozenset({"bash", "dockerfile", "json", "mermaid", "python", "text", "yaml"})
"""What a fence may say. A block without a language, or a misspelt one, would escape the tests."""

NEEDS_PACKAGES: Final = re.compile("Redis|docket|fast(api|mcp)|azure|mangum|oidc_pages")
"""What a Python block mentions that runs only with packages of the extra `full`."""

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[^`\n]*)$")
_LINK: Final = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """Fenced block: its text, and the line of the page on which the text starts (from 1)."""

    language: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages() -> list[Path]:
    """Return every page for readers."""
    fixed = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*fixed, *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("specs/*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Return the fenced blocks of a page, in order."""
    open_fence: re.Match[str] | None = None
    start, lines = 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if open_fence is None:
            if fence is not None:
                open_fence, start, lines = fence, number + 1, []
        elif fence is not None and fence["ticks"] == open_fence["ticks"] and not fence["language"]:
            yield Block(open_fence["language"].strip(), textwrap.dedent("\n".join(lines)), start)
            open_fence = None
        else:
            lines.append(line)
    if open_fence is not None:
        raise ValueError(f"{page}:{start - 1}: this fence is never closed")


def python_blocks(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Return the Python blocks of a page, each with the output that the page gives for it."""
    source = page.read_text(encoding="utf-8").splitlines()
    found = list(blocks(page))
    for block, following in itertools.pairwise([*found, None]):
        if block is None or block.language != "python":
            continue
        end = block.line + len(block.text.splitlines())
        directly = following is not None and not "".join(source[end : following.line - 2]).strip()
        yield block, following.text if following is not None and directly and following.language == "text" else None


def needs_packages(page: Path) -> bool:
    """Return True if the blocks of a page run in the full tier only."""
    return any(NEEDS_PACKAGES.search(block.text) for block, _ in python_blocks(page))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links outside of code blocks."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    return _LINK.findall(text)


def title(page: Path) -> str:
    """Return the first heading of a page."""
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def index() -> dict[str, list[Path]]:
    """Return the kinds of pages that `docs/README.md` lists, each with its pages in order."""
    kinds: dict[str, list[Path]] = {}
    for line in (ROOT / "docs" / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            kinds[line.removeprefix("## ")] = []
        elif (row := re.match(r"\| \[[^\]]+\]\((.+?)\)", line)) is not None:
            kinds[list(kinds)[-1]].append(ROOT / "docs" / row[1])
    return kinds
