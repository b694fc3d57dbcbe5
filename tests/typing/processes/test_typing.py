"""Accepted snippets type-check with pyright and mypy, and rejected ones fail in pyright at the lines that say so.

A line that must be rejected ends in `# error: rule`, with a rule per error if there are several.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.cli import main
from tests.docs.pages import name_of, needs_packages, pages, python_blocks

SNIPPETS: Final = Path(__file__).resolve().parents[1]
_MARK: Final = re.compile(r"# error: ([A-Za-z ]+)$")

Error = tuple[str, int, str]


@pytest.fixture(scope="module")
def found() -> list[Error]:
    """Return every error that pyright finds in the snippets: file, line and rule. It runs once, as it starts slowly."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(SNIPPETS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(SNIPPETS.glob("*ed/*.py")))
    return sorted(
        (
            Path(problem["file"]).relative_to(SNIPPETS).as_posix(),
            problem["range"]["start"]["line"] + 1,
            problem.get("rule", problem["message"]),
        )
        for problem in report["generalDiagnostics"]
        if problem["severity"] in ("error", "warning")
    )


def _expected(path: Path) -> list[Error]:
    name = path.relative_to(SNIPPETS).as_posix()
    return [
        (name, number, rule)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (mark := _MARK.search(line)) is not None
        for rule in mark[1].split()
    ]


def _found_in(path: Path, found: list[Error]) -> list[Error]:
    return [error for error in found if error[0] == path.relative_to(SNIPPETS).as_posix()]


def test_accepted_snippets_type_check(found: list[Error]) -> None:
    paths = sorted(SNIPPETS.glob("accepted/*.py"))
    assert [path.name for path in paths if _expected(path)] == []
    assert [error for path in paths for error in _found_in(path, found)] == []


@pytest.mark.parametrize("path", sorted(SNIPPETS.glob("rejected/*.py")), ids=lambda path: path.stem)
def test_a_rejected_snippet_is_rejected_line_by_line(path: Path, found: list[Error]) -> None:
    expected = _expected(path)
    assert expected
    # The type of a rejected expression is unknown, which strict mode reports as well.
    rejected = [error for error in _found_in(path, found) if not error[2].startswith("reportUnknown")]
    assert rejected == sorted(expected)


def test_mypy_accepts_snippets_new_projects_and_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "late-show"]) == 0
    for page in pages():
        if name_of(page).startswith(("README", "docs/")) and not needs_packages(page):
            lines = list[str]()
            for block, _ in python_blocks(page):
                lines += [*[""] * (block.line - 1 - len(lines)), *block.text.splitlines()]
            module = re.sub(r"\W", "_", name_of(page))
            (tmp_path / f"{module}.py").write_text("\n".join([*lines, ""]), encoding="utf-8")
    # A page has several programs, and prints the content of results whose kind its server decides.
    away = [f"--disable-error-code={code}" for code in ("import-not-found", "no-redef", "str-bytes-safe", "union-attr")]
    for arguments in (["--strict", str(SNIPPETS / "accepted")], [*away, "."]):
        command = [sys.executable, "-m", "mypy", "--python-executable", sys.executable, "--follow-imports=silent"]
        run = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
