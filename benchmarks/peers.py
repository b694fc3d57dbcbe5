"""Show what roundtrip and its peers do with the same program: `python -m benchmarks.peers [NAME ...]`.

Each row is a small server, made once with the SDK's `MCPServer` and once with roundtrip's `Server`, whose API is the
same, and a client of the SDK that calls it. FastMCP has no resolvers that ask, so its rows are written in its own way.
What is printed is what happened. `--markdown` prints the table of docs/comparison.md, which a test compares.
"""

# FastMCP is a peer and no dependency.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false

import argparse
import asyncio
import enum
import itertools
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final, NamedTuple

from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
)
from pydantic import BaseModel

import roundtrip
from roundtrip.server.adapters.finding import low_level

__all__ = ["ROWS", "Row", "table"]

RETRY: Final = "2026-07-28"
LIVE: Final = "legacy"
_KEY: Final = b"the key of servers that compare."
_MANY: Final = 30


class Number(BaseModel):
    """Answer to a question."""

    value: int


class Kit(NamedTuple):
    """One library, with the names that both have."""

    make: Callable[[], Any]
    resolve: Any
    elicit: Any
    context: Any


SDK: Final = Kit(
    lambda: MCPServer("shop", request_state_security=RequestStateSecurity(keys=[_KEY])),
    SdkResolve,
    SdkElicit,
    SdkContext,
)
OURS: Final = Kit(lambda: roundtrip.Server("shop", keys=[_KEY]), roundtrip.Resolve, roundtrip.Elicit, roundtrip.Context)


@dataclass
class Said:
    """What a client got."""

    text: str
    asked: list[str]


async def call(server: Any, tool: str, answers: Sequence[Any] = (), *, era: str = RETRY, **arguments: Any) -> Said:
    """Call a tool as a client that answers with these values, and return what it got."""
    script, asked = iter(answers), list[str]()

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message.partition("\n")[0])
        return ElicitResult(action="accept", content={"value": next(script, 0)})

    try:
        async with Client(server, mode=era, elicitation_callback=answer) as client:
            result = await client.call_tool(tool, arguments)
    except Exception as error:  # noqa: BLE001  # whatever a peer does is shown
        return Said(f"fails: {_alone(error)}", asked)
    return Said(_text(result), asked)


def _text(result: CallToolResult) -> str:
    text = " ".join(block.text for block in result.content if isinstance(block, TextContent))
    return f"fails: {text}" if result.is_error else text


