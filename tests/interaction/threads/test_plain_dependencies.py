"""Plain generators and context managers: they are entered and exited in the thread of the functions that use them."""

import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Context, Depends, Elicit, Resolve, Server
from roundtrip.testing import Era, Steps
from roundtrip.threads.slots import SHARED
from tests.interaction.threads.leaving import leave
from tests.kit.held_threads import Held
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

LONG = 60.0
"""For what is never waited for."""
VARIABLE: ContextVar[str] = ContextVar("plain_dependencies", default="unset")


class Places:
    """Log of the functions that have run, each with its thread."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def note(self, name: str) -> None:
        self.seen.append((name, threading.get_ident()))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    @property
    def threads(self) -> set[int]:
        return {thread for _, thread in self.seen}

    @contextmanager
    def around(self, name: str) -> Generator[str]:
        self.note(f"enter {name}")
        try:
            yield name
        except BaseException as error:
            self.note(f"{name}: {type(error).__name__}")
            raise
        else:
            self.note(f"exit {name}")

    def dependency(self, name: str) -> Callable[[], Generator[str]]:
        def generate() -> Generator[str]:
            with self.around(name):
                yield name

        return generate


async def call(server: Server[Any], era: Era, *answers: dict[str, Any]) -> str:
    with anyio.fail_after(WAIT):
        async with connect(server, era, Person(*answers)) as client:
            return text_of(await client.call_tool("tool"))


async def give_up(server: Server[Any], trace: Steps, held: Held, *, waits: bool = False) -> None:
    """Call, and leave once a function is held."""
    async with connect(server, Era.RETRY) as client:
        await leave(client, held, trace, waits=waits)


def of_connections(places: Places, trace: Steps | None) -> Server[Any]:
    """Return a server whose tools work with an SQLite connection that belongs to its thread."""
    server = Server[Any]("shop", trace=trace)

    def connection() -> Generator[sqlite3.Connection]:
        with places.around("connection"):
            held = sqlite3.connect(":memory:")
            held.execute("create table orders (name text)")
            try:
                yield held
            finally:
                held.close()

    def copies(held: Annotated[sqlite3.Connection, Depends(connection)]) -> Elicit[int]:
        places.note("copies")
        return Elicit(f"How many, beside {held.execute('select count(*) from orders').fetchone()[0]}?", int)

    def order(many: Annotated[int, Resolve(copies)], held: Annotated[sqlite3.Connection, Depends(connection)]) -> int:
        places.note("order")
        held.executemany("insert into orders values (?)", [("tea",)] * many)
        return held.total_changes

    @server.tool(name="tool")
    def body(made: Annotated[int, Resolve(order)], held: Annotated[sqlite3.Connection, Depends(connection)]) -> str:
        places.note("body")
        return f"{made} {held.execute('select count(*) from orders').fetchone()[0]}"

    @server.tool
    def asking(ctx: Context, held: Annotated[sqlite3.Connection, Depends(connection)]) -> str:
        places.note("body")
        many = ctx.blocking.ask("many", "How many?", int)
        held.executemany("insert into orders values (?)", [("tea",)] * many)
        return str(ctx.blocking.step("count", lambda: held.total_changes))

    @server.tool
    async def stepping(ctx: Context, held: Annotated[sqlite3.Connection, Depends(connection)]) -> str:
        return str(await ctx.step("changes", lambda: held.total_changes))

    return server


@pytest.mark.parametrize(
    ("name", "result", "traced"),
    [("tool", "2 2", False), ("tool", "2 2", True), ("asking", "2", False), ("stepping", "0", False)],
)
async def test_connection_of_a_generator_serves_its_thread(era: Era, name: str, result: str, traced: bool) -> None:
    places = Places()
    server = of_connections(places, Steps() if traced else None)
    with anyio.fail_after(WAIT):
        async with connect(server, era, Person(*[{"value": 2}] * 12)) as client:
            for _ in range(3):
                places.seen.clear()
                assert text_of(await client.call_tool(name)) == result
                assert threading.get_ident() not in places.threads
                if era is Era.LIVE:
                    assert len(places.threads) == 1
                assert places.names[-1] == "exit connection"
                if era is Era.RETRY and name != "stepping":
                    assert "connection: Suspension" in places.names


async def test_independent_generators_enter_in_plan_order() -> None:
    server, places = Server[Any]("shop"), Places()
    first, second = places.dependency("first"), places.dependency("second")

    async def between() -> AsyncGenerator[str]:
        with places.around("between"):
            yield "between"

    async def body(
        one: Annotated[str, Depends(first)],
        two: Annotated[str, Depends(between)],
        three: Annotated[str, Depends(second)],
    ) -> str:
        return f"{one} {two} {three}"

    server.tool(name="tool")(body)
    assert await call(server, Era.RETRY) == "first between second"
    assert places.names == [
        "enter first", "enter between", "enter second", "exit second", "exit between", "exit first",
    ]  # fmt: skip
    places_of = dict(places.seen)
    assert places_of["enter first"] == places_of["exit first"] == places_of["enter second"] != threading.get_ident()
    assert places_of["enter between"] == places_of["exit between"] == threading.get_ident()


@pytest.mark.parametrize("is_async", [False, True])
async def test_context_variables_reach_all_later_functions(is_async: bool) -> None:
    server, seen = Server[Any]("shop"), list[str]()

    def first() -> Generator[str]:
        token = VARIABLE.set("first")
        try:
            yield VARIABLE.get()
        finally:
            seen.append(f"{VARIABLE.get()} exits")
            VARIABLE.reset(token)
            seen.append(VARIABLE.get())

    def resolver(one: Annotated[str, Depends(first)]) -> str:
        seen.append(VARIABLE.get())
        VARIABLE.set("set by a resolver")
        return one

    def second(one: Annotated[str, Resolve(resolver)]) -> Generator[str]:
        seen.append(VARIABLE.get())
        VARIABLE.set("second, which forgets")
        yield one

    def between() -> None:
        seen.append(VARIABLE.get())

    async def async_body(ctx: Context, one: Annotated[str, Depends(second)]) -> str:
        await ctx.step("step", between)
        return VARIABLE.get()

    def body(one: Annotated[str, Depends(second)]) -> str:
        between()
        return VARIABLE.get()

    server.tool(name="tool")(async_body if is_async else body)
    assert await call(server, Era.RETRY) == "second, which forgets"
    assert seen == ["first", "first", "second, which forgets", "first exits", "unset"]
    # In memory, a call may run in its client's own task.
    assert VARIABLE.get() == "unset"


async def test_inline_generator_runs_on_the_loop() -> None:
    server, places = Server[Any]("shop"), Places()

    @server.tool
    def tool(one: Annotated[str, Depends(places.dependency("one"), inline=True)]) -> str:
        return one

    assert await call(server, Era.RETRY) == "one"
    assert places.seen == [("enter one", threading.get_ident()), ("exit one", threading.get_ident())]


@pytest.mark.parametrize("seconds", [None, LONG], ids=["waited for", "left behind"])
async def test_generator_cancelled_while_entering_is_exited(seconds: float | None, held: Held) -> None:
    places, trace = Places(), Steps()
    server = Server[Any]("shop", trace=trace)

    def slow() -> Generator[str]:
        held()
        with places.around("slow"):
            yield "slow"

    @server.tool(timeout=seconds)
    def tool(first: Annotated[str, Depends(places.dependency("first"))], one: Annotated[str, Depends(slow)]) -> None:
        places.note("body")

    with anyio.fail_after(WAIT):
        await give_up(server, trace, held, waits=seconds is None)
        assert seconds is None or places.names == ["enter first"]
        held.release.set()
        await until(lambda: len(places.names) == 4)
    assert places.names == ["enter first", "enter slow", "slow: CancelledError", "first: CancelledError"]
    assert len(places.threads) == 1


@pytest.mark.parametrize("seconds", [None, LONG], ids=["waited for", "left behind"])
async def test_generator_cancelled_in_the_body_exits_after_it(seconds: float | None, held: Held) -> None:
    places, trace = Places(), Steps()
    server = Server[Any]("shop", trace=trace)

    @server.tool(timeout=seconds)
    def tool(one: Annotated[str, Depends(places.dependency("one"))]) -> None:
        held()
        places.note("body")

    with anyio.fail_after(WAIT):
        await give_up(server, trace, held, waits=seconds is None)
        held.release.set()
        await until(lambda: len(places.names) == 3)
    assert places.names == ["enter one", "body", "one: CancelledError"]
    assert len(places.threads) == 1


@pytest.mark.parametrize(("seconds", "is_async"), [(None, True), (LONG, False), (None, False)])
async def test_generator_cancelled_while_exiting_exits_fully(seconds: float | None, is_async: bool, held: Held) -> None:
    places, server = Places(), Server[Any]("shop")

    def slow() -> Generator[str]:
        with places.around("slow"):
            yield "slow"
            held()

    async def async_body(
        first: Annotated[str, Depends(places.dependency("first"))], one: Annotated[str, Depends(slow)]
    ) -> None: ...

    def body(
        first: Annotated[str, Depends(places.dependency("first"))], one: Annotated[str, Depends(slow)]
    ) -> None: ...

    server.tool(name="tool", timeout=seconds)(async_body if is_async else body)
    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:
            await leave(client, held, None, waits=True)
            await until(lambda: len(places.names) == 4)
    assert places.names[:3] == ["enter first", "enter slow", "exit slow"]
    # Its own time was over.
    assert places.names[3] in {"first: CancelledError", "exit first"}
    assert len(places.threads) == 1


async def test_abandoned_step_keeps_the_generator_open(held: Held) -> None:
    server, places, scope = Server[Any]("shop"), Places(), anyio.CancelScope()

    @server.tool(timeout=LONG)
    async def tool(ctx: Context, one: Annotated[str, Depends(places.dependency("one"))]) -> str:
        with scope:
            await ctx.step("slow", held)
        return "without it"

    async def abandon() -> None:
        await until(lambda: held.started)
        scope.cancel()

    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client, anyio.create_task_group() as group:
            group.start_soon(abandon)
            assert text_of(await client.call_tool("tool")) == "without it"
            assert places.names == ["enter one"]
            held.release.set()
            await until(lambda: len(places.names) == 2)
    assert places.names == ["enter one", "exit one"]
    assert len(places.threads) == 1


async def test_scope_beside_a_generator_exits_without_its_thread(held: Held) -> None:
    places, trace = Places(), Steps()
    server = Server[Any]("shop", trace=trace)

    async def scope() -> AsyncGenerator[str]:
        async with anyio.create_task_group():
            with places.around("scope"):
                yield "scope"

    def slow(scope: Annotated[str, Depends(scope)]) -> Generator[str]:
        held()
        with places.around("slow"):
            yield "slow"

    @server.tool(timeout=LONG)
    async def tool(
        one: Annotated[str, Depends(places.dependency("one"))], slow: Annotated[str, Depends(slow)]
    ) -> None: ...

    with anyio.fail_after(WAIT):
        await give_up(server, trace, held)
        await until(lambda: "scope: CancelledError" in places.names)
        held.release.set()
        await until(lambda: len(places.names) == 6)
    assert places.names == [
        "enter one", "enter scope", "scope: CancelledError", "enter slow", "slow: CancelledError",
        "one: CancelledError",
    ]  # fmt: skip


@pytest.mark.parametrize(("half", "is_async"), [("enter", False), ("exit", False), ("exit", True)])
async def test_slow_half_of_a_generator_does_not_block_the_loop(half: str, is_async: bool) -> None:
    server, is_slow, waits, done = Server[Any]("shop"), threading.Event(), threading.Event(), threading.Event()
    results: list[bool] = []

    def wait(now: str) -> None:
        if is_slow.is_set() and now == half:
            waits.set()
            results.append(done.wait(WAIT))

    def generate() -> Generator[str]:
        wait("enter")
        yield "value"
        wait("exit")

    async def async_body(one: Annotated[str, Depends(generate)]) -> str:
        return one

    def body(one: Annotated[str, Depends(generate)]) -> str:
        return one

    server.tool(name="tool")(async_body if is_async else body)
    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:
            for _ in range(5):
                assert text_of(await client.call_tool("tool")) == "value"
            is_slow.set()
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "tool")
                # Only the event loop can do it.
                await until(waits.is_set)
                done.set()
    assert results == [True]


async def test_exit_takes_no_slot() -> None:
    server, places, borrowers = Server[Any]("shop"), Places(), list[object]()

    @server.tool
    async def tool(one: Annotated[str, Depends(places.dependency("one"))]) -> str:
        limiter = SHARED.slots().limiter
        while limiter.available_tokens:
            borrowers.append(object())
            limiter.acquire_on_behalf_of_nowait(borrowers[-1])
        return one

    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:
            assert text_of(await client.call_tool("tool")) == "one"
            limiter = SHARED.slots().limiter
            for borrower in borrowers:
                limiter.release_on_behalf_of(borrower)
    assert borrowers
    assert places.names == ["enter one", "exit one"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_body_and_gate_share_the_thread_of_a_connection(is_async: bool) -> None:
    server, places = Server[Any]("shop"), Places()

    def connection() -> Generator[sqlite3.Connection]:
        with places.around("connection"):
            held = sqlite3.connect(":memory:")
            yield held
            held.close()

    def kept() -> sqlite3.Connection:
        places.note("kept")
        return sqlite3.connect(":memory:")

    def is_open(
        held: Annotated[sqlite3.Connection, Depends(connection)], other: Annotated[sqlite3.Connection, Depends(kept)]
    ) -> bool:
        places.note("gate")
        return bool(held.execute("select 1").fetchone() and other.execute("select 1").fetchone())

    @server.tool(name="tool", enabled=Depends(is_open))
    def body(
        held: Annotated[sqlite3.Connection, Depends(connection)], other: Annotated[sqlite3.Connection, Depends(kept)]
    ) -> str:
        places.note("body")
        return f"{held.total_changes} {other.total_changes}"

    @server.tool(enabled=Depends(is_open))
    async def stepping(ctx: Context, held: Annotated[sqlite3.Connection, Depends(connection)]) -> str:
        return str(await ctx.step("changes", lambda: held.total_changes))

    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:
            for _ in range(3):
                places.seen.clear()
                result = await client.call_tool("stepping" if is_async else "tool")
                assert text_of(result) == ("0" if is_async else "0 0")
                # A client may list the tools too, to check a result.
                mine = places.seen[: places.names.index("exit connection") + 1]
                assert len({thread for _, thread in mine} - {threading.get_ident()}) == 1
