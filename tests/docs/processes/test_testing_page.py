"""The tests on the page about testing are tests: pytest runs them, the first time to write their snapshots."""

import importlib
import pkgutil

import pytest

import roundtrip
from tests.docs.pages import ROOT, blocks
from tests.kit.inner_pytest import QUIET, run_pytest

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "testing.md"
PROJECT = ROOT / "examples" / "tests"
BACKEND = "import pytest\n\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"


@pytest.fixture(autouse=True)
def _everything_imported() -> None:
    # pytester forgets the modules that a run imports, and names that are imported on first use would keep the old ones.
    for module in pkgutil.walk_packages(roundtrip.__path__, "roundtrip."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@pytest.fixture(autouse=True)
def _no_worker_of_another_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    # syrupy leaves it to the main process to tell of unused snapshots, and takes this one for a worker of it.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def test_the_tests_on_the_page_pass(pytester: pytest.Pytester) -> None:
    source = "\n".join(block.text for block in blocks(PAGE) if block.language == "python")
    pytester.makeconftest(BACKEND)
    pytester.makeini("[pytest]\nanyio_mode = auto")
    pytester.makepyfile(test_page=source)
    first = run_pytest(pytester)
    first.stdout.fnmatch_lines(["*test_booking_looks_the_same*"])
    outcomes = first.parseoutcomes()
    assert outcomes["failed"] == 1, "only the snapshot is missing"
    # Fifteen networks and a deploy, both eras twice, and the rest once.
    assert outcomes["passed"] >= 22
    for options in (["--snapshot-update"], []):
        again = run_pytest(pytester, *options, "-k", "looks_the_same").parseoutcomes()
        assert "passed" in again
        assert "failed" not in again
    written = (pytester.path / "__snapshots__" / "test_page" / "test_booking_looks_the_same.txt").read_text()
    assert written.strip() in {block.text.strip() for block in blocks(PAGE)}


def test_the_project_to_copy_passes_as_it_is(pytester: pytest.Pytester) -> None:
    for file in PROJECT.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copied = pytester.path / file.relative_to(PROJECT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())
    outcomes = pytester.runpytest_subprocess(*QUIET, "-c", str(pytester.path / "pyproject.toml")).parseoutcomes()
    assert not {"failed", "errors", "skipped"} & outcomes.keys(), outcomes
    assert outcomes["passed"] >= 25
