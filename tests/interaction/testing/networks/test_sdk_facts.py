"""Reports of the mark about the SDK's own `MCPServer`, whose instances share their keys."""

import pytest

from tests.kit.inner_pytest import CINEMA, QUIET

pytest_plugins = ["pytester"]

SERVERS = (
    CINEMA
    + """
import re
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity

from roundtrip.testing import Drop


class Snack(BaseModel):
    name: str


class Account(BaseModel):
    value: str


BOOKED = []


async def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


async def snack(seat: Annotated[Seat, Resolve(seat)]) -> Elicit[Snack]:
    return Elicit(f"Something to eat in the {seat.row} row?", Snack)


def sdk(keys):
    return MCPServer("cinema", request_state_security=RequestStateSecurity(keys=keys))


def cinema(server):
    @server.tool()
    async def book(
        film: str, seat: Annotated[Seat, Resolve(seat)], snack: Annotated[Snack, Resolve(snack)]
    ) -> str:
        BOOKED.append(film)
        return f"{film}, {seat.row}, {snack.name}: ticket {len(BOOKED)}"

    return server


def asking_for(whose, wording):
    async def account() -> Elicit[Account]:
        return Elicit(wording.format(whose), Account)

    return account


def bank(server, wording, reordered=False):
    sender, receiver = asking_for("sender", wording), asking_for("receiver", wording)
    if reordered:

        @server.tool()
        async def transfer(
            receiver: Annotated[Account, Resolve(receiver)], sender: Annotated[Account, Resolve(sender)]
        ) -> str:
            return f"from {sender.value} to {receiver.value}"

    else:

        @server.tool()
        async def transfer(
            sender: Annotated[Account, Resolve(sender)], receiver: Annotated[Account, Resolve(receiver)]
        ) -> str:
            return f"from {sender.value} to {receiver.value}"

    return server


ANSWERS = {re.compile("Which row"): "back", re.compile("eat"): "nuts"}
"""
)


def run(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    pytester.makepyfile(test_cinema=SERVERS + test)
    return pytester.runpytest_inprocess("-rA", "--tb=short", *QUIET)


def test_repeated_last_leg_runs_the_sdk_body_twice(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(eras="both", hostile=True, secrets=["Solaris, back"], deploy=lambda keys: cinema(sdk(keys)))
async def test_booking():
    BOOKED.clear()
    call = await User(lambda keys: cinema(sdk(keys)), ANSWERS, principal="ada").call("book", film="Solaris")
    assert call.value == "Solaris, back, nuts: ticket 1"
""",
    )
    result.assert_outcomes(failed=3, passed=15)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED test_cinema.py::test_booking[[]duplicate[]] - *",
            "FAILED test_cinema.py::test_booking[[]duplicate-at-once[]] - *",
            "FAILED test_cinema.py::test_booking[[]drop[]] - *",
            "*Breach: a leg was delivered twice, and answered with the result 'Solaris, back, nuts: ticket 1' "
            "and with the result 'Solaris, back, nuts: ticket 2'; what it does, it has probably done twice; "
            "exactly_once=True prevents it",
            "*Breach: the response to a leg was lost, so it was sent again, and answered with the result "
            "'Solaris, back, nuts: ticket 1' and with the result 'Solaris, back, nuts: ticket 2'; *",
        ]
    )


def test_keyless_sdk_instances_cannot_share_calls(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(hostile=["hop", "restart", "rotate"], eras="retry")
async def test_booking():
    await User(lambda: cinema(MCPServer("cinema")), ANSWERS).call("book", film="Solaris")
""",
    )
    result.assert_outcomes(passed=1, failed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*Breach: another instance did not go on with the call: the error -32602 "
            "'Invalid or expired requestState'; do all instances have the same keys*",
            "*Breach: the restarted server did not go on with the call: *",
        ]
    )


TRANSFER = """
@pytest.mark.roundtrip(eras="retry", hostile=["deploy"], deploy=lambda keys: bank({make}, {wording!r}, reordered=True))
async def test_transfer():
    user = User(lambda keys: bank({make}, {wording!r}), {answers})
    call = await user.call("transfer")
    assert call.value == "from ada to eve"
    assert len(call.questions) == 2
"""
BY_SDK_NAME = """{
    "test_cinema:asking_for.<locals>.account": "ada", "test_cinema:asking_for.<locals>.account#1": "eve"
}"""
BY_WORDING = """{re.compile("sender"): "ada", re.compile("receiver"): "eve"}"""
BY_NAME = """{"account@sender": "ada", "account@receiver": "eve"}"""


def test_reordered_sdk_closures_with_one_wording_swap_answers(
    pytester: pytest.Pytester,
) -> None:
    result = run(pytester, TRANSFER.format(make="sdk(keys)", wording="Whose account?", answers=BY_SDK_NAME))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   AssertionError: assert 'from eve to ada' == 'from ada to eve'",
            "FAILED test_cinema.py::test_transfer[[]deploy[]] - *",
        ]
    )


def test_reordered_sdk_closures_with_different_wordings_ask_again(
    pytester: pytest.Pytester,
) -> None:
    result = run(pytester, TRANSFER.format(make="sdk(keys)", wording="Account of the {}?", answers=BY_WORDING))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E   AssertionError: assert 4 == 2", "FAILED test_cinema.py::test_transfer[[]deploy[]] - *"]
    )


@pytest.mark.parametrize(("wording", "answers"), [("Whose account?", BY_NAME), ("Account of the {}?", BY_WORDING)])
def test_on_a_roundtrip_server_the_same_closures_keep_their_answers(
    pytester: pytest.Pytester, wording: str, answers: str
) -> None:
    result = run(pytester, TRANSFER.format(make="Server('bank', keys=keys)", wording=wording, answers=answers))
    result.assert_outcomes(passed=2)


def test_volatile_computed_value_changes_with_every_leg(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
MADE = []


def voucher() -> str:
    MADE.append("one more")
    return f"voucher {len(MADE)}"


def shop(server, once):
    @server.tool()
    async def buy(
        voucher: Annotated[str, Resolve(voucher, once=True) if once else Resolve(voucher)],
        seat: Annotated[Seat, Resolve(lambda: Elicit("Which row?", Seat))],
    ) -> str:
        return voucher

    return server


@pytest.fixture(params=["sdk", "roundtrip"])
def make(request):
    MADE.clear()
    if request.param == "sdk":
        return lambda keys: shop(sdk(keys), once=False)
    from roundtrip import Resolve as Once

    globals()["Resolve"] = Once
    return lambda keys: shop(Server("shop", keys=keys), once=True)


@pytest.mark.roundtrip(eras="retry", hostile=["strip", Drop(leg=2)])
async def test_buying(make):
    call = await User(make, {re.compile("row"): "back"}).call("buy")
    assert call.value == "voucher 1"
""",
    )
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED test_cinema.py::test_buying[[]sdk-retry[]] - *",
            "E   AssertionError: assert 'voucher 2' == 'voucher 1'",
            "FAILED test_cinema.py::test_buying[[]sdk-strip[]] - *",
            "E   AssertionError: assert 'voucher 3' == 'voucher 1'",
            "FAILED test_cinema.py::test_buying[[]sdk-drop-leg-2[]] - *",
        ]
    )
