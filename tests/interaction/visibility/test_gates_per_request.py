"""Visibility gates: `enabled=` is evaluated for every request that lists or uses a tool, and hides it completely."""

import functools
import logging
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl, BaseModel

from roundtrip import (
    Context,
    Depends,
    Elicit,
    InvalidSignature,
    Resolve,
    Server,
    ToolError,
    get_access_token,
    get_context,
)
from roundtrip.testing import Era, LegByLeg, served
from tests.interaction.pages.web import Badges, as_user
from tests.interaction.visibility.gates import (
    Switch,
    both,
    is_pro,
    listed,
    prompted,
    said,
    same,
    saying,
    tools,
)
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


class Mine:
    def __init__(self, is_pro: bool) -> None:
        self.is_pro = is_pro

    async def __call__(self) -> bool:
        return self.is_pro


def kinds(plan: str) -> dict[str, Any]:
    """Return gates of every kind that are open for `pro`."""

    def current() -> str:
        return plan

    async def a_coroutine() -> bool:
        return is_pro(plan)

    def by_default(plan: str = Depends(current)) -> bool:
        return is_pro(plan)

    def a_generator() -> Generator[bool]:
        yield is_pro(plan)

    async def an_async_generator() -> AsyncGenerator[bool]:
        yield is_pro(plan)

    return {
        "lambda": lambda: is_pro(plan),
        "lambda_around_a_coroutine": lambda: a_coroutine(),
        "coroutine": a_coroutine,
        "object": Mine(is_pro(plan)),
        "partial": functools.partial(is_pro, plan),
        "depends": Depends(is_pro, current),
        "depends_on_a_generator": Depends(same, Depends(a_generator)),
        "resolve": Resolve(by_default),
        "generator": a_generator,
        "async_generator": Depends(an_async_generator),
    }


async def test_any_callable_may_be_a_gate() -> None:
    server = Server[Any]("shop")
    for plan in ("pro", "free"):
        for name, gate in kinds(plan).items():
            server.add_tool(saying("done"), f"{plan} {name}", enabled=gate)
    expected = {f"{plan} {name}": plan == "pro" for plan in ("pro", "free") for name in kinds(plan)}
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == [name for name, is_open in expected.items() if is_open]
        said_by = {name: await said(client, name) for name in expected}
    assert said_by == {name: "done" if is_open else f"Unknown tool: {name}" for name, is_open in expected.items()}


async def test_a_gate_is_asked_again_at_the_call() -> None:
    server, switch = Server[Any]("shop"), Switch()
    ran: list[str] = []

    @server.tool(enabled=switch)
    def forecast() -> str:
        ran.append("forecast")
        return "sun"

    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == ["forecast"]
        switch.on = False
        assert await said(client, "forecast") == "Unknown tool: forecast"
        assert await tools(client) == []
        switch.on = True
        assert await said(client, "forecast") == "sun"
    assert ran == ["forecast"]


async def test_a_gate_that_shuts_during_a_call_ends_it() -> None:
    server, switch = Server[Any]("shop"), Switch()

    @server.tool(enabled=switch)
    async def order(ctx: Context) -> str:
        return f"{await ctx.ask('sure', 'Sure?', bool)}"

    hopper = LegByLeg([server])
    await hopper.leg("order")
    switch.on = False
    answers = {"sure": {"value": True}}
    assert text_of(await hopper.leg("order", answers=answers, state=hopper.token)) == "Unknown tool: order"  # type: ignore[arg-type]
    switch.on = True
    assert text_of(await hopper.leg("order", answers=answers, state=hopper.token)) == "True"  # type: ignore[arg-type]


