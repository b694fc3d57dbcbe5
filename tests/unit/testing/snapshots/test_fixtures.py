"""The fixtures, tried by running pytest inside pytest."""

from pathlib import Path

import pytest

from tests.kit.inner_pytest import CINEMA, run_pytest

pytest_plugins = ["pytester"]

BOOKING = """
async def booking(row="back", **options):
    return await User(server, {"seat": {"row": row}}, **options).call("book", film="Solaris")
"""


TEST = """
async def test_booking(call_snapshot):
    assert await booking() == call_snapshot
"""


def snapshots(pytester: pytest.Pytester) -> dict[str, str]:
    """Return the contents of the snapshots, by file name."""
    folder = pytester.path / "__snapshots__"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


def written(pytester: pytest.Pytester, tests: str) -> Path:
    return pytester.makepyfile(test_cinema=CINEMA + BOOKING + tests)


def test_missing_snapshot_fails_or_is_written_on_request(
    pytester: pytest.Pytester,
) -> None:
    written(pytester, TEST)
    missing = run_pytest(pytester)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*Snapshot 'test_booking' does not exist!*"])
    assert snapshots(pytester) == {}
    run_pytest(pytester, "--snapshot-update").assert_outcomes(passed=1)
    (name,) = snapshots(pytester)
    assert name == "test_cinema/test_booking.txt"
    run_pytest(pytester).assert_outcomes(passed=1)
    # A changed tool fails with the lines that changed, and no others.
    pytester.makepyfile(test_cinema=(CINEMA + BOOKING + TEST).replace("Which row for", "Which row, to see"))
    changed = run_pytest(pytester)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["E*- *> Which row for Solaris[?]", "E*+ *> Which row, to see Solaris[?]"])
    changed.stdout.no_fnmatch_line("E*- *states*")


def test_each_era_parameter_assertion_and_kind_has_a_file(pytester: pytest.Pytester) -> None:
    written(
        pytester,
        """
@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize("row", ["front", "back"])
async def test_rows(row, call_snapshot, wire_snapshot):
    call = await booking(row)
    assert call == call_snapshot
    assert call == call_snapshot
    assert call == call_snapshot(name="again")
    assert call == wire_snapshot
""",
    )
    run_pytest(pytester, "--snapshot-update").assert_outcomes(passed=4)
    assert list(snapshots(pytester)) == sorted(
        f"test_cinema/test_rows[{era}-{row}]{more}"
        for era in ("live", "retry")
        for row in ("front", "back")
        for more in (".txt", ".1.txt", "[again].txt", ".wire")
    )
    run_pytest(pytester).assert_outcomes(passed=4)


def test_redaction_holds_for_the_whole_test(pytester: pytest.Pytester) -> None:
    written(
        pytester,
        """
from syrupy.filters import props

@pytest.fixture
def call_snapshot(call_snapshot):
    return call_snapshot.redacting("film")

async def test_booking(call_snapshot):
    call = await booking("middle")
    assert call == call_snapshot
    assert call == call_snapshot.redacting("row")
    assert call == call_snapshot
    assert call == call_snapshot.with_defaults(exclude=props("era"))(name="other")
""",
    )
    run_pytest(pytester, "--snapshot-update").assert_outcomes(passed=1)
    texts = {name.removeprefix("test_cinema/test_booking"): text for name, text in snapshots(pytester).items()}
    assert not any("Solaris" in text for text in texts.values())
    # The rows are redacted from the second one on, and then for good.
    shows_row = {name: "middle" in text for name, text in texts.items()}
    assert shows_row == {".txt": True, ".1.txt": False, ".2.txt": False, "[other].txt": False}


def test_non_call_is_rejected_with_advice(pytester: pytest.Pytester) -> None:
    written(
        pytester,
        """
async def test_booking(call_snapshot):
    assert (await booking()).value == call_snapshot
""",
    )
    result = run_pytest(pytester, "--snapshot-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*must be compared with a Conversation, got a str; *"])


def test_without_syrupys_plugin_the_fixture_says_so(pytester: pytest.Pytester) -> None:
    written(pytester, TEST)
    result = run_pytest(pytester, "-p", "no:syrupy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*call_snapshot needs syrupy's plugin, and pytest was run without it*"])


def test_snapshot_fixture_of_another_plugin_is_distinguished_from_syrupy(pytester: pytest.Pytester) -> None:
    written(pytester, TEST + "\n@pytest.fixture\ndef snapshot():\n    return 'mine'\n")
    result = run_pytest(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the fixture `snapshot` is not syrupy's*"])
