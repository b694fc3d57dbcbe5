"""Networks attack apps: a server that lets a hostile host or view have an effect is found."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from roundtrip import Context, Pages, Server
from roundtrip.adapters.finding import low_level
from roundtrip.testing import DECLINE, User
from roundtrip.testing.networks.deliveries import Breach
from roundtrip.untrusted import mapping_of
from tests.kit.approving import reader
from tests.kit.page_users import BASE, KEY

pytestmark = pytest.mark.anyio

Arguments = dict[str, Any]


def subject(ctx: Any) -> str | None:
    token = get_access_token()
    return token.subject if token is not None else None


def ann(ctx: object) -> str:
    return "ann"


def cinema(**options: Any) -> Server[Any]:
    given: dict[str, Any] = {"principal": subject, "keys": [KEY], **options}
    server = Server[Any]("cinema", pages=Pages(base_url=BASE, authenticate=reader, wait=5), **given)

    @server.tool
    async def many(number: int, ctx: Context) -> int:
        return sum([await ctx.ask(f"q{place}", f"Number {place}?", int) for place in range(number)])

    return server


class Fault:
    """Middleware that changes what an app sends, and what it gets."""

    def __init__(self) -> None:
        self.ticket: Any = None
        self.round: Any = None
        self.answers: Any = None

    def change(self, arguments: Arguments) -> Arguments:
        return arguments

    def spoil(self, result: Any, arguments: Mapping[str, Any]) -> Any:
        return result

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        params = dict(ctx.params or {})
        if params.get("name") not in ("answer_call", "look_at_call"):
            return await call_next(ctx)
        sent = dict(params["arguments"])
        changed = self.change(dict(sent)) if params["name"] == "answer_call" else sent
        result: Any = await call_next(replace(ctx, params={**params, "arguments": changed}))
        state = mapping_of(mapping_of(result.get("structuredContent")).get("state"))
        if state.get("kind") == "asking":
            self.ticket, self.round = changed["ticket"], state["round"]
        self.answers = changed.get("answers", self.answers)
        return self.spoil(result, sent) if params["name"] == "answer_call" else result


class TakesEveryTicket(Fault):
    def change(self, arguments: Arguments) -> Arguments:
        return {**arguments, "ticket": self.ticket}


class TellsTicketsApart(Fault):
    def spoil(self, result: Any, arguments: Mapping[str, Any]) -> Any:
        is_text = isinstance(arguments["ticket"], str)
        return result if is_text else {**result, "content": [{"type": "text", "text": "It must be a text."}]}


class TakesEveryRound(Fault):
    def change(self, arguments: Arguments) -> Arguments:
        return {**arguments, "round": self.round}


class TakesEveryRoundAndDeniesIt(TakesEveryRound):
    def spoil(self, result: Any, arguments: Mapping[str, Any]) -> Any:
        state = result["structuredContent"]["state"]
        return {**result, "structuredContent": {"state": {**state, "notice": "Nothing was sent."}}}


class TakesAnswersAfterTheEnd(Fault):
    def spoil(self, result: Any, arguments: Mapping[str, Any]) -> Any:
        state = result["structuredContent"]["state"]
        is_new = state["kind"] != "ended"
        return result if is_new else {**result, "structuredContent": {"state": {**state, "notice": None}}}


class MendsAnswers(Fault):
    def change(self, arguments: Arguments) -> Arguments:
        return {**arguments, "answers": {"q0-f0": ["1"], "decision": ["answer"]}}


class Crashes(Fault):
    def change(self, arguments: Arguments) -> Arguments:
        return {**arguments, "answers": {name: [*texts] for name, texts in arguments["answers"].items()}}


FAULTS: Final[list[tuple[Callable[[], Fault], str, str]]] = [
    (TakesEveryTicket, "tamper", "a ticket with its first character changed, and the server answered with {'kind'"),
    (TakesEveryTicket, "swap", "a ticket with another call's secret, and"),
    (TellsTicketsApart, "tamper", "all bad tickets must get the same error"),
    (TakesEveryRound, "invent", "null as a round, and"),
    (TakesEveryRoundAndDeniesIt, "invent", "null as a round, and"),
    (
        TakesAnswersAfterTheEnd,
        "invent",
        "that was sent before, and the server answered with {'kind': 'ended'",
    ),
    (MendsAnswers, "garble", "null as the answers, and"),
    (Crashes, "garble", "null as the answers, and the server answered with the error"),
]


@pytest.mark.parametrize(("fault", "network", "told"), FAULTS)
async def test_attack_on_an_app_finds_the_fault(fault: Callable[[], Fault], network: str, told: str) -> None:
    server = cinema()
    low_level(server).middleware.append(fault())
    user = User(server, {"q0": 1, "q1": 2}, client="apps", network=network, principal="ann")
    with pytest.raises(Breach) as found:
        await user.call("many", number=2)
    assert told in str(found.value)


async def test_foreign_user_who_can_answer_is_found() -> None:
    """The server takes all users for one."""
    user = User(cinema(principal=ann), {"q0": 1}, client="apps", network="swap", principal="ann")
    with pytest.raises(Breach, match="a user's ticket from another user, and"):
        await user.call("many", number=1)


@pytest.mark.parametrize("network", ["tamper", "swap", "invent", "garble"])
async def test_call_under_attack_ends_as_without(network: str) -> None:
    user = User(cinema(), {"q0": ["one", 1], "q1": 2, "q2": DECLINE}, client="apps", network=network, principal="ann")
    call = await user.call("many", number=3)
    assert (call.is_error, call.names) == (True, ["q0", "q0", "q1", "q2"])
    known = cinema(principal=ann)
    assert (await User(known, {"q0": 1, "q1": 2}, client="apps", network=network).call("many", number=2)).value == 3