async def test_a_gate_that_raises_hides_only_what_it_gates(caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("shop")

    def broken() -> bool:
        raise LookupError("the secret reason")

    for number in range(12):
        gate = broken if number == 5 else Switch()
        server.add_tool(saying(str(number)), f"tool-{number}", enabled=gate)
    others = [f"tool-{number}" for number in range(12) if number != 5]
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == others
        assert await said(client, "tool-5") == "Unknown tool: tool-5"
        for name in others:
            assert await said(client, name) == name.removeprefix("tool-")
    warnings = [record for record in caplog.records if record.name == "roundtrip"]
    assert [record.levelno for record in warnings] == [logging.WARNING] * 2
    assert all(record.exc_info and "tool-5" in record.message for record in warnings)
    assert "the secret reason" in caplog.text


async def test_a_failure_that_many_gates_share_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("shop")

    async def account() -> str:
        raise ConnectionError("no database")

    for number in range(20):
        server.add_tool(saying("x"), f"tool-{number}", enabled=Depends(functools.partial(is_pro), account))
    server.add_tool(saying("x"), "open", enabled=Switch())
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == ["open"]
    (record,) = (record for record in caplog.records if record.name == "roundtrip")
    assert all(f"'tool-{number}'" in record.message for number in range(20))


async def test_a_gate_whose_scope_gives_up_hides_only_itself() -> None:
    server = Server[Any]("shop")

    async def impatient() -> AsyncGenerator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            await anyio.lowlevel.checkpoint()
            yield scope

    async def hangs(impatient: anyio.CancelScope = Depends(impatient)) -> bool:
        impatient.deadline = anyio.current_time()
        await anyio.sleep_forever()
        return True

    server.add_tool(saying("done"), "slow", enabled=hangs)
    server.add_tool(saying("done"), "quick", enabled=Switch())
    async with connect(server, Era.RETRY) as client:
        with anyio.fail_after(WAIT):
            assert await tools(client) == ["quick"]
            assert await said(client, "slow") == "Unknown tool: slow"
            assert await said(client, "quick") == "done"


# Gates cannot ask, and know no arguments.


async def asks() -> Elicit[bool]:
    return Elicit("Are you a member?", bool)


def returns_a_question() -> object:
    return Elicit("Are you a member?", bool)


async def asks_live(ctx: Context) -> bool:
    return (await ctx.elicit("Are you a member?", Plain)).action == "accept"


async def asks_by_name(ctx: Context) -> bool:
    return await ctx.ask("member", "Are you a member?", bool)


class Plain(BaseModel):
    """Form without fields."""


def with_city(city: str) -> bool:
    return city == "Bern"


IMPOSSIBLE: list[tuple[Any, str]] = [
    (asks, "gate of tool 'forecast' must not ask questions, but 'asks'"),
    (Depends(same, asks), "must not ask questions, but 'asks'"),
    (with_city, "evaluated before there are arguments.*'city' of resolver 'with_city' cannot be filled"),
    (Resolve(Switch(), remember=True), "remember="),
    ("pro", "got 'pro'"),
    (0, "got 0"),
]


def test_a_gate_that_can_never_work_is_rejected_at_registration() -> None:
    server = Server[Any]("shop")
    for gate, message in IMPOSSIBLE:
        with pytest.raises(InvalidSignature, match=message):
            server.tool(enabled=gate)(forecast)
        with pytest.raises(InvalidSignature):
            server.prompt(enabled=gate)(forecast)
        with pytest.raises(InvalidSignature):
            server.resource("weather://{city}", enabled=gate)(forecast)


def forecast(city: str) -> str:
    return f"sun in {city}"


@pytest.mark.parametrize("gate", [returns_a_question, asks_live, asks_by_name])
async def test_asking_gate_is_closed_without_asking(gate: Any, caplog: pytest.LogCaptureFixture) -> None:
    server, person = Server[Any]("shop"), Person()
    server.tool(enabled=gate)(forecast)
    async with connect(server, Era.RETRY, person) as client:
        assert await tools(client) == []
        assert await said(client, "forecast", {"city": "Bern"}) == "Unknown tool: forecast"
    assert person.asked == []
    assert "must not ask" in caplog.text


# Once per request.


async def test_gate_and_two_parameters_share_one_run_per_request() -> None:
    server, runs = Server[Any]("shop"), list[str]()

    async def account() -> str:
        runs.append("account")
        return "ada"

    def fresh() -> int:
        runs.append("fresh")
        return len(runs)

    def is_known(account: str = Depends(account), fresh: int = Depends(fresh, use_cache=False)) -> bool:
        return bool(account and fresh)

    @server.tool(enabled=is_known)
    def order(
        first: str = Depends(account),
        second: str = Depends(str.upper, account),
        fresh: int = Depends(fresh, use_cache=False),
    ) -> str:
        return f"{first} {second}"

    async with connect(server, Era.RETRY) as client:
        await tools(client)
        assert sorted(runs) == ["account", "fresh"]
        runs.clear()
        assert await said(client, "order") == "ada ADA"
        assert sorted(runs) == ["account", "fresh", "fresh"]


async def test_gates_naming_different_nodes_alike_are_both_evaluated() -> None:
    server = Server[Any]("shop")
    for number in range(5):
        server.add_tool(saying("done"), f"tool-{number}", enabled=Resolve(Switch(on=number != 3), name="same"))
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == ["tool-0", "tool-1", "tool-2", "tool-4"]


# Nested calls.


async def test_nested_call_evaluates_its_own_gate_with_known_values() -> None:
    server, runs, switch = Server[Any]("shop"), list[str](), Switch()

    def account() -> str:
        runs.append("account")
        return "ada"

    async def session() -> AsyncGenerator[str]:
        runs.append("enter")
        yield "session"
        runs.append("leave")

    @server.tool(enabled=Depends(both, account, switch))
    def inner(account: str = Depends(account)) -> str:
        runs.append("inner")
        return account

    @server.tool(enabled=Depends(both, account, session))
    def deep(session: str = Depends(session)) -> str:
        runs.append("deep")
        return session

    async def nested(name: str) -> str:
        try:
            result = await server.call_tool(name, {})
        except ToolError as error:
            return str(error)
        return text_of(result)  # type: ignore[arg-type]

    @server.tool
    async def outer() -> str:
        return " ".join([await nested("inner"), await nested("deep"), await nested("deep")])

    @server.tool(enabled=Depends(same, session))
    async def held() -> str:
        runs.append("held")
        return " ".join([await nested("deep"), await nested("inner")])

    async with connect(server, Era.RETRY) as client:
        await tools(client)
        runs.clear()
        assert await said(client, "outer") == "ada session session"
        # What is entered for one of them is left with it, and entered again for the next.
        assert runs == ["account", "inner", "enter", "deep", "leave", "enter", "deep", "leave"]
        runs.clear()
        assert await said(client, "held") == "session ada"
        # What is entered for the outer one serves the inner one too.
        assert runs == ["enter", "held", "account", "deep", "inner", "leave"]
        switch.on = False
        assert await said(client, "held") == "session Unknown tool: inner"


# Who asks.


def guarded(**options: Any) -> Server[Any]:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)
    server = Server[Any]("weather", auth=auth, token_verifier=Badges(), **options)

    def plan() -> str:
        token = get_access_token()
        return "pro" if token is not None and token.subject == "ada" else "free"

    def by_context(ctx: Context[Any, Any] | None) -> bool:
        assert ctx is not None
        assert ctx.request_id is not None
        return ctx.client_id == "app" and get_context().client_id == "app"

    server.add_tool(saying("sun"), "forecast", enabled=Depends(is_pro, plan))
    server.add_tool(saying("it is warm"), "weather", enabled=by_context)
    server.prompt("report", enabled=Depends(is_pro, plan))(lambda: "report the weather")
    return server


