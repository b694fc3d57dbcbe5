"""The project that the page about testing tells readers to copy passes as it is."""

import pytest

from tests.docs.pages import ROOT
from tests.kit.inner_pytest import QUIET

pytest_plugins = ["pytester"]

PROJECT = ROOT / "examples" / "tests"


def test_the_project_to_copy_passes_as_it_is(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # syrupy leaves it to the main process to tell of unused snapshots, and takes this one for a worker of it.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    for file in PROJECT.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copied = pytester.path / file.relative_to(PROJECT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())
    outcomes = pytester.runpytest_subprocess(*QUIET, "-c", str(pytester.path / "pyproject.toml")).parseoutcomes()
    assert not {"failed", "errors", "skipped"} & outcomes.keys(), outcomes
    assert outcomes["passed"] >= 25
