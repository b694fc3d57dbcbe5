"""The page that compares roundtrip with its peers says what they do."""

from pathlib import Path

import anyio
import pytest

from benchmarks.peers import ROWS, markdown, table
from tests.hosts import ROOT

PAGE = ROOT / "docs" / "comparison.md"


def test_table_shows_what_each_library_does() -> None:
    shown = PAGE.read_text().partition("--markdown -->\n")[2].partition("<!-- end of peers -->")[0]
    assert shown.splitlines() == markdown(anyio.run(table)), "run: python -m benchmarks.peers --markdown"


@pytest.mark.parametrize("test", [row.test for row in ROWS])
def test_each_row_names_tests_that_exist(test: str) -> None:
    assert (ROOT / "tests" / Path(test)).exists()