@pytest.mark.parametrize(("era", "stateless"), [(Era.RETRY, True), (Era.LIVE, False)], ids=["stateless", "sessions"])
async def test_a_gate_sees_the_authenticated_caller_in_lists_and_calls(era: Era, stateless: bool) -> None:
    async with served(guarded(), stateless_http=stateless) as url:
        for badge, names in (
            ("app/ada", ["forecast", "weather"]),
            ("app/bob", ["weather"]),
            ("web/ada", ["forecast"]),
            ("web/bob", []),
        ):
            async with as_user(url, badge) as transport, Client(transport, mode=era.value) as client:
                assert await tools(client) == names
                for name, answer in (("forecast", "sun"), ("weather", "it is warm")):
                    assert await said(client, name) == (answer if name in names else f"Unknown tool: {name}")
                prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
                assert prompts == (["report"] if badge.endswith("ada") else [])


# Beside visibility and versions.


async def test_tool_is_visible_where_gate_and_rules_allow() -> None:
    server, switch = Server[Any]("shop"), Switch()
    server.add_tool(saying("done"), "order", enabled=switch)
    server.prompt("say", enabled=switch)(lambda: "say")
    async with connect(server, Era.RETRY) as client:
        server.disable(names={"order", "say"})
        assert await tools(client) == []
        assert (await listed(client))["prompts"] == []
        assert await said(client, "order") == "Unknown tool: order"
        with pytest.raises(MCPError):
            await client.get_prompt("say")
        # The gate of what is hidden from everybody is asked nothing.
        assert switch.asked == 0
        server.enable(names={"order", "say"})
        assert await tools(client) == ["order"]
        assert await prompted(client, "say") == "say"
        switch.on = False
        assert await tools(client) == []


