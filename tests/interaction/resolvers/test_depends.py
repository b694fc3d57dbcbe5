"""`Depends`: another spelling of a resolver, also as a default, with positional values and separate runs."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import GetPromptResult, ReadResourceResult, TextContent, TextResourceContents

from roundtrip import Depends, Elicit, Event, Resolve, Server
from roundtrip.testing import Era, Steps, User
from tests.interaction.teardown.held import server_of
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio

RUNS: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def no_runs() -> None:
    RUNS.clear()


def current_account() -> str:
    RUNS["account"] += 1
    return "ada"


async def plan_of(account: str = Depends(current_account)) -> str:
    RUNS["plan"] += 1
    return f"plan of {account}"


def loud(value: str) -> str:
    return value.upper()


async def sure() -> Elicit[bool]:
    RUNS["sure"] += 1
    return Elicit("Sure?", bool)


# Where it may stand.


async def test_dependency_fills_by_default_or_annotation() -> None:
    server = Server("shop")

    @server.tool
    async def order(title: str, account: Annotated[str, Depends(current_account)], plan: str = Depends(plan_of)) -> str:
        return f"{title} {account} {plan}"

    async with connect(server, Era.RETRY) as client:
        (tool,) = (await client.list_tools()).tools
        assert list(tool.input_schema["properties"]) == ["title"]
        assert tool.input_schema["required"] == ["title"]
        result = await client.call_tool("order", {"title": "Dune"})
    assert text_of(result) == "Dune ada plan of ada"


async def test_a_client_that_sends_a_value_for_it_is_ignored() -> None:
    server = Server("shop")

    @server.tool
    async def order(account: str = Depends(current_account), plan: str = Depends(plan_of)) -> str:
        return f"{account} {plan}"

    forged = {"account": "eve", "plan": "all of it"}
    assert (await User(server, era=Era.RETRY).call("order", forged)).text == "ada plan of ada"


async def test_dependencies_of_prompts_and_templates_stay_hidden() -> None:
    server = Server("shop")

    @server.prompt()
    def greet(name: str, plan: str = Depends(plan_of)) -> str:
        return f"{name} {plan}"

    @server.resource("shop://{city}")
    def shop(city: str, plan: Annotated[str, Depends(plan_of)], account: str = Depends(current_account)) -> str:
        return f"{city} {plan} {account}"

    async with connect(server, Era.RETRY) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert [argument.name for argument in prompt.arguments or []] == ["name"]
        said = await client.get_prompt("greet", {"name": "Bob", "plan": "forged"})
        read = await client.read_resource("shop://Paris")
    assert isinstance(said, GetPromptResult)
    assert said.messages[0].content == TextContent(type="text", text="Bob plan of ada")
    assert isinstance(read, ReadResourceResult)
    (contents,) = read.contents
    assert isinstance(contents, TextResourceContents)
    assert contents.text == "Paris plan of ada ada"
    assert RUNS == {"account": 2, "plan": 2}


# What goes into it.


async def test_values_are_put_in_by_position() -> None:
    server = Server("shop")

    def described(account: str, number: int, *more: str, sep: str = "-") -> str:
        return sep.join([account, str(number), *more])

    @server.tool
    async def order(
        said: str = Depends(described, current_account, lambda: 7, Depends(plan_of), Resolve(current_account)),
        short: str = Depends(described, Depends(loud, current_account), lambda: 1),
    ) -> str:
        return f"{said} {short}"

    assert (await User(server, era=Era.RETRY).call("order")).text == "ada-7-plan of ada-ada ADA-1"
    assert RUNS == {"account": 1, "plan": 1}


async def test_function_with_other_bound_values_is_another_dependency() -> None:
    server = Server("shop")

    def doubled(number: int) -> int:
        RUNS["doubled"] += 1
        return 2 * number

    def two() -> int:
        return 2

    def three() -> int:
        return 3

    @server.tool
    async def order(
        a: int = Depends(doubled, two),
        b: int = Depends(doubled, three),
        c: int = Depends(doubled, two),
        d: int = Depends(doubled, Depends(doubled, three)),
    ) -> str:
        return f"{a} {b} {c} {d}"

    assert (await User(server, era=Era.RETRY).call("order")).text == "4 6 4 12"
    assert RUNS == {"doubled": 3}


# How often it runs.


async def test_resolve_and_depends_of_one_function_are_one_node() -> None:
    @server_of
    async def order(
        kept: Annotated[str, Resolve(current_account, remember=True)],
        account: Annotated[str, Depends(current_account)],
        sure: bool = Depends(sure),
        answer: Annotated[bool | None, Resolve(sure, name="certain")] = None,
    ) -> str:
        return f"{account} {kept} {sure} {answer}"

    made = await User(order, {"certain": {"value": True}}, era=Era.RETRY).call("order")
    assert made.text == "ada ada True True"
    assert made.asked == ["Sure?"]
    assert RUNS["account"] == 1


# Asking.


async def test_a_dependency_asks_as_a_resolver_does(era: Era) -> None:
    async def how_many(title: str, sure: bool = Depends(sure)) -> Elicit[int] | int:
        return Elicit(f"How many copies of {title}?", int) if sure else 0

    @server_of
    async def order(title: str, copies: int = Depends(how_many)) -> str:
        return f"{copies} x {title}"

    sold = await User(order, {"sure": True, "how_many": 2}, era=era).call("order", title="Dune")
    assert (sold.text, sold.asked) == ("2 x Dune", ["Sure?", "How many copies of Dune?"])
    kept = await User(order, {"sure": False}, era=era).call("order", title="Emma")
    assert (kept.text, kept.asked) == ("0 x Emma", ["Sure?"])


# Failing.


def fails() -> str:
    raise KeyError("no account")


async def fails_later_before_it_yields() -> AsyncGenerator[str]:
    await anyio.lowlevel.checkpoint()
    if not RUNS["never"]:
        raise KeyError("no account")
    yield "never"


FAILING: list[Callable[..., Any]] = [
    fails,
    fails_later_before_it_yields,
]


@pytest.mark.parametrize("failing", FAILING, ids=lambda fn: fn.__name__)
async def test_dependency_exception_becomes_the_call_error(failing: Callable[..., Any]) -> None:
    trace = Steps()
    server = Server[Any]("shop", trace=trace)

    async def below(value: str) -> str:
        raise AssertionError("what it needs has failed")

    @server.tool
    async def order(account: str = Depends(current_account), value: str = Depends(below, failing)) -> str:
        raise AssertionError("the body must not run")

    @server.tool
    def ping() -> str:
        return "pong"

    user = User(server, era=Era.RETRY)
    result = await user.call("order")
    assert result.is_error
    assert result.text == "Error executing tool order: 'no account'"
    assert (await user.call("ping")).text == "pong"
    (failed,) = [step for step in trace.transitions if step.event is Event.FAIL]
    assert failed.detail["error"] == "KeyError: 'no account'"
