"""Accepted snippets type-check, and rejected ones fail at the lines that say so.

A line that must be rejected ends in `# error: rule`, with a rule per error if there are several.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).resolve().parent
_MARK: Final = re.compile(r"# error: ([A-Za-z ]+)$")

Error = tuple[str, int, str]


@pytest.fixture(scope="module")
def found() -> list[Error]:
    """Return every error that pyright finds in the snippets: file, line and rule. It runs once, as it starts slowly."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(HERE)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(HERE.glob("*/*.py")))
    return sorted(
        (
            Path(problem["file"]).relative_to(HERE).as_posix(),
            problem["range"]["start"]["line"] + 1,
            problem.get("rule", problem["message"]),
        )
        for problem in report["generalDiagnostics"]
        if problem["severity"] in ("error", "warning")
    )


def _expected(path: Path) -> list[Error]:
    name = path.relative_to(HERE).as_posix()
    return [
        (name, number, rule)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (mark := _MARK.search(line)) is not None
        for rule in mark[1].split()
    ]


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", sorted(HERE.glob("accepted/*.py")), ids=_name)
def test_an_accepted_snippet_type_checks(path: Path, found: list[Error]) -> None:
    assert not _expected(path)
    assert [error for error in found if error[0] == path.relative_to(HERE).as_posix()] == []


@pytest.mark.parametrize("path", sorted(HERE.glob("rejected/*.py")), ids=_name)
def test_a_rejected_snippet_is_rejected_line_by_line(path: Path, found: list[Error]) -> None:
    expected = _expected(path)
    assert expected
    rejected = [error for error in found if error[0] == path.relative_to(HERE).as_posix()]
    # The type of a rejected expression is unknown, which strict mode reports as well.
    assert [error for error in rejected if not error[2].startswith("reportUnknown")] == sorted(expected)
