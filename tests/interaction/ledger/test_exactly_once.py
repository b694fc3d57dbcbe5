"""Tools that run once for a call, on networks that repeat, lose and reorder."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, cast

import pytest
from mcp.client import Client
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from roundtrip import Context, Elicit, InvalidSignature, Resolve, Server, ToolError
from roundtrip.ledger import MemoryLedger
from roundtrip.once import exactly_once
from roundtrip.testing import (
    DECLINE,
    Drop,
    Duplicate,
    Era,
    Hop,
    LegByLeg,
    Network,
    Reorder,
    Restart,
    User,
    served,
)
from tests.interaction.ledger.shops import Shop, asked_to_buy, begun, paid, text_of
from tests.kit.shops import KEY
from tests.kit.wire import wire

pytestmark = pytest.mark.anyio

HOSTILE: Sequence[Network] = [Hop(), Drop(), Duplicate(at_once=True)]
YES: Any = {"paid": True}


@pytest.fixture
def shop() -> Shop:
    return Shop(MemoryLedger())


@pytest.mark.parametrize("network", [[Duplicate()], [Restart()], [Reorder()], HOSTILE])
async def test_a_body_runs_once_on_any_network(shop: Shop, network: Sequence[Network]) -> None:
    call = await User(shop, YES, network=network).call("buy", what="tea")
    assert (call.value, shop.ran) == ("tea no. 1, paid", ["tea"])


async def test_a_body_that_fails_fails_once_on_any_network(shop: Shop) -> None:
    async def refuse(what: str, paid: Annotated[bool, Resolve(paid)]) -> str:
        shop.ran.append(what)
        raise ToolError(f"{what} is out, told {len(shop.ran)} times")

    shop.add(refuse)
    call = await User(shop, YES, network=HOSTILE).call("refuse", what="tea")
    assert (call.failure, shop.ran) == ("Error executing tool refuse: tea is out, told 1 times", ["tea"])


async def test_a_tool_that_asks_nothing_first_gets_a_token(shop: Shop) -> None:
    shop.add(shop.give)
    call = await User(shop, network=HOSTILE).call("give", what="tea")
    assert (call.value, shop.ran, call.legs, call.questions) == ("tea no. 1", ["tea"], 2, [])
    # The client of the SDK passes the round without questions.
    async with Client(shop(), mode="2026-07-28") as client:
        assert text_of(await client.call_tool("give", {"what": "tea"})) == "tea no. 2"


async def test_each_call_runs(shop: Shop) -> None:
    """Another call with the same arguments is another call."""
    for number in (1, 2):
        assert (await User(shop, YES).call("buy", what="tea")).value == f"tea no. {number}, paid"


async def test_call_ends_with_the_first_answers_that_its_body_takes(shop: Shop) -> None:
    """A decline runs no body and ends nothing, answers to nothing are ignored, and other answers come too late."""
    legs = await asked_to_buy(shop)
    sent: list[Any] = [{"paid": DECLINE}, {"paid": True, "invented": 1}, {"paid": False}, {"paid": True}]
    told: list[Any] = [await legs.leg("buy", {"what": "tea"}, answers=answers, state=legs.token) for answers in sent]
    declined, bought, other, again = [text_of(result) for result in told]
    assert "could not resolve" in declined
    assert bought == again == "tea no. 1, paid"
    assert "has ended already, with other answers" in other
    assert told[2].is_error
    assert shop.ran == ["tea"]


async def pays() -> Elicit[bool]:
    return Elicit("Pay?", bool)


async def test_masked_errors_stay_masked_when_recalled() -> None:
    shop = Shop(MemoryLedger(), mask_error_details=True)

    async def give() -> str:
        raise ValueError("secret")

    legs = await begun(shop, give)
    told = [text_of(await legs.leg("give", state=legs.token)) for _ in range(2)]
    assert told == ["Error executing tool give"] * 2


async def test_a_result_is_recalled_to_the_letter(shop: Shop) -> None:
    async def give() -> dict[str, Any]:
        return {"é": [1.5, None, {"nested": "\u2028"}], "no": next(numbers)}

    numbers = itertools.count(1)
    legs = await begun(shop, give)
    first, again = [await legs.leg("give", state=legs.token) for _ in range(2)]
    assert first.model_dump() == again.model_dump()


# Bodies that ask.


async def test_repeated_leg_reuses_steps_and_fixed_values(shop: Shop) -> None:
    numbers = itertools.count(1)

    async def draw() -> int:
        return next(numbers)

    async def order(
        pays: Annotated[bool, Resolve(pays)],
        fixed: Annotated[int, Resolve(draw, remember=True)],
        ctx: Context[Any, Any],
    ) -> str:
        stepped = await ctx.step("step", draw)
        agreed = await ctx.ask("agreed", f"{fixed} and {stepped}?", bool)
        return f"{fixed} {stepped} {agreed}"

    legs = await begun(shop, order)
    # A first leg that computes fixes what it computed in its token; from then on nothing changes.
    token = legs.token
    shown: list[str] = []
    for _ in range(3):
        await legs.leg("order", answers={"pays": True}, state=token)
        shown.append(legs.questions["agreed"].message)
    assert len(set(shown)) == 1
    drawn = next(numbers)
    assert drawn == 3
    ended = await legs.leg("order", answers={"agreed": True}, state=legs.token)
    assert text_of(ended) == "1 2 True"


# What asks by hand.


def _by_hand(state: str | None) -> InputRequiredResult:
    schema: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    question = ElicitRequest(params=ElicitRequestFormParams(message="Sure?", requested_schema=schema))
    return InputRequiredResult(input_requests={"sure": question}, request_state=state)


@pytest.mark.parametrize("state", [None, "mine"])
async def test_hand_written_asking_body_runs_once_after_the_answer(shop: Shop, state: str | None) -> None:
    seen: list[str | None] = []

    async def order(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        seen.append(ctx.request_state)
        if not ctx.input_responses:
            return _by_hand(state)
        shop.ran.append("order")
        return f"no. {len(shop.ran)}"

    shop.add(order)
    call = await User(shop, {"sure": {"ok": True}}, network=[Duplicate()]).call("order")
    assert (call.value, shop.ran, call.names) == ("no. 1", ["order"], ["sure"])
    assert set(seen) == {None, state}


async def test_uri_beside_a_tool_name_does_not_bypass_the_ledger(shop: Shop) -> None:
    shop.add(shop.give)
    async with served(shop(), stateless_http=True) as url, wire(url) as client:
        begun = await client.result("give", {"what": "tea"}, uri="elsewhere://")
        assert (begun["resultType"], shop.ran) == ("input_required", [])
        for uri in ("elsewhere://", 1, None):
            ended = await client.result("give", {"what": "tea"}, requestState=begun["requestState"], uri=uri)
            assert ended["structuredContent"] == {"result": "tea no. 1"}
    assert shop.ran == ["tea"]


# Where it does not hold, or is not there.


class NeverAsked(MemoryLedger):
    async def claim(self, *about: Any, **more: Any) -> Any:
        raise AssertionError("the ledger was asked")


async def test_live_era_never_uses_the_ledger(shop: Shop) -> None:
    shop.ledger = NeverAsked()
    call = await User(shop, YES, era=Era.LIVE).call("buy", what="tea")
    assert (call.value, call.legs) == ("tea no. 1, paid", 1)


async def test_within_another_tool_it_simply_runs(shop: Shop) -> None:
    """It has no token of its own there. The outer tool has to run once."""

    async def twice(ctx: Context[Any, Any]) -> str:
        server: Any = ctx.mcp_server
        return ", ".join([text_of(await server.call_tool("give", {"what": "tea"})) for _ in range(2)])

    shop.add(shop.give)
    shop.add(twice)
    call = await User(shop, network=[Duplicate()]).call("twice")
    assert (call.value, shop.ran) == ("tea no. 1, tea no. 2", ["tea", "tea"])


async def test_older_revision_neither_issues_nor_accepts_tokens(shop: Shop) -> None:
    server = shop()
    legs = LegByLeg(server)
    await legs.leg("buy", {"what": "tea"})
    yes = {"paid": ElicitResult(action="accept", content={"value": True})}
    brought: dict[str, Any] = {"input_responses": yes, "request_state": legs.token}
    bought = await legs.leg("buy", {"what": "tea"}, answers=YES, state=legs.token)
    asked: list[str] = []

    async def refuse(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="decline")

    async with Client(server, mode=Era.LIVE.value, elicitation_callback=refuse) as client:
        refused = cast("Any", await client.session.call_tool("buy", {"what": "tea"}, **brought))
    assert "was decline" in text_of(refused)
    assert (asked, text_of(bought), shop.ran) == (["Pay for tea?"], "tea no. 1, paid", ["tea"])


@pytest.mark.parametrize("with_context", [False, True])
async def test_call_from_middleware_does_not_take_the_request_token(with_context: bool) -> None:
    servers: list[Any] = []

    async def audited(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            context = Context[Any, Any](request_context=ctx, mcp_server=servers[-1]) if with_context else None
            assert text_of(await servers[-1].call_tool("audit", {}, context)) == "audited"
        return await call_next(ctx)

    shop = Shop(MemoryLedger(), middleware=[audited])
    shop.add(shop.give)

    def instance(keys: Any = (KEY,)) -> Server[Any]:
        server = shop(keys)
        server.add_tool(lambda: "audited", name="audit")
        servers.append(server)
        return server

    call = await User(instance, network=HOSTILE).call("give", what="tea")
    assert (call.value, shop.ran) == ("tea no. 1", ["tea"])


async def test_notes_of_a_call_stay_bounded_however_often_it_repeats(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "MAX_NOTED_CHARS", 1000)

    async def quote() -> str:
        return "q" * 200

    async def order(name: Annotated[str, Resolve(named)], ctx: Context[Any, Any]) -> str:
        await ctx.step("quote", quote)
        return str(await ctx.ask("agreed", "Sure?", bool))

    legs = await begun(shop, order)
    token = legs.token
    for number in range(10):
        await legs.leg("order", answers={"named": f"n{number}"}, state=token)
    call = next(iter(cast("Any", shop.ledger)._entries))
    kept = await shop.ledger.claim(call, "", holder="test", lease=1, keep=1)
    assert 0 < sum(len(name) + len(value) for name, value in kept.notes.items()) <= 1000


async def test_value_over_the_limit_keeps_no_other_value_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exactly_once, "MAX_NOTED_CHARS", 1000)

    async def order(name: Annotated[str, Resolve(named)], ctx: Context[Any, Any]) -> str:
        for step, chars in (("small", 1), ("large", 1001), ("charge", 1)):
            await ctx.step(step, str.ljust, "q", chars)
        return str(await ctx.ask("agreed", "Sure?", bool))

    legs = await begun(shop, order)
    await legs.leg("order", answers={"named": "Ada"}, state=legs.token)
    call = next(iter(cast("Any", shop.ledger)._entries))
    kept = await shop.ledger.claim(call, "", holder="test", lease=1, keep=1)
    assert len(kept.notes) == 2
    assert "the call's saved values have reached the size limit" in caplog.text


async def named() -> Elicit[str]:
    return Elicit("Who are you?", str)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_unknown": "rerun"}, "on_unknown must be"),
        ({"exactly_once": True, "on_unknown": "again"}, "on_unknown must be"),
        ({"exactly_once": "sometimes"}, "exactly_once must be True or False, got 'sometimes'; to run calls"),
        ({"exactly_once": True, "uncovered": "never"}, "uncovered must be 'round', 'run' or 'reject', got 'never'"),
        ({"uncovered": "run"}, "uncovered must be given together with exactly_once=True or once_per="),
    ],
)
def test_options_that_mean_nothing_are_rejected(options: Any, said: str) -> None:
    with pytest.raises(InvalidSignature, match=said):
        Server("shop").add_tool(lambda: "", name="give", **options)


SILENT = r"tool 'give' asks nothing, so exactly_once=True would need a round without questions .*uncovered='run'"


def test_tool_that_asks_nothing_says_what_to_do_with_its_calls() -> None:
    def give(what: str) -> str:
        return what

    for options in ({}, {"confirm": None}, {"task": "required"}, {"on_unknown": "rerun"}):
        with pytest.raises(InvalidSignature, match=SILENT):
            Server("shop").add_tool(give, exactly_once=True, **cast("Any", options))
    for uncovered in ("round", "run", "reject"):
        Server("shop").add_tool(give, exactly_once=True, uncovered=uncovered)


def test_tool_that_may_ask_need_not_say_it() -> None:
    async def by_resolver(what: str, paid: Annotated[bool, Resolve(paid)]) -> str:
        return f"{what} {paid}"

    async def by_context(ctx: Context[Any, Any]) -> str:
        return ctx.call.id

    async def by_hand() -> str | InputRequiredResult:
        return ""

    async def confirmed() -> str:
        return ""

    async def unannotated():  # type: ignore[no-untyped-def]
        return ""

    server = Server[Any]("shop")
    for tool in (by_resolver, by_context, by_hand, unannotated):
        server.add_tool(tool, exactly_once=True)
    server.add_tool(confirmed, exactly_once=True, confirm="Sure?")
    server.add_tool(confirmed, name="consented", exactly_once=True, consent=True)


# With everything else that surrounds a body.


@pytest.mark.parametrize(
    ("options", "warned"),
    [({"keys": ["7f" * 32]}, True), ({"keys": ["7f" * 32], "ledger": MemoryLedger()}, False), ({}, False)],
    ids=["keys of several, and no ledger", "a ledger that was chosen", "a key of its own"],
)
def test_shared_keys_require_a_shared_ledger(
    options: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("shop", **options)

    @server.tool(exactly_once=True, uncovered="round")
    def pay() -> str:
        """Pay."""
        return "paid"

    assert ("tool 'pay' has to run once, but other processes with the same keys" in caplog.text) is warned
    assert ("SqliteLedger, RedisLedger or PostgresLedger" in caplog.text) is warned
