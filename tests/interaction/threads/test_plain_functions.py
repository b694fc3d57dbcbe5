"""Plain functions: which thread each runs in, what it sees there, and how the end of a call ends it."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Depends, InvalidSignature, Resolve, Server, get_context
from roundtrip.testing import Era, Steps
from roundtrip.threads.slots import SHARED
from tests.interaction.threads.leaving import leave
from tests.kit.held_threads import Held
from tests.kit.hosts import WAIT
from tests.kit.players import connect, text_of
from tests.kit.time_limits import LIMIT
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio


class Places:
    """The threads in which functions have run, by the functions' names, call by call."""

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}

    def note(self, name: str) -> int:
        number = threading.get_ident()
        self.seen.setdefault(name, []).append(number)
        return number


async def call(server: Server[Any], era: Era, name: str = "tool") -> str:
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            return text_of(await client.call_tool(name))


def waiting(barrier: threading.Barrier) -> Callable[[], int]:
    def wait() -> int:
        return barrier.wait(WAIT)

    return wait


@pytest.mark.parametrize("plain_body", [True, False], ids=["plain body", "async body"])
async def test_functions_that_wait_for_each_other_both_end(plain_body: bool) -> None:
    server, barrier = Server[Any]("shop"), threading.Barrier(2)
    first, second = waiting(barrier), waiting(barrier)

    def body(one: Annotated[int, Resolve(first, name="one")], two: Annotated[int, Resolve(second, name="two")]) -> int:
        return one + two

    async def async_body(
        one: Annotated[int, Resolve(first, name="one")], other: Annotated[int, Resolve(second, name="two")]
    ) -> int:
        return one + other

    server.tool(name="tool")(body if plain_body else async_body)
    assert [await call(server, Era.RETRY) for _ in range(3)] == ["1"] * 3


def linked(places: Places) -> Server[Any]:
    """Return a server with a tool whose functions depend on each other."""
    server = Server[Any]("shop")

    def connection() -> sqlite3.Connection:
        places.note("connection")
        return sqlite3.connect(":memory:")

    def table(held: Annotated[sqlite3.Connection, Resolve(connection)]) -> str:
        places.note("table")
        held.execute("create table orders (name text)")
        return "orders"

    async def wanted(held: Annotated[sqlite3.Connection, Resolve(connection)]) -> sqlite3.Connection:
        await asyncio.sleep(0)
        return held

    def order(name: Annotated[str, Resolve(table)], held: Annotated[sqlite3.Connection, Resolve(wanted)]) -> int:
        places.note("order")
        held.execute(f"insert into {name} values ('tea')")
        return held.total_changes

    def count(held: sqlite3.Connection) -> int:
        places.note("step")
        return held.execute("select count(*) from orders").fetchone()[0]

    @server.tool(name="tool")
    def body(
        ctx: Context,
        made: Annotated[int, Resolve(order)],
        held: Annotated[sqlite3.Connection, Resolve(connection)],
    ) -> str:
        places.note("body")
        rows = ctx.blocking.step("count", count, held)
        return f"{made} {rows} {held.execute('select name from orders').fetchone()[0]}"

    @server.tool
    async def stepping(ctx: Context, held: Annotated[sqlite3.Connection, Resolve(connection)]) -> str:
        return str(await ctx.step("changes", lambda: held.total_changes))

    return server


async def test_connection_serves_all_functions_that_depend_on_it() -> None:
    places = Places()
    server = linked(places)
    for _ in range(3):
        places.seen.clear()
        assert await call(server, Era.RETRY) == "1 1 tea"
        threads = {name: thread for name, (thread,) in places.seen.items()}
        assert list(threads) == ["connection", "table", "order", "body", "step"]
        assert len({*threads.values()} - {threading.get_ident()}) == len({*threads.values()}) == 1
        assert await call(server, Era.RETRY, "stepping") == "0"
    results: list[str] = []
    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client, anyio.create_task_group() as group:

            async def run() -> None:
                results.append(text_of(await client.call_tool("tool")))

            for _ in range(10):
                group.start_soon(run)
    assert results == ["1 1 tea"] * 10


async def test_inline_functions_run_on_the_loop_and_no_others_do() -> None:
    server, places = Server[Any]("shop"), Places()

    def noting(name: str) -> Callable[[], int]:
        return lambda: places.note(name)

    def after(value: Annotated[int, Resolve(noting("inline resolver"), name="inline", inline=True)]) -> int:
        return places.note("resolver")

    @server.tool(inline=True)
    def inline(
        one: Annotated[int, Resolve(after)],
        two: int = Depends(noting("inline dependency"), inline=True),
        three: int = Depends(noting("dependency")),
    ) -> str:
        places.note("inline body")
        return "done"

    @server.tool
    def plain(ctx: Context) -> str:
        places.note("body")
        ctx.blocking.step("step", noting("step"))
        return "done"

    @server.tool
    async def stepping(ctx: Context) -> str:
        await ctx.step("step", noting("step of a coroutine"))
        return "done"

    @server.prompt(inline=True)
    def inline_prompt() -> str:
        places.note("inline prompt")
        return "done"

    @server.prompt(inline=True)
    def inline_prompt_in_legs(one: Annotated[int, Resolve(noting("resolver of a prompt"))]) -> str:
        places.note("inline prompt in legs")
        return "done"

    @server.prompt()
    def prompt(one: Annotated[int, Resolve(noting("resolver of a prompt"))]) -> str:
        places.note("prompt")
        return "done"

    @server.resource("shop://{name}", inline=True)
    def inline_resource(name: str) -> str:
        places.note("inline resource")
        return "done"

    @server.resource("shelf://{name}")
    def resource(name: str, one: Annotated[int, Resolve(noting("resolver of a resource"))]) -> str:
        places.note("resource")
        return "done"

    @server.tool(enabled=noting("gate"))
    def hidden() -> None: ...

    async with connect(server, Era.RETRY) as client:
        for name in ("inline", "plain", "stepping"):
            assert text_of(await client.call_tool(name)) == "done"
        for name in ("inline_prompt", "inline_prompt_in_legs", "prompt"):
            await client.get_prompt(name)
        for uri in ("shop://tea", "shelf://tea"):
            await client.read_resource(uri)
        await client.list_tools()
    on_loop = {name for name, threads in places.seen.items() if threading.get_ident() in threads}
    assert on_loop == {name for name in places.seen if name.startswith("inline")}
    assert len(on_loop) == 6
    assert len(places.seen) == 16


