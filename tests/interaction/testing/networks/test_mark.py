"""The mark, tried by running pytest inside pytest."""

import pytest

from tests.kit.inner_pytest import CINEMA, QUIET

pytest_plugins = ["pytester"]

HEAD = (
    CINEMA
    + """
def make(keys=(b"k" * 32,)):
    made = Server("cinema", keys=keys)
    made.tool()(book)
    return made

async def booked(server=make, **options):
    return await User(server, {"seat": {"row": "back"}}, **options).call("book", film="Solaris")
"""
)
HOSTILE = [
    *("hop", "restart", "duplicate", "duplicate-at-once", "drop", "begin-again", "reorder", "rotate", "delay"),
    *("tamper", "swap", "strip", "invent", "garble", "interleave", "eavesdrop"),
]


def run(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_cinema=HEAD + test)
    return pytester.runpytest_inprocess("-rA", "--tb=short", *QUIET, *options)


def test_hostile_test_runs_on_its_eras_and_networks(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(hostile=True)
async def test_booking():
    assert (await booked()).value == "Solaris, back"
""",
    )
    result.assert_outcomes(passed=2 + len(HOSTILE))
    for name in ("retry", "live", *HOSTILE):
        result.stdout.fnmatch_lines([f"PASSED test_cinema.py::test_booking[[]{name}[]]"])


MISTAKES = {
    'hostile=["hopp"]': ": there is no network 'hopp'; the networks are hop, restart, *, abort and deploy",
    "hostil=True": ": the mark has no option hostil; its options are eras, hostile, without, deploy, secrets, over",
    "over='pigeon'": ": over= must be 'memory' or 'http', got 'pigeon'",
    'eras="stone age"': ": eras= must be one of 'retry', 'live', 'both', 'task', 'all', got 'stone age'",
    '"retry", ["hop"]': " takes the eras as its only positional argument",
    "deploy=make": ": without=, deploy= and secrets= need hostile=; add hostile=True",
    'secrets=["4711"]': ": without=, deploy= and secrets= need hostile=; add hostile=True",
}
"""Options of the mark, and the ends of their errors."""


def test_mistaken_mark_lists_the_valid_options(pytester: pytest.Pytester) -> None:
    files = {
        f"test_mark_{place}": f"{HEAD}\n@pytest.mark.roundtrip({options})\nasync def test_booking(): ...\n"
        for place, options in enumerate(MISTAKES)
    }
    pytester.makepyfile(**files)
    result = pytester.runpytest_inprocess(*QUIET)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    for place, error in enumerate(MISTAKES.values()):
        name = f"test_mark_{place}.py::test_booking"
        result.stdout.fnmatch_lines([f"*{name}: @pytest.mark.roundtrip{error}*"])


def test_network_impossible_for_a_plain_server_is_skipped_with_reason(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
SERVER = make()

@pytest.mark.roundtrip(hostile=True, eras="retry")
async def test_booking():
    assert (await booked(SERVER)).value == "Solaris, back"
""",
    )
    result.assert_outcomes(passed=1 + len(HOSTILE) - 3, skipped=3)
    result.stdout.fnmatch_lines_random(
        [
            "SKIPPED * another instance needs a function that makes the server: User(make_server), not User(server)",
            "SKIPPED * a restart needs a function that makes the server: *",
            "SKIPPED * to play other keys, pass a function that makes a server with given keys: *",
        ]
    )


def test_module_mark_holds_until_a_test_overrides(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
pytestmark = pytest.mark.roundtrip("retry", hostile=["hop", "drop"])

async def test_as_the_module(): ...

@pytest.mark.roundtrip(eras="both", without=["hop"])
async def test_otherwise(): ...

@pytest.mark.roundtrip(hostile=False)
async def test_at_peace(): ...
""",
        "--collect-only",
    )
    ids = [line.partition("[")[2].rstrip("]") for line in result.outlines if "::" in line]
    assert ids == ["retry", "hop", "drop", "retry", "live", "drop", "retry"]
