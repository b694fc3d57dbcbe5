"""Every Python block of the pages runs, and prints what the page says it prints.

The blocks of one page share one namespace and run in order, as a reader would type them into one file. A `text` block
right after a Python block is that block's output, to the letter.
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import LANGUAGES, ROOT, Block, anchors, blocks, index, links, pages, title
from tests.kit.hosts import own_loop


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _with_output(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Each Python block, with the output that the page gives for it."""
    source = page.read_text(encoding="utf-8").splitlines()
    found = list(blocks(page))
    for block, following in itertools.pairwise([*found, None]):
        if block is None or block.language != "python":
            continue
        end = block.line + len(block.text.splitlines())
        directly = following is not None and not "".join(source[end : following.line - 2]).strip()
        yield block, following.text if following is not None and directly and following.language == "text" else None


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_every_python_block_runs_and_prints_what_the_page_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType(f"page_{page.stem.replace('-', '_').lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    # The first blocks of some pages are `cinema.py`, which later blocks import.
    monkeypatch.setitem(sys.modules, "cinema", module)
    with own_loop():
        for block, output in _with_output(page):
            # Blank lines in front give tracebacks the page's own line numbers.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
            capsys.readouterr()
            exec(code, vars(module))
            if output is not None:
                assert capsys.readouterr().out.strip() == output.strip(), f"{_name(page)}:{block.line}"


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_every_block_says_its_language(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{_name(page)}:{block.line}"


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    for link in links(page):
        target = link.partition("#")[0]
        if target and "://" not in target:
            assert (page.parent / target).exists(), f"{_name(page)}: {link}"


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        led_to = page.parent / target if target else page
        if anchor and "://" not in target and led_to.suffix == ".md":
            assert anchor in anchors(led_to), f"{_name(page)}: {link}"


def test_each_page_names_its_kind_and_links_to_the_next() -> None:
    listed = [(kind, page) for kind, names in index().items() for page in names]
    pages_of_docs = sorted(page for page in ROOT.glob("docs/*.md") if page.name != "README.md")
    assert sorted(page for _, page in listed) == pages_of_docs
    for kind, page in listed:
        assert page.read_text(encoding="utf-8").splitlines()[2] == f"*{kind}* · [All pages](README.md)", _name(page)
    for (_, page), (_, following) in itertools.pairwise(listed):
        last = page.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert last == f"Next: [{title(following)}]({following.name})", _name(page)


def test_there_is_something_to_run() -> None:
    assert any(True for page in pages() for _ in _with_output(page))
