"""Test the cinema's tool, from a first test to hostile networks."""

import pytest
from cinema import make_server, price
from mcp.shared.exceptions import MCPError

from roundtrip.testing import CANCEL, DECLINE, User, paths

ANSWERS = {"choose_seat": {"row": "middle"}, "choose_snack": "popcorn"}


async def test_a_seat_and_a_snack(call_snapshot):
    assert await User(make_server, ANSWERS).call("book", film="Solaris") == call_snapshot


@pytest.mark.roundtrip(eras="both")
async def test_declining_the_snack_still_books_a_seat():
    call = await User(make_server, {**ANSWERS, "choose_snack": DECLINE}).call("book", film="Solaris")
    assert call.value == "Booked Solaris, middle row, with nothing to eat."


@pytest.mark.roundtrip(eras="both")
async def test_cancelling_the_seat_books_none():
    call = await User(make_server, {"choose_seat": CANCEL}).call("book", film="Solaris")
    assert call.is_error
    assert call.names == ["choose_seat"]


@pytest.mark.roundtrip(eras="both")
async def test_an_unknown_row_is_asked_again():
    rows = [{"row": "roof"}, {"row": "back"}]
    call = await User(make_server, {**ANSWERS, "choose_seat": rows}).call("book", film="Solaris")
    assert call.value == "Booked Solaris, back row, with popcorn to eat."
    assert "(The last answer was not valid" in call.questions[1].message


@pytest.mark.roundtrip(eras="both")
async def test_the_snack_question_shows_the_price(overrides):
    server = make_server(["k" * 32])
    overrides(server, {price: lambda: 99})
    call = await User(server, ANSWERS).call("book", film="Solaris")
    assert call.questions[1].message == "The seat is 99 euros. Something to eat with it?"


@pytest.mark.roundtrip(hostile=True, deploy=make_server)
async def test_booking_on_any_network():
    call = await User(make_server, ANSWERS).call("book", film="Solaris")
    assert call.value == "Booked Solaris, middle row, with popcorn to eat."


async def test_no_path_crashes():
    explored = await paths(make_server, "book", {"film": "Solaris"}, depth=2)
    explored.assert_no_crash()


async def test_a_slow_user_gets_an_expired_token(clock):
    class Slow:
        name = "slow"

        async def carry(self, leg, route):
            clock.advance(601 if leg.state else 0)
            return await route.onward(leg)

    with pytest.raises(MCPError, match="Invalid or expired"):
        await User(make_server, ANSWERS, network=Slow()).call("book", film="Solaris")
