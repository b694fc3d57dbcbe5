"""Clients that leave while a plain function runs in its thread."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
from mcp.client import Client

from roundtrip import Event
from roundtrip.testing import Steps
from tests.kit.held_threads import Held
from tests.kit.waiting import until

__all__ = ["leave"]

_TURNS = 100
"""Turns of the event loop in which a cancellation surely arrives."""


async def leave(client: Client, held: Held, trace: Steps | None, *, tool: str = "tool", waits: bool = False) -> None:
    """Call a tool, and cancel the call once a function is held; a call with a timeout leaves its thread behind.

    Args:
        client: The client.
        held: The function.
        trace: The trace of the server, in which the call is to fail.
        tool: Name of the tool.
        waits: The tool has no timeout. Its call waits for the thread, and so does a client in the same process: let the
            function go once the cancellation has arrived.
    """

    async def let_go(release: Callable[[], None]) -> None:
        for _ in range(_TURNS):
            await anyio.lowlevel.checkpoint()
        release()

    async with anyio.create_task_group() as outside:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, tool)
            await until(lambda: held.started)
            if waits:
                outside.start_soon(let_go, held.release.set)
            group.cancel_scope.cancel()
        if trace is not None:
            await until(lambda: trace.transitions[-1].event is Event.FAIL)