def _alone(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__


def legs_to(server: Any) -> Client:
    """Return a client that can be asked, and whose legs are sent one by one."""

    async def never(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("questions are returned on this revision")

    return Client(server, mode=RETRY, elicitation_callback=never)


def answers_to(asked: InputRequiredResult) -> dict[str, Any]:
    """Return the parameters of the next leg."""
    given = {key: ElicitResult(action="accept", content={"value": 2}) for key in asked.input_requests or {}}
    return {"input_responses": given, "request_state": asked.request_state}


def seats_of(kit: Kit) -> Any:
    """Return a resolver that asks."""

    async def seats(title: str) -> kit.elicit[Number]:  # type: ignore[name-defined]
        return kit.elicit(f"How many seats for {title}?", Number)

    return seats


# The rows.


async def both_eras(kit: Kit) -> str:
    server = kit.make()

    @server.tool()
    async def book(title: str, seats: Annotated[Number, kit.resolve(seats_of(kit))]) -> str:
        return f"{title}, {seats.value}"

    said = [await call(server, "book", [2], era=era, title="Solaris") for era in (RETRY, LIVE)]
    return "works on both" if {one.text for one in said} == {"Solaris, 2"} else str([one.text for one in said])


async def both_eras_fastmcp() -> str:
    from fastmcp import Context, FastMCP

    server = FastMCP("shop")

    async def book(title: str, ctx: Context) -> str:
        answer: Any = await ctx.elicit(f"How many seats for {title}?", Number)
        return f"{title}, {answer.data.value}"

    server.tool(book)
    said = [await call(low_level(server), "book", [2], era=era, title="Solaris") for era in (RETRY, LIVE)]
    new, old = (one.text == "Solaris, 2" for one in said)
    if old and not new:
        return "`ctx.elicit` works before 2026-07-28 alone"
    return "works on both" if new and old else str([one.text for one in said])


async def asks_in_a_body_fastmcp() -> str:
    from fastmcp import Context, FastMCP

    server = FastMCP("shop")

    async def book(title: str, ctx: Context) -> str:
        answer: Any = await ctx.elicit(f"How many seats for {title}?", Number)
        return f"{title}, {answer.data.value}"

    server.tool(book)
    said = await call(low_level(server), "book", [2], title="Solaris")
    return "works" if said.text == "Solaris, 2" else "fails"


async def repeated_last_leg_fastmcp() -> str:
    from fastmcp import Context, FastMCP

    server, runs = FastMCP("shop", request_state_security=RequestStateSecurity(keys=[_KEY])), list[str]()

    async def pay(title: str, ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            schema: Any = {"type": "object", "properties": {"value": {"type": "integer"}}}
            question = ElicitRequest(params=ElicitRequestFormParams(message="How many?", requested_schema=schema))
            return InputRequiredResult(input_requests={"seats": question}, request_state="asked")
        runs.append(title)
        return title

    server.tool(pay)
    return await _repeat(low_level(server), runs)


async def asks_in_a_body(kit: Kit) -> str:
    server = kit.make()
    context = kit.context

    @server.tool()
    async def book(title: str, ctx: context) -> str:  # type: ignore[valid-type]
        answer = await ctx.elicit(f"How many seats for {title}?", Number)
        return f"{title}, {answer.data.value}"

    said = await call(server, "book", [2], title="Solaris")
    return "works" if said.text == "Solaris, 2" else "fails"


async def invalid_answer(kit: Kit) -> str:
    server = kit.make()

    @server.tool()
    async def book(title: str, seats: Annotated[Number, kit.resolve(seats_of(kit))]) -> str:
        return f"{title}, {seats.value}"

    said = await call(server, "book", ["many", 2], title="Solaris")
    return "is asked for again" if said.text == "Solaris, 2" and len(said.asked) == 2 else "ends the call"


async def time_in_a_message(kit: Kit) -> str:
    server, clock = kit.make(), itertools.count()

    async def seats() -> kit.elicit[Number]:  # type: ignore[name-defined]
        return kit.elicit(f"At {next(clock)} o'clock: how many seats?", Number)

    @server.tool()
    async def book(seats: Annotated[Number, kit.resolve(seats)]) -> str:
        return f"{seats.value}"

    said = await call(server, "book", [2] * _MANY)
    return (
        f"asks {len(said.asked)} times, then {'the client gives up' if 'Rounds' in said.text else 'an error names it'}"
    )


async def value_of_a_call(kit: Kit) -> str:
    server, drawn = kit.make(), itertools.count(1)

    async def price() -> int:
        return next(drawn)

    async def agreed(price: Annotated[int, kit.resolve(price)]) -> kit.elicit[Number]:  # type: ignore[name-defined]
        return kit.elicit("Do you take it?", Number)

    once = kit.resolve(price, once=True) if kit is OURS else kit.resolve(price)

    @server.tool()
    async def buy(agreed: Annotated[Number, kit.resolve(agreed)], price: Annotated[int, once]) -> str:
        return f"{price}"

    await call(server, "buy", [1])
    times = next(drawn) - 1
    return "is drawn once" if times == 1 else f"is drawn {times} times"


async def at_the_same_time(kit: Kit) -> str:
    server = kit.make()

    def waiting() -> Any:
        async def wait() -> int:
            await asyncio.sleep(0.05)
            return 1

        return wait

    @server.tool()
    async def sum_up(
        a: Annotated[int, kit.resolve(waiting())],
        b: Annotated[int, kit.resolve(waiting())],
        c: Annotated[int, kit.resolve(waiting())],
        d: Annotated[int, kit.resolve(waiting())],
    ) -> str:
        return f"{a + b + c + d}"

    began = time.perf_counter()
    await call(server, "sum_up")
    return "run one after another" if time.perf_counter() - began > 0.15 else "run at the same time"


async def generator(kit: Kit) -> str:
    server = kit.make()
    left: list[str] = []

    def connection() -> Iterator[str]:
        yield "a connection"
        left.append("closed")

    @server.tool()
    async def look(place: Annotated[Any, kit.resolve(connection)]) -> str:
        return f"{place}"

    said = await call(server, "look")
    if said.text == "a connection" and left:
        return "is entered, and closed at the end"
    return "gives the body a generator object" if "generator object" in said.text else said.text


async def enum_field(kit: Kit) -> str:
    server = kit.make()

    class Row(enum.Enum):
        FRONT = "front"

    class Choice(BaseModel):
        value: Row

    async def row() -> kit.elicit[Choice]:  # type: ignore[name-defined]
        return kit.elicit("Which row?", Choice)

    @server.tool()
    async def book(row: Annotated[Choice, kit.resolve(row)]) -> str:
        return row.value.value

    said = await call(server, "book", ["front"])
    return "works" if said.text == "front" else "fails when it is asked"


async def on_a_prompt(kit: Kit) -> str:
    server = kit.make()

    @server.prompt()
    async def review(title: str, seats: Annotated[Number, kit.resolve(seats_of(kit))]) -> str:
        return f"{title}, {seats.value}"

    async with Client(server) as client:
        (prompt,) = (await client.list_prompts()).prompts
    arguments = [argument.name for argument in prompt.arguments or []]
    return "asks" if arguments == ["title"] else "becomes a required argument of the client"


async def repeated_last_leg(kit: Kit) -> str:
    server, runs = kit.make(), list[str]()

    async def pay(title: str, seats: Annotated[Number, kit.resolve(seats_of(kit))]) -> str:
        runs.append(title)
        return f"{title}, {seats.value}"

    server.tool(**({"exactly_once": True} if kit is OURS else {}))(pay)
    return await _repeat(server, runs)


async def _repeat(server: Any, runs: list[str]) -> str:
    """Send the last leg of a call twice."""
    async with legs_to(server) as client:
        asked = await client.session.call_tool("pay", {"title": "Solaris"}, allow_input_required=True)
        if not isinstance(asked, InputRequiredResult):
            return "does not ask"
        for _ in range(2):
            await client.session.call_tool("pay", {"title": "Solaris"}, **answers_to(asked))
    return f"runs the body {'once' if len(runs) == 1 else f'{len(runs)} times'}"


async def renamed_resolver(kit: Kit) -> str:
    def server_of(name: str) -> Any:
        server = kit.make()
        seats = seats_of(kit)
        seats.__name__ = seats.__qualname__ = name
        marker = kit.resolve(seats, was=("seats",)) if kit is OURS and name != "seats" else kit.resolve(seats)

        @server.tool()
        async def book(title: str, seats: Annotated[Number, marker]) -> str:
            return f"{title}, {seats.value}"

        return server

    async with legs_to(server_of("seats")) as client:
        asked = await client.session.call_tool("book", {"title": "Solaris"}, allow_input_required=True)
    if not isinstance(asked, InputRequiredResult):
        return "does not ask"
    async with legs_to(server_of("places")) as client:
        end = await client.session.call_tool(
            "book", {"title": "Solaris"}, allow_input_required=True, **answers_to(asked)
        )
    return "is asked again" if isinstance(end, InputRequiredResult) else "keeps its answer, with `was=`"


async def client_gives_a_value(kit: Kit) -> str:
    server = kit.make()

    @server.tool()
    async def book(title: str, seats: Annotated[Number, kit.resolve(seats_of(kit))]) -> str:
        return f"{title}, {seats.value}"

    said = await call(server, "book", [2], title="Solaris", seats={"value": 9})
    return "is ignored" if said.text == "Solaris, 2" else "is rejected" if "fails" in said.text else "is taken"


async def size_of_a_token(kit: Kit) -> str:
    server, sizes = kit.make(), list[int]()

    def asking(number: int) -> Any:
        async def ask() -> kit.elicit[Number]:  # type: ignore[name-defined]
            return kit.elicit(f"Number {number}?", Number)

        ask.__name__ = ask.__qualname__ = f"ask_{number}"
        return ask

    def later(first: Any) -> Any:
        async def last(first: Annotated[Number, kit.resolve(first)]) -> kit.elicit[Number]:  # type: ignore[name-defined]
            return kit.elicit("The last?", Number)

        return last

    first = asking(1)

    @server.tool()
    async def add(
        a: Annotated[Number, kit.resolve(first)],
        b: Annotated[Number, kit.resolve(asking(2))],
        c: Annotated[Number, kit.resolve(asking(3))],
        d: Annotated[Number, kit.resolve(later(first))],
    ) -> str:
        return "done"

    async with legs_to(server) as client:
        given: dict[str, Any] = {}
        for _ in range(2):
            asked = await client.session.call_tool("add", {}, allow_input_required=True, **given)
            if isinstance(asked, InputRequiredResult):
                sizes.append(len(asked.request_state or ""))
                given = answers_to(asked)
    return f"has about {round(sizes[-1], -2)} characters"


class Row(NamedTuple):
    """One thing to compare."""

    name: str
    subject: str
    show: Callable[[Kit], Awaitable[str]]
    test: str
    """The file of our tests that shows it."""
    show_fastmcp: Callable[[], Awaitable[str]] | None = None


ROWS: Final = (
    Row("eras", "a tool that asks, on 2026-07-28 and before", both_eras, "interaction/test_eras.py", both_eras_fastmcp),
    Row(
        "body",
        "a question from the middle of a body, on 2026-07-28",
        asks_in_a_body,
        "interaction/bodies",
        asks_in_a_body_fastmcp,
    ),
    Row("invalid", "an answer that does not fit its form", invalid_answer, "interaction/test_forms_asked_again.py"),
    Row("time", "a message that differs each time", time_in_a_message, "interaction/test_volatile.py"),
    Row("value", "a value that a call draws (`once=True`)", value_of_a_call, "interaction/test_once.py"),
    Row("parallel", "four resolvers that wait", at_the_same_time, "interaction/test_concurrency.py"),
    Row("generator", "a resolver with `yield`", generator, "interaction/test_teardown.py"),
    Row("enum", "a form with an `Enum`", enum_field, "interaction/test_forms.py"),
    Row("prompt", "`Resolve` on a prompt", on_a_prompt, "interaction/handlers"),
    Row(
        "repeat",
        "a last leg that is sent twice (`exactly_once=True`)",
        repeated_last_leg,
        "interaction/ledger/test_exactly_once.py",
        repeated_last_leg_fastmcp,
    ),
    Row("rename", "a resolver that is renamed while a call waits", renamed_resolver, "interaction/test_redeploys.py"),
    Row(
        "given",
        "a client that sends a value for a resolved parameter",
        client_gives_a_value,
        "interaction/test_resolve_functions.py",
    ),
    Row("token", "a token with three answers", size_of_a_token, "property/test_tokens.py"),
)


async def table(names: Sequence[str] = ()) -> list[tuple[Row, str, str, str]]:
    """Return each row with what the SDK, FastMCP and roundtrip do."""
    found: list[tuple[Row, str, str, str]] = []
    for row in ROWS:
        if not names or row.name in names:
            fastmcp = "" if row.show_fastmcp is None else await row.show_fastmcp()
            found.append((row, await row.show(SDK), fastmcp, await row.show(OURS)))
    return found


def markdown(rows: Sequence[tuple[Row, str, str, str]]) -> list[str]:
    """Return the table of the page."""
    versions = [f"{name} {version(name)}" for name in ("mcp", "fastmcp")]
    lines = [f"| | {versions[0]} | {versions[1]} | roundtrip | our tests |", "|---|---|---|---|---|"]
    for row, sdk, fastmcp, ours in rows:
        lines.append(f"| {row.subject} | {sdk} | {fastmcp} | {ours} | [{row.test}](../tests/{row.test}) |")
    return lines


def main() -> int:
    """Show what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows to show; all without any")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = asyncio.run(table(given.names))
    if given.markdown:
        print("\n".join(markdown(rows)))
        return 0
    for row, sdk, fastmcp, ours in rows:
        print(f"{row.name}: {row.subject}")
        for name, said in (("sdk", sdk), ("fastmcp", fastmcp), ("roundtrip", ours)):
            if said:
                print(f"    {name:9} {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
