"""Dependencies of a plain function that outlives its call in a thread: they are left when the thread has ended."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Depends, Server
from roundtrip.engine.teardown import innermost_scope
from roundtrip.testing import Era, Steps
from tests.interaction.threads.leaving import leave
from tests.kit.held_threads import Held
from tests.kit.hosts import WAIT
from tests.kit.players import connect
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

LONG = 60.0
"""For what is never waited for."""


class Resource:
    """Resource that must not be used after it was closed."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextmanager
    def opened(self) -> Generator[str]:
        self.log.append("open")
        try:
            yield "resource"
        finally:
            self.log.append("close")


def shop(session: Callable[[], Any], held: Held, trace: Steps) -> Server[Any]:
    server = Server[Any]("shop", trace=trace)

    @server.tool(timeout=LONG)
    def order(one: str = Depends(session)) -> str:
        return held()

    return server


async def give_up(server: Server[Any], trace: Steps, held: Held, then: Callable[[], Awaitable[None]]) -> None:
    """Call, and leave the thread behind as soon as it runs; a call with a timeout does not wait for it."""
    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:
            await leave(client, held, trace, tool="order")
            await then()


async def test_async_dependency_stays_open_while_a_thread_uses_it(held: Held) -> None:
    resource = Resource()

    async def session() -> AsyncGenerator[str]:
        with resource.opened() as one:
            yield one
            await anyio.lowlevel.checkpoint()

    async def then() -> None:
        assert (resource.log, held.ended) == (["open"], 0)
        held.release.set()
        await until(lambda: resource.log == ["open", "close"])
        assert held.ended == 1

    trace = Steps()
    await give_up(shop(session, held, trace), trace, held, then)


async def test_failure_to_leave_later_is_logged(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    resource = Resource()

    def session() -> Generator[str]:
        try:
            with resource.opened() as one:
                yield one
        finally:
            raise ValueError("cannot close")

    async def then() -> None:
        held.release.set()
        await until(lambda: "session" in caplog.text)
        assert resource.log == ["open", "close"]

    trace = Steps()
    await give_up(shop(session, held, trace), trace, held, then)
    assert any(record.exc_info and "cannot close" in str(record.exc_info[1]) for record in caplog.records)


async def test_innermost_scope_is_still_where_anyio_keeps_it() -> None:
    before = innermost_scope()
    with anyio.CancelScope() as scope:
        await anyio.lowlevel.checkpoint()
        assert innermost_scope() is scope
    assert innermost_scope() is before
