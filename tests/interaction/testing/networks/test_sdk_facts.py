"""Facts about the SDK's own `MCPServer` on hostile networks; its instances share their keys."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

from roundtrip import Server
from roundtrip.testing import Breach, Deploy, Strip, User
from roundtrip.testing.user_defaults import NETWORKS
from tests.interaction.testing.networks.hand_made import honest
from tests.interaction.testing.seats import Seat, Snack

pytestmark = pytest.mark.anyio

Make = Callable[[Sequence[bytes]], MCPServer[Any]]

BOOKED: list[str] = []
ANSWERS: dict[Any, Any] = {re.compile("Which row"): "back", re.compile("eat"): "nuts"}


def sdk(keys: Sequence[bytes]) -> MCPServer[Any]:
    return MCPServer[Any]("cinema", request_state_security=RequestStateSecurity(keys=list(keys)))


def roundtrip(keys: Sequence[bytes]) -> MCPServer[Any]:
    return Server[Any]("cinema", keys=keys)


async def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


async def snack(seat: Annotated[Seat, Resolve(seat)]) -> Elicit[Snack]:
    return Elicit(f"Something to eat in the {seat.row} row?", Snack)


def cinema(server: MCPServer[Any]) -> MCPServer[Any]:
    @server.tool()
    async def book(film: str, seat: Annotated[Seat, Resolve(seat)], snack: Annotated[Snack, Resolve(snack)]) -> str:
        BOOKED.append(film)
        return f"{film}, {seat.row}, {snack.name}: ticket {len(BOOKED)}"

    return server


async def breaches(make: Callable[..., MCPServer[Any]], names: Iterable[str]) -> dict[str, str]:
    """Book on each of these networks, and return what they find."""
    found: dict[str, str] = {}
    for name in names:
        BOOKED.clear()
        try:
            call = await User(make, ANSWERS, principal="ada", network=honest(name)).call("book", film="Solaris")
        except Breach as breach:
            found[name] = str(breach)
        else:
            assert call.value == "Solaris, back, nuts: ticket 1", name
    return found


async def test_repeated_last_leg_runs_the_sdk_body_twice() -> None:
    def make(keys: Sequence[bytes]) -> MCPServer[Any]:
        return cinema(sdk(keys))

    found = await breaches(make, NETWORKS)
    assert sorted(found) == ["drop", "duplicate", "duplicate-at-once"]
    twice = "the result 'Solaris, back, nuts: ticket 1' and with the result 'Solaris, back, nuts: ticket 2'"
    assert all(twice in said for said in found.values())
    assert found["duplicate"].startswith("a leg was delivered twice, and the server answered with ")
    assert found["duplicate"].endswith("; exactly_once=True prevents this")
    assert found["drop"].startswith("the response to a leg was lost, so it was sent again, and the server answered ")


async def test_keyless_sdk_instances_cannot_share_calls() -> None:
    found = await breaches(lambda: cinema(MCPServer("cinema")), ["hop", "restart"])
    lost = "the error -32602 'Invalid or expired requestState'; do all instances have the same keys"
    assert found["hop"].startswith(f"another instance did not continue the call: {lost}")
    assert found["restart"].startswith("the restarted server did not continue the call: ")


class Account(BaseModel):
    value: str


def asking_for(message: str) -> Any:
    async def account() -> Elicit[Account]:
        return Elicit(message, Account)

    return account


def bank(server: MCPServer[Any], wording: str, *, reordered: bool = False) -> MCPServer[Any]:
    sender, receiver = asking_for(wording.format("sender")), asking_for(wording.format("receiver"))

    async def transfer(
        sender: Annotated[Account, Resolve(sender)], receiver: Annotated[Account, Resolve(receiver)]
    ) -> str:
        return f"from {sender.value} to {receiver.value}"

    async def reordered_transfer(
        receiver: Annotated[Account, Resolve(receiver)], sender: Annotated[Account, Resolve(sender)]
    ) -> str:
        return f"from {sender.value} to {receiver.value}"

    server.add_tool(reordered_transfer if reordered else transfer, name="transfer")
    return server


async def transferred(make: Make, wording: str, answers: dict[Any, Any]) -> tuple[Any, int]:
    """Return the result of a call over a deploy that reorders parameters, and the number of questions."""

    def old(keys: Sequence[bytes]) -> MCPServer[Any]:
        return bank(make(keys), wording)

    def new(keys: Sequence[bytes]) -> MCPServer[Any]:
        return bank(make(keys), wording, reordered=True)

    call = await User(old, answers, network=Deploy(new)).call("transfer")
    return call.value, len(call.questions)


ONE_WORDING, TWO_WORDINGS = "Whose account?", "Account of the {}?"
CLOSURE = f"{__name__}:asking_for.<locals>.account"
BY_WORDING: dict[Any, Any] = {re.compile("sender"): "ada", re.compile("receiver"): "eve"}


async def test_reordered_sdk_closures_with_one_wording_swap_answers() -> None:
    answers = {CLOSURE: "ada", f"{CLOSURE}#1": "eve"}
    assert await transferred(sdk, ONE_WORDING, answers) == ("from eve to ada", 2)


async def test_reordered_sdk_closures_with_different_wordings_ask_again() -> None:
    assert await transferred(sdk, TWO_WORDINGS, BY_WORDING) == ("from ada to eve", 4)


async def test_on_a_roundtrip_server_the_same_closures_keep_their_answers() -> None:
    by_name = {"account@sender": "ada", "account@receiver": "eve"}
    assert await transferred(roundtrip, ONE_WORDING, by_name) == ("from ada to eve", 2)
    assert await transferred(roundtrip, TWO_WORDINGS, BY_WORDING) == ("from ada to eve", 2)


async def test_volatile_computed_value_changes_with_every_leg() -> None:
    made: list[str] = []

    def voucher() -> str:
        made.append("one more")
        return f"voucher {len(made)}"

    def shop(keys: Sequence[bytes]) -> MCPServer[Any]:
        server = sdk(keys)

        @server.tool()
        async def buy(
            voucher: Annotated[str, Resolve(voucher)],
            seat: Annotated[Seat, Resolve(lambda: Elicit("Which row?", Seat))],
        ) -> str:
            return voucher

        return server

    values: list[Any] = []
    for network in ([], [Strip()]):
        made.clear()
        values.append((await User(shop, {re.compile("row"): "back"}, network=network).call("buy")).value)
    assert values == ["voucher 2", "voucher 3"]
