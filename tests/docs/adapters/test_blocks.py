"""The Python blocks that use other frameworks run, and print what their pages say."""

from pathlib import Path

import pytest

from tests.docs.pages import name_of, needs_packages, pages
from tests.docs.running import run_blocks


@pytest.mark.parametrize("page", [page for page in pages() if needs_packages(page)], ids=name_of)
def test_every_python_block_runs_and_prints_what_the_page_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_blocks(page, monkeypatch, capsys) == {}