async def test_highest_version_with_an_open_gate_is_used() -> None:
    server = Server[Any]("shop")
    gates = {"1": Switch(), "2": Switch(), "3": Switch()}
    for version, gate in gates.items():
        server.add_tool(saying(version), "order", version=version, enabled=gate)

    async def seen(client: Client) -> tuple[str, list[str]]:
        (one,) = (await client.list_tools()).tools
        meta = (one.meta or {})["fastmcp"]
        return meta["version"], meta["versions"]

    async def called(client: Client, version: str) -> str:
        return text_of(await client.call_tool("order", {}, meta={"roundtrip/version": version}))  # type: ignore[arg-type]

    async with connect(server, Era.RETRY) as client:
        assert await seen(client) == ("3", ["3", "2", "1"])
        assert await said(client, "order") == "3"
        gates["3"].on = False
        assert await seen(client) == ("2", ["2", "1"])
        assert await said(client, "order") == "2"
        assert await called(client, "3") == "Unknown tool: order"
        assert await called(client, "1") == "1"
        gates["2"].on = gates["1"].on = False
        assert await tools(client) == []
        assert await said(client, "order") == "Unknown tool: order"


async def test_gate_is_replaceable_like_any_dependency() -> None:
    server, switch = Server[Any]("shop"), Switch(on=False)

    def account() -> str:
        return "free"

    server.add_tool(saying("done"), "order", enabled=switch)
    server.add_tool(saying("done"), "forecast", enabled=Depends(is_pro, account))
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == []
        with server.overrides({account: lambda: "pro"}):
            assert await tools(client) == ["forecast"]
            assert await said(client, "forecast") == "done"
        assert await tools(client) == []
        with server.overrides({switch: lambda: True}):
            assert await tools(client) == ["order"]
            assert await said(client, "order") == "done"
        with pytest.raises(InvalidSignature, match="must not ask"), server.overrides({switch: asks}):
            pass
        assert await said(client, "order") == "Unknown tool: order"


async def test_lists_outside_of_requests_evaluate_gates_too() -> None:
    server = Server[Any]("shop")

    def needs_a_request(ctx: Context) -> bool:
        return bool(ctx.request_id)

    server.add_tool(saying("x"), "open", enabled=Switch())
    server.add_tool(saying("x"), "shut", enabled=needs_a_request)
    assert [tool.name for tool in await server.list_tools()] == ["open"]
    assert text_of(await server.call_tool("open", {})) == "x"
    with pytest.raises(ToolError, match=r"^Unknown tool: shut$"):
        await server.call_tool("shut", {})
