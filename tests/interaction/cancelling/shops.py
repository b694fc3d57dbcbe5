"""Tools that wait in all the places where a leg can wait, and log the resources that they hold."""

import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import anyio.lowlevel

from roundtrip import Context, Depends, Elicit, Resolve, Sample, Server
from roundtrip.testing import Era
from tests.kit.hosts import WAIT

__all__ = ["HELD", "LOG", "SHOPS", "Shop", "is_balanced"]

LOG: list[str] = []
HELD: "weakref.WeakSet[Held]" = weakref.WeakSet()


class Held:
    """Resources that no leg may leave alive."""

    def __init__(self) -> None:
        HELD.add(self)


@contextmanager
def logged(name: str) -> Generator[Held]:
    LOG.append(f"+{name}")
    try:
        yield Held()
    finally:
        LOG.append(f"-{name}")


def is_balanced() -> bool:
    """Return True if every opened resource was closed once, the last first."""
    open_: list[str] = []
    for entry in LOG:
        if entry[0] == "+":
            open_.append(entry[1:])
        elif not open_ or open_.pop() != entry[1:]:
            return False
    return not open_


async def pause() -> None:
    await anyio.lowlevel.checkpoint()


async def work() -> str:
    with logged("body"):
        await pause()
    return "done"


@dataclass
class Shop:
    """Tool with its questions and its result."""

    add: Callable[[Server], object]
    says: str = "done"
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    eras: tuple[Era, ...] = (Era.RETRY, Era.LIVE)
    once: bool = False
    has_threads: bool = False
    leaves_threads: bool = False


SHOPS: dict[str, Shop] = {}


def shop(**given: Any) -> Callable[[Callable[[Server], None]], None]:
    """Keep a function that adds a tool to a server, with what a shop of that tool has."""

    def keep(add: Callable[[Server], None]) -> None:
        SHOPS[add.__name__] = Shop(add, **given)

    return keep


@shop()
def timed(server: Server) -> None:
    @server.tool(timeout=WAIT)
    async def order() -> str:
        return await work()


async def connection() -> AsyncGenerator[Held]:
    await pause()
    with logged("connection") as held:
        try:
            yield held
        finally:
            with anyio.CancelScope(shield=True):
                await pause()


@asynccontextmanager
async def _session(connection: Held) -> AsyncGenerator[Held]:
    with logged("session") as held:
        await pause()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            yield held
            group.cancel_scope.cancel()


def session(connection: Held = Depends(connection)) -> Any:
    return _session(connection)


def lock(session: Held = Depends(session)) -> Generator[Held]:
    with logged("lock") as held:
        yield held


@shop()
def dependencies(server: Server) -> None:
    @server.tool()
    async def order(held: Held = Depends(lock)) -> str:
        return await work()


def _asking(name: str) -> Callable[..., Any]:
    async def ask(held: Held = Depends(session)) -> Elicit[bool]:
        await pause()
        return Elicit(f"{name}?", bool)

    ask.__name__ = name
    return ask


ONE, TWO, THREE = _asking("one"), _asking("two"), _asking("three")


async def afterwards(one: Annotated[bool, Resolve(ONE)]) -> Elicit[bool]:
    await pause()
    return Elicit("Afterwards?", bool)


YES = {"one": True, "two": True, "three": True, "afterwards": True}


@shop(answers=YES)
def questions(server: Server) -> None:
    @server.tool(timeout=WAIT)
    async def order(
        one: Annotated[bool, Resolve(ONE)],
        two: Annotated[bool, Resolve(TWO)],
        three: Annotated[bool, Resolve(THREE)],
        last: Annotated[bool, Resolve(afterwards)],
    ) -> str:
        return await work()


async def sampled() -> Sample:
    await pause()
    return Sample("Say it.", max_tokens=10)


async def number() -> int:
    with logged("number"):
        await pause()
    return 7


@shop(says="True 2 7 hello", answers={"sure": True, "a": True, "b": True, "sampled": "hello"})
def asking_body(server: Server) -> None:
    @server.tool()
    async def order(
        ctx: Context[Any, Any],
        drawn: Annotated[int, Resolve(number, remember=True)],
        said: Annotated[Any, Resolve(sampled)],
        held: Held = Depends(session),
    ) -> str:
        with logged("body"):
            await ctx.step("first", number)
            sure = await ctx.ask("sure", "Sure?", bool)
            await ctx.step("second", number)
            both = await ctx.ask_all({"a": Elicit("A?", bool), "b": Elicit("B?", bool)})
            return f"{sure} {len(both)} {drawn} {said.content.text}"


@shop(says="2", answers={"a": True, "b": True})
def grouped_body(server: Server) -> None:
    @server.tool(timeout=WAIT)
    async def order(ctx: Context[Any, Any]) -> str:
        said: list[bool] = []

        async def ask(key: str) -> None:
            await pause()
            said.append(await ctx.ask(key, f"{key}?", bool))

        with logged("body"):
            async with anyio.create_task_group() as group:
                group.start_soon(ask, "a")
                group.start_soon(ask, "b")
        return str(len(said))


@shop(says="7 True", answers={"sure": True}, has_threads=True)
def threads(server: Server) -> None:
    def looked_up() -> int:
        with logged("looked up"):
            return 7

    @server.tool()
    def order(ctx: Context[Any, Any], x: Annotated[int, Resolve(looked_up)]) -> str:
        with logged("body"):
            return f"{x} {ctx.blocking.ask('sure', 'Sure?', bool)}"


@shop(says="7 True", answers={"sure": True}, has_threads=True, leaves_threads=True)
def threads_left(server: Server) -> None:
    def looked_up() -> int:
        return 7

    @server.tool(timeout=WAIT)
    def order(ctx: Context[Any, Any], x: Annotated[int, Resolve(looked_up)]) -> str:
        return f"{x} {ctx.blocking.ask('sure', 'Sure?', bool)}"


async def allowed(held: Held = Depends(session)) -> bool:
    await pause()
    return True


@shop(answers={"confirm:order": {}})
def gated(server: Server) -> None:
    @server.tool(enabled=Depends(allowed), confirm="Really?")
    async def order(held: Held = Depends(session), one: Any = Depends(number)) -> str:
        return await work()


@shop(answers={"two": True}, eras=(Era.RETRY,), once=True)
def once(server: Server) -> None:
    @server.tool(exactly_once=True)
    async def order(two: Annotated[bool, Resolve(TWO)], held: Held = Depends(session)) -> str:
        return await work()


@shop(eras=(Era.RETRY,), once=True)
def once_at_once(server: Server) -> None:
    @server.tool(exactly_once=True, uncovered="round")
    async def order() -> str:
        return await work()


@shop(says="7 True", answers={"sure": True}, eras=(Era.RETRY,), once=True)
def once_asking(server: Server) -> None:
    @server.tool(exactly_once=True, timeout=WAIT)
    async def order(ctx: Context[Any, Any]) -> str:
        with logged("body"):
            drawn = await ctx.step("drawn", number)
            sure = await ctx.ask("sure", "Sure?", bool)
            return f"{drawn} {sure}"
