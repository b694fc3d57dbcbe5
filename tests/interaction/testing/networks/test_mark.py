"""The mark, tried by running pytest inside pytest."""

import pytest

pytest_plugins = ["pytester"]

CINEMA = """
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Deploy, Drop, Duplicate, Hop, Tamper, User

pytestmark = [pytest.mark.anyio, *MARKS]


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Seat(BaseModel):
    row: str


async def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


def make(keys=(b"k" * 32,)):
    server = Server("cinema", keys=keys)

    @server.tool()
    async def book(film: str, seat: Annotated[Seat, Resolve(seat)]) -> str:
        return f"{film}, {seat.row}"

    return server


async def book(server=make, **options):
    return await User(server, {"seat": {"row": "back"}}, **options).call("book", film="Solaris")
"""
HOSTILE = [
    *("hop", "restart", "duplicate", "duplicate-at-once", "drop", "reorder", "rotate", "delay", "tamper", "swap"),
    *("strip", "invent", "garble", "interleave", "eavesdrop"),
]


def run(pytester: pytest.Pytester, test: str, *options: str, marks: str = "") -> pytest.RunResult:
    pytester.makepyfile(test_cinema=f"import pytest\nMARKS = [{marks}]\n" + CINEMA + test)
    return pytester.runpytest_inprocess("-rA", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", *options)


def collected(pytester: pytest.Pytester, test: str, *, marks: str = "") -> list[str]:
    """Return the ids in brackets after the names of the tests."""
    result = run(pytester, test, "--collect-only", "-q", marks=marks)
    return [line.partition("[")[2].rstrip("]") for line in result.outlines if "::" in line]


def test_hostile_test_runs_on_its_eras_and_networks(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(hostile=True)
async def test_booking():
    assert (await book()).value == "Solaris, back"
""",
    )
    result.assert_outcomes(passed=2 + len(HOSTILE))
    for name in ("retry", "live", *HOSTILE):
        result.stdout.fnmatch_lines([f"PASSED test_cinema.py::test_booking[[]{name}[]]"])


def test_networks_are_left_out_by_name(pytester: pytest.Pytester) -> None:
    ids = collected(
        pytester,
        """
@pytest.mark.roundtrip(hostile=True, without=["hop", "eavesdrop"], eras="retry")
async def test_booking(): ...
""",
    )
    assert ids == ["retry", *(name for name in HOSTILE if name not in ("hop", "eavesdrop"))]


def test_networks_are_chosen_by_name_as_objects_and_stacked(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(
    eras="retry", hostile=["hop", Drop(leg=2), Drop(leg=2), ("hop", Duplicate(at_once=True)), "deploy"], deploy=make
)
async def test_booking():
    assert (await book()).value == "Solaris, back"
""",
    )
    result.assert_outcomes(passed=6)
    names = ["hop", "drop-leg-2", "drop-leg-2#2", "hop+duplicate-at-once", "deploy"]
    result.stdout.fnmatch_lines([f"PASSED test_cinema.py::test_booking[[]{name}[]]" for name in names])


def test_another_build_is_one_network_more(pytester: pytest.Pytester) -> None:
    test = """
@pytest.mark.roundtrip(hostile=True, eras="retry", deploy=make)
async def test_booking(): ...
"""
    assert collected(pytester, test) == ["retry", *HOSTILE, "deploy"]


def test_declared_secrets_must_not_appear_in_tokens(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(hostile=["eavesdrop"], eras="retry", secrets=["Which row", "seat"])
async def test_booking():
    await book()

@pytest.mark.roundtrip(hostile=["eavesdrop"], eras="retry", secrets="nowhere in it")
async def test_another_booking():
    await book()
""",
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*Breach: the token is readable without a key, and contains 'seat'"])


MISTAKES = {
    'hostile=["hopp"]': ": there is no network 'hopp'; the networks are hop, restart, *, abort and deploy",
    'hostile=True, without=["hopp"]': ": there is no network 'hopp'; the networks are hop, *",
    'hostile=True, without="hop"': ": without= must be a list of names: [[]'hop'[]]",
    'hostile="hop"': ": hostile= must be True, or a list of networks and their names",
    "hostile=[Hop]": ": Hop is a class; pass an instance of it: Hop(...)",
    "hostile=[7]": ": 7 is not a network: it must have a name and carry(leg, route)",
    'hostile=["deploy"]': ": 'deploy' takes a function that makes the other build: deploy=make_other",
    "hostile=True, deploy='make'": ": deploy= must be a function that makes an instance of the other build",
    "hostil=True": ": it has no option hostil; its options are eras, hostile, without, deploy, secrets, over",
    "over='pigeon'": ": over= must be 'memory' or 'http', got 'pigeon'",
    'eras="stone age"': ": eras= must be one of 'retry', 'live', 'both', 'task', 'all', got 'stone age'",
    '"retry", ["hop"]': " takes only the eras by position",
    "deploy=make": ": without=, deploy= and secrets= need hostile=; add hostile=True",
    'secrets=["4711"]': ": without=, deploy= and secrets= need hostile=; add hostile=True",
}
"""Options of the mark, and the ends of their errors."""


def test_mistaken_mark_lists_the_valid_options(pytester: pytest.Pytester) -> None:
    head = "import pytest\nMARKS = []\n" + CINEMA
    files = {
        f"test_mark_{place}": f"{head}\n@pytest.mark.roundtrip({options})\nasync def test_booking(): ...\n"
        for place, options in enumerate(MISTAKES)
    }
    pytester.makepyfile(**files)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
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
    assert (await book(SERVER)).value == "Solaris, back"
""",
    )
    result.assert_outcomes(passed=1 + len(HOSTILE) - 3, skipped=3)
    result.stdout.fnmatch_lines_random(
        [
            "SKIPPED * another instance takes a function that makes the server: User(make_server), not User(server)",
            "SKIPPED * a restart takes a function that makes the server: *",
            "SKIPPED * other keys take a function that makes the server with them: def make_server(keys): ...",
        ]
    )


def test_module_mark_holds_until_a_test_overrides(pytester: pytest.Pytester) -> None:
    ids = collected(
        pytester,
        """
async def test_as_the_module(): ...

@pytest.mark.roundtrip(eras="both", without=["hop"])
async def test_otherwise(): ...

@pytest.mark.roundtrip(hostile=False)
async def test_at_peace(): ...
""",
        marks='pytest.mark.roundtrip("retry", hostile=["hop", "drop"])',
    )
    assert ids == ["retry", "hop", "drop", "retry", "live", "drop", "retry"]


def test_test_failing_under_one_network_fails_only_there(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
TIMES = []

def counting(keys):
    server = Server("cinema", keys=keys)

    @server.tool()
    async def book(film: str, seat: Annotated[Seat, Resolve(seat)]) -> str:
        TIMES.append(film)
        return "booked"

    return server

@pytest.mark.roundtrip(hostile=["hop", "tamper", "drop", "swap"])
async def test_booking():
    TIMES.clear()
    assert (await book(counting)).value == "booked"
    assert len(TIMES) == 1
""",
    )
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        ["E   AssertionError: assert 2 == 1", "FAILED test_cinema.py::test_booking[[]drop[]] *"]
    )


def test_a_network_of_the_users_own_is_as_good(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
from dataclasses import replace

class Forgetful:
    name = "forgetful"

    async def carry(self, leg, route):
        return await route.onward(replace(leg, state=None))

@pytest.mark.roundtrip(hostile=[Forgetful()], eras="retry")
async def test_booking():
    await book(allow_unused=True)
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the call still asks after 10 rounds*"])
