"""Plain functions: which thread each runs in, what it sees there, and how the end of a call ends it."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from inspect import Parameter, Signature
from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Depends, Elicit, Event, InvalidSignature, Resolve, Server
from roundtrip.server.workers import Work, Worker
from roundtrip.testing import Era, Steps, User
from tests.interaction.threads.test_timeouts import until
from tests.kit.held_threads import Held
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio

VARIABLE: ContextVar[str] = ContextVar("plain_functions", default="unset")
LONG = 60.0
"""For what is never waited for."""


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
@pytest.mark.parametrize("count", [2, 8])
async def test_functions_that_wait_for_each_other_both_end(era: Era, plain_body: bool, count: int) -> None:
    server, barrier = Server[Any]("shop"), threading.Barrier(2)
    first, second = waiting(barrier), waiting(barrier)

    def body(one: Annotated[int, Resolve(first, key="one")], other: Annotated[int, Resolve(second, key="two")]) -> int:
        return one + other

    async def async_body(
        one: Annotated[int, Resolve(first, key="one")], other: Annotated[int, Resolve(second, key="two")]
    ) -> int:
        return one + other

    server.tool(name="tool")(body if plain_body else async_body)
    assert [await call(server, era) for _ in range(count)] == ["1"] * count


async def test_independent_steps_may_wait_for_each_other(era: Era) -> None:
    server, barrier = Server[Any]("shop"), threading.Barrier(2)

    @server.tool(name="tool")
    async def body(ctx: Context) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(step, ctx, "one")
            group.start_soon(step, ctx, "two")
        return "done"

    async def step(ctx: Context, key: str) -> None:
        await ctx.step(key, waiting(barrier))

    assert await call(server, era) == "done"


def linked(places: Places) -> Server[Any]:
    """Return a server with a tool whose functions depend on each other, beside two that are slow."""
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

    def slow() -> str:
        places.note("slow")
        time.sleep(0.01)
        return "slow"

    def slower() -> str:
        places.note("slower")
        time.sleep(0.02)
        return "slower"

    def count(held: sqlite3.Connection) -> int:
        places.note("step")
        return held.execute("select count(*) from orders").fetchone()[0]

    @server.tool(name="tool")
    def body(
        ctx: Context,
        made: Annotated[int, Resolve(order)],
        held: Annotated[sqlite3.Connection, Resolve(connection)],
        first: Annotated[str, Resolve(slow)],
        second: Annotated[str, Resolve(slower)],
    ) -> str:
        places.note("body")
        rows = ctx.blocking.step("count", count, held)
        return f"{made} {rows} {held.execute('select name from orders').fetchone()[0]} {first} {second}"

    @server.tool
    async def stepping(ctx: Context, held: Annotated[sqlite3.Connection, Resolve(connection)]) -> str:
        return str(await ctx.step("changes", lambda: held.total_changes))

    return server


async def test_connection_serves_all_functions_that_depend_on_it(era: Era) -> None:
    places = Places()
    server = linked(places)
    for _ in range(20):
        assert await call(server, era) == "1 1 tea slow slower"
        assert await call(server, era, "stepping") == "0"
    results: list[str] = []
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client, anyio.create_task_group() as group:

            async def run() -> None:
                results.append(text_of(await client.call_tool("tool")))

            for _ in range(20):
                group.start_soon(run)
    assert results == ["1 1 tea slow slower"] * 20


@pytest.mark.nightly
async def test_hundredth_call_places_functions_as_the_first(era: Era) -> None:
    places = Places()
    server = linked(places)
    together = ["connection", "table", "order", "body", "step"]
    placements: list[tuple[int, bool]] = []
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            for _ in range(100):
                places.seen.clear()
                await client.call_tool("tool")
                threads = {name: thread for name, (thread,) in places.seen.items()}
                assert threading.get_ident() not in threads.values()
                placements.append((len({threads[name] for name in together}), threads["slow"] == threads["slower"]))
    assert placements == [(1, False)] * 100


async def test_one_leg_runs_quick_functions_in_one_thread(era: Era) -> None:
    server, places = Server[Any]("shop"), Places()

    def ask(first: Annotated[int, Resolve(lambda: places.note("first"), key="first")]) -> Elicit[bool]:
        places.note("ask")
        return Elicit("Sure?", bool)

    @server.tool
    def tool(sure: Annotated[bool, Resolve(ask)]) -> str:
        places.note("body")
        return str(sure)

    assert (await User(server, {"ask": True}, era=era).call("tool")).text == "True"
    assert places.seen["first"][-1] == places.seen["ask"][-1] == places.seen["body"][-1] != threading.get_ident()


async def test_inline_functions_run_on_the_loop_and_no_others_do(era: Era) -> None:
    server, places = Server[Any]("shop"), Places()

    def noting(name: str) -> Callable[[], int]:
        return lambda: places.note(name)

    def after(value: Annotated[int, Resolve(noting("inline resolver"), key="inline", inline=True)]) -> int:
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

    async with connect(server, era) as client:
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


async def test_each_function_sees_the_calls_context_variables(era: Era) -> None:
    server, seen = Server[Any]("shop"), list[str]()

    async def enter() -> Any:
        VARIABLE.set("set by a dependency")
        yield "entered"

    def first(entered: str = Depends(enter)) -> str:
        seen.append(VARIABLE.get())
        VARIABLE.set("set by the first function")
        return "first"

    def second(value: Annotated[str, Resolve(first)]) -> str:
        seen.append(VARIABLE.get())
        return "second"

    @server.tool
    def tool(ctx: Context, value: Annotated[str, Resolve(second)]) -> str:
        seen.append(VARIABLE.get())
        VARIABLE.set("set by the body")
        ctx.blocking.step("step", lambda: seen.append(VARIABLE.get()))
        return "done"

    assert await call(server, era) == "done"
    assert seen == [*["set by a dependency"] * 3, "set by the body"]


async def test_thread_local_is_kept_between_functions_of_a_leg(era: Era) -> None:
    server, local = Server[Any]("shop"), threading.local()

    def begin(number: int) -> int:
        local.session = number
        return number

    def check(number: Annotated[int, Resolve(begin)]) -> bool:
        return local.session == number

    @server.tool
    def tool(number: int, same: Annotated[bool, Resolve(check)]) -> bool:
        return same and local.session == number

    results: list[str] = []
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client, anyio.create_task_group() as group:

            async def run(number: int) -> None:
                results.append(text_of(await client.call_tool("tool", {"number": number})))

            for number in range(20):
                group.start_soon(run, number)
    assert results == ["true"] * 20


@pytest.mark.parametrize("seconds", [None, LONG], ids=["waited for", "left behind"])
async def test_cancelled_call_starts_no_further_function(era: Era, seconds: float | None, held: Held) -> None:
    ran, trace = list[str](), Steps()
    server = Server[Any]("shop", trace=trace)

    def after(value: Annotated[str, Resolve(held, key="held")]) -> str:
        ran.append("after")
        return value

    @server.tool(timeout=seconds)
    def tool(value: Annotated[str, Resolve(after)]) -> str:
        ran.append("body")
        return value

    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "tool")
                await until(lambda: held.started)
                group.cancel_scope.cancel()
                if seconds is None:
                    # A call without a timeout waits for its thread, and so does a client in the same process.
                    threading.Timer(0.3, held.release.set).start()
            if seconds is not None:
                await until(lambda: trace.steps[-1].event is Event.FAIL)
                held.release.set()
            await until(lambda: trace.steps[-1].event is Event.FAIL and held.ended)
            await anyio.sleep(0.05)
    assert ran == []


async def test_timed_out_function_is_left_and_nothing_follows(era: Era, held: Held) -> None:
    server, ran = Server[Any]("shop"), list[str]()

    def after(value: Annotated[str, Resolve(held, key="held")]) -> None:
        ran.append("after")

    @server.tool(timeout=0.1)
    def tool(value: Annotated[None, Resolve(after)]) -> None:
        ran.append("body")

    @server.tool
    def another() -> str:
        return "served"

    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool("tool")
            assert text_of(await client.call_tool("another")) == "served"
            held.release.set()
            await until(lambda: held.ended)
            await anyio.sleep(0.05)
    assert ran == []


async def test_plain_leg_goes_to_a_thread_once(era: Era, monkeypatch: pytest.MonkeyPatch) -> None:
    server, legs = Server[Any]("shop"), list[object]()

    def first() -> int:
        return 1

    def ask(value: Annotated[int, Resolve(first)]) -> Elicit[int]:
        return Elicit(f"{value}?", int)

    @server.tool
    def tool(value: Annotated[int, Resolve(ask)], other: Annotated[int, Resolve(lambda: 2, key="other")]) -> int:
        return value + other

    @server.tool
    def alone(value: Annotated[int, Resolve(first)], other: Annotated[int, Resolve(lambda: 2, key="other")]) -> int:
        return value + other

    do = Worker.do

    def counting(worker: Worker, work: Work) -> None:
        legs.append(work)
        do(worker, work)

    monkeypatch.setattr(Worker, "do", counting)
    async with connect(server, era, Person({"value": 1})) as client:
        assert text_of(await client.call_tool("alone")) == "3"
        assert len(legs) == 1
        # In the older era, the leg waits for the user on the event loop, and then goes on.
        assert text_of(await client.call_tool("tool")) == "3"
        assert len(legs) == 3


async def test_plain_body_may_return_a_coroutine(era: Era) -> None:
    server = Server[Any]("shop")

    async def later(value: int) -> str:
        await asyncio.sleep(0)
        return f"later {value}"

    @server.tool(name="tool")
    def body(value: Annotated[int, Resolve(lambda: 1, key="one")]) -> Any:
        return later(value)

    assert await call(server, era) == "later 1"


async def test_declined_question_keeps_a_plain_body_from_running(era: Era) -> None:
    server, ran = Server[Any]("shop"), list[str]()

    def ask() -> Elicit[bool]:
        return Elicit("Sure?", bool)

    @server.tool
    def tool(sure: Annotated[bool, Resolve(ask)], other: Annotated[int, Resolve(lambda: 2, key="other")]) -> str:
        ran.append("body")
        return "done"

    async with connect(server, era, Person("decline")) as client:
        assert "decline" in text_of(await client.call_tool("tool"))
    assert ran == []


@pytest.mark.parametrize("takes_context", [True, False], ids=["body alone", "with resolvers"])
async def test_loop_goes_on_when_a_quick_function_gets_slow(era: Era, takes_context: bool) -> None:
    server, is_slow, done = Server[Any]("shop"), threading.Event(), threading.Event()

    def one() -> int:
        return 1

    def work() -> str:
        return str(not is_slow.is_set() or done.wait(WAIT))

    def body(value: Annotated[int, Resolve(one)]) -> str:
        return work()

    def body_with_context(ctx: Context, value: Annotated[int, Resolve(one)]) -> str:
        return work()

    server.tool(name="tool")(body_with_context if takes_context else body)
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            for _ in range(5):
                assert text_of(await client.call_tool("tool")) == "True"
            is_slow.set()
            async with anyio.create_task_group() as group:

                async def slow() -> None:
                    assert text_of(await client.call_tool("tool")) == "True"

                group.start_soon(slow)
                await anyio.sleep(0.05)
                # Only the event loop can do it.
                done.set()


async def test_failing_function_ends_the_call_with_its_error(era: Era) -> None:
    server, ran = Server[Any]("shop"), list[str]()

    def fail() -> None:
        raise ValueError("no tea")

    def after(value: Annotated[None, Resolve(fail)]) -> None:
        ran.append("after")

    def beside() -> None:
        ran.append("beside")

    @server.tool(name="tool")
    def body(one: Annotated[None, Resolve(after)], two: Annotated[None, Resolve(beside)]) -> None: ...

    assert await call(server, era) == "Error executing tool tool: no tea"
    assert "after" not in ran


async def test_trace_has_plain_functions_in_plan_order(era: Era) -> None:
    trace = Steps()
    server = Server[Any]("shop", trace=trace)

    def first() -> Elicit[int]:
        return Elicit("First?", int)

    def second() -> Elicit[int]:
        return Elicit("Second?", int)

    def both(one: Annotated[int, Resolve(first)], other: Annotated[int, Resolve(second)]) -> int:
        return one + other

    @server.tool
    def tool(total: Annotated[int, Resolve(both)]) -> int:
        return total

    user = User(server, {"first": {"value": 1}, "second": {"value": 2}}, era=era)
    assert (await user.call("tool")).text == "3"
    assert trace.asked == [{"first": "new", "second": "new"}]


async def test_person_answers_sixteen_questions_in_order(era: Era) -> None:
    server = Server[Any]("shop")

    def asking(number: int) -> Callable[[], Elicit[int]]:
        return lambda: Elicit(f"{number}?", int)

    def tool(**numbers: int) -> str:
        return " ".join(map(str, numbers.values()))

    hints = {f"n{number}": Annotated[int, Resolve(asking(number), key=f"q{number}")] for number in range(16)}
    tool.__annotations__ = {**hints, "return": str}
    vars(tool)["__signature__"] = _signature(hints)
    server.tool(tool)
    person = Person(*({"value": number} for number in range(16)))
    with anyio.fail_after(WAIT):
        async with connect(server, era, person) as client:
            assert text_of(await client.call_tool("tool")) == " ".join(map(str, range(16)))
    assert [question.message for question in person.asked] == [f"{number}?" for number in range(16)]


def _signature(hints: dict[str, Any]) -> Signature:
    return Signature(
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint) for name, hint in hints.items()],
        return_annotation=str,
    )
