"""The tests on the page about testing are tests: pytest runs them, the first time to write their snapshots."""

import importlib
import pkgutil
from contextlib import suppress

import pytest

import roundtrip
from tests.docs.pages import ROOT, blocks
from tests.kit.inner_pytest import run_pytest

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "testing.md"
BACKEND = "import pytest\n\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"


@pytest.fixture(autouse=True)
def _everything_imported() -> None:
    # pytester forgets the modules that a run imports, and names that are imported on first use would keep the old ones.
    for module in pkgutil.walk_packages(roundtrip.__path__, "roundtrip."):
        if not module.name.endswith("__main__"):
            # Some need packages that are not installed everywhere.
            with suppress(ImportError):
                importlib.import_module(module.name)


def test_the_tests_on_the_page_pass(pytester: pytest.Pytester) -> None:
    source = "\n".join(block.text for block in blocks(PAGE) if block.language == "python")
    pytester.makeconftest(BACKEND)
    pytester.makeini("[pytest]\nanyio_mode = auto")
    pytester.makepyfile(test_page=source)
    first = run_pytest(pytester)
    first.stdout.fnmatch_lines(["*test_booking_looks_the_same*"])
    outcomes = first.parseoutcomes()
    assert outcomes["failed"] == 1, "only the snapshot is missing"
    # Each network and a deploy, and the rest once.
    assert outcomes["passed"] >= 22
    for options in (["--snapshot-update"], []):
        again = run_pytest(pytester, *options, "-k", "looks_the_same").parseoutcomes()
        assert "passed" in again
        assert "failed" not in again
    written = (pytester.path / "__snapshots__" / "test_page" / "test_booking_looks_the_same.txt").read_text()
    assert written.strip() in {block.text.strip() for block in blocks(PAGE)}
