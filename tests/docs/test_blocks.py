"""Every Python block of the pages runs, and prints what the page says it prints; every link leads somewhere."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import LANGUAGES, ROOT, anchors, blocks, index, links, name_of, needs_packages, pages, title
from tests.docs.running import run_blocks

RUNNABLE: Final = [page for page in pages() if not needs_packages(page)]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_every_python_block_runs_and_prints_what_the_page_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_blocks(page, monkeypatch, capsys) == {}


def test_every_block_says_its_language() -> None:
    unknown = [
        f"{name_of(page)}:{block.line}" for page in pages() for block in blocks(page) if block.language not in LANGUAGES
    ]
    assert unknown == []


def targets() -> Iterator[tuple[Path, str, Path, str]]:
    """Yield each link into the repository: its page, its text, the file, and the anchor."""
    for page in pages():
        for link in links(page):
            target, _, anchor = link.partition("#")
            if "://" not in target:
                yield page, link, page.parent / target if target else page, anchor


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    lost = [f"{name_of(page)}: {link}" for page, link, file, _ in targets() if not file.exists()]
    lost += [
        f"{name_of(page)}: {link}"
        for page, link, file, anchor in targets()
        if anchor and file.suffix == ".md" and anchor not in anchors(file)
    ]
    assert lost == []


def test_each_page_names_its_kind_and_links_to_the_next() -> None:
    listed = [(kind, page) for kind, names in index().items() for page in names]
    pages_of_docs = sorted(page for page in ROOT.glob("docs/*.md") if page.name != "README.md")
    assert sorted(page for _, page in listed) == pages_of_docs
    for kind, page in listed:
        assert page.read_text(encoding="utf-8").splitlines()[2] == f"*{kind}* · [All pages](README.md)", name_of(page)
    for (_, page), (_, following) in itertools.pairwise(listed):
        last = page.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert last == f"Next: [{title(following)}]({following.name})", name_of(page)


def test_readme_has_at_most_650_words() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 650
