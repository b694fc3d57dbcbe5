"""The table of docs/comparison.md is what `python -m benchmarks.peers` shows.

`pytest tests/docs/adapters/test_comparison.py --snapshot-update` writes the table into the page.
"""

import ast
import json
from typing import Final

import anyio
import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.table import NAMES, ROWS, rows_named, show, table
from benchmarks.peers.tasks import NO_REDIS
from specs.sections import with_section
from tests.docs.pages import ROOT

PAGE: Final = ROOT / "docs" / "comparison.md"
COMMAND: Final = "pytest tests/docs/adapters/test_comparison.py --snapshot-update"


@pytest.mark.timeout(600)
def test_table_is_what_the_libraries_do(request: pytest.FixtureRequest) -> None:
    async def shown() -> list[str]:
        return table([(row, await show(row)) for row in ROWS])

    rows = anyio.run(shown)
    if request.config.getoption("update_snapshots"):
        page = with_section(PAGE.read_text(encoding="utf-8"), "comparison", rows, command=COMMAND)
        PAGE.write_text(page, encoding="utf-8")
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in lines and NO_REDIS not in row] == [], f"run: {COMMAND}"
    assert sum(line.startswith("| `") for line in lines) == len(ROWS)


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_has_its_own_name_and_a_test_that_exists() -> None:
    named = [row.test.split("::") for row in ROWS if row.test is not None]
    assert [(path, name) for path, name in named if name not in names_in(path)] == []
    assert len(set(NAMES)) == len(NAMES)


def test_command_prints_what_each_library_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repeat"]) == 0
    assert capsys.readouterr().out.count("the body runs twice") == 3
    assert main(["repeat", "bytes", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["versions"]) == {"roundtrip", "sdk", "fastmcp"}
    assert [row["name"] for row in printed["rows"]] == [row.name for row in rows_named(["repeat", "bytes"])]
    assert printed["rows"][0]["sdk"] == "the body runs twice"
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "there is no row nothing; rows: eras, " in capsys.readouterr().err