async def test_inline_coroutine_function_is_rejected() -> None:
    async def fetch() -> int:
        return 1

    async def generate() -> Any:
        yield 1

    server = Server[Any]("shop")
    ways: list[tuple[str, Callable[[], object]]] = [
        ("Resolve(fetch)", lambda: Resolve(fetch, inline=True)),
        ("Depends(fetch)", lambda: Depends(fetch, inline=True)),
        ("Depends(generate)", lambda: Depends(generate, inline=True)),
        ("tool 'fetch'", lambda: server.tool(inline=True)(fetch)),
        ("prompt 'fetch'", lambda: server.prompt(inline=True)(fetch)),
        ("resource 'shop://one'", lambda: server.resource("shop://one", inline=True)(fetch)),
    ]
    for subject, declare in ways:
        with pytest.raises(InvalidSignature) as refused:
            declare()
        assert str(refused.value).startswith(f"{subject}: inline must be used with a plain def, got an async def")


@pytest.mark.parametrize(("era", "seconds"), [(Era.RETRY, None), (Era.LIVE, LIMIT)], ids=["waited for", "left behind"])
async def test_cancelled_call_starts_no_further_function(era: Era, seconds: float | None, held: Held) -> None:
    ran, trace = list[str](), Steps()
    server = Server[Any]("shop", trace=trace)

    def after(value: Annotated[str, Resolve(held, name="held")]) -> str:
        ran.append("after")
        return value

    @server.tool(timeout=seconds)
    def tool(value: Annotated[str, Resolve(after)]) -> str:
        ran.append("body")
        return value

    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            await leave(client, held, trace, waits=seconds is None)
            held.release.set()
            await until(lambda: held.ended and not SHARED.slots().limiter.borrowed_tokens)
    assert ran == []


async def test_plain_body_may_return_a_coroutine() -> None:
    server = Server[Any]("shop")

    async def later(value: int) -> str:
        await asyncio.sleep(0)
        return f"later {value}"

    @server.tool(name="tool")
    def body(value: Annotated[int, Resolve(lambda: 1, name="one")]) -> Any:
        return later(value)

    assert await call(server, Era.RETRY) == "later 1"


@pytest.mark.parametrize("takes_context", [True, False], ids=["body alone", "with resolvers"])
async def test_loop_goes_on_when_a_quick_function_gets_slow(takes_context: bool) -> None:
    server, is_slow, waits, done = Server[Any]("shop"), threading.Event(), threading.Event(), threading.Event()

    def one() -> int:
        return 1

    def work() -> str:
        if not is_slow.is_set():
            return "True"
        waits.set()
        return str(done.wait(WAIT))

    def body(value: Annotated[int, Resolve(one)]) -> str:
        return work()

    def body_with_context(ctx: Context, value: Annotated[int, Resolve(one)]) -> str:
        return work()

    server.tool(name="tool")(body_with_context if takes_context else body)
    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:
            for _ in range(5):
                assert text_of(await client.call_tool("tool")) == "True"
            is_slow.set()
            async with anyio.create_task_group() as group:

                async def slow() -> None:
                    assert text_of(await client.call_tool("tool")) == "True"

                group.start_soon(slow)
                # Only the event loop can do it.
                await until(waits.is_set)
                done.set()


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
async def test_resolver_beside_a_slow_one_has_the_request(era: Era) -> None:
    server = Server("shop")

    def slow() -> str:
        time.sleep(0.05)
        return get_context().call.id

    def other() -> str:
        return get_context().call.id

    @server.tool
    async def tool(first: Annotated[str, Resolve(slow)], second: Annotated[str, Resolve(other)]) -> bool:
        return first == second

    assert await call(server, era) == "true"


async def test_rejected_leg_leaves_no_thread_of_its_gate() -> None:
    server = Server("shop")

    def user() -> str:
        return "ada"

    def is_open(user: Annotated[str, Resolve(user)]) -> bool:
        return bool(user)

    @server.tool(task="required", enabled=is_open)
    def tool(user: Annotated[str, Resolve(user)]) -> str:
        return user

    async with connect(server, Era.RETRY) as client:
        for _ in range(10):
            with pytest.raises(MCPError, match="declares the extension"):
                await client.call_tool("tool")
    # An idle one ends after a while, and one that is kept never.
    await until(lambda: not any("roundtrip worker" in thread.name for thread in threading.enumerate()))
