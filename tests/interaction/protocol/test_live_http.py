"""The live era over HTTP, with a client that is gone or at the wrong instance: a clear end, and soon."""

import itertools

import anyio
import pytest
from mcp.server.streamable_http import EventCallback, EventStore
from mcp_types import JSONRPCMessage
from starlette.requests import Request

from roundtrip import Context, Event, Server, State, Transition
from roundtrip.testing import Steps, served
from tests.kit.live_wire import session
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio


async def end_of(trace: Steps) -> Transition:
    """Wait for the end of a call, and return it."""
    ends = {State.REJECTED, State.COMPLETED, State.FAILED, State.DECLINED}
    await until(lambda: any(step.target in ends for step in trace.transitions), what="the end of the call")
    return trace.transitions[-1]


async def test_live_call_ends_when_its_client_leaves_the_question() -> None:
    trace = Steps()
    closed = anyio.Event()
    server = Server("shop", trace=trace)

    @server.tool()
    async def order(ctx: Context) -> str:
        try:
            return str(await ctx.ask_outcome("sure", "Sure?", bool))
        finally:
            closed.set()

    async with served(server) as url, session(url) as client:
        async with client.calling("order") as question:
            assert question["method"] == "elicitation/create"
        last = await end_of(trace)
        # The session is still good for other calls, and an answer that comes after all harms nothing.
        assert await client.answer(question, value=True) == 202
        async with client.calling("order") as question:
            assert question["method"] == "elicitation/create"
    assert closed.is_set()
    assert last.event is Event.REJECT
    assert last.source is State.AWAITING_INPUT
    assert "connection was lost" in last.detail["error"]


async def test_live_call_asking_a_departed_client_ends_at_once() -> None:
    trace = Steps()
    server = Server("shop", trace=trace)

    @server.tool()
    async def order(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        request = ctx.request_context.request
        assert request is not None
        await until(request.is_disconnected)
        return str(await ctx.ask_outcome("sure", "Sure?", bool))

    async with served(server) as url, session(url) as client:
        async with client.calling("order") as progress:
            assert progress["method"] == "notifications/progress"
        last = await end_of(trace)
    assert last.event is Event.REJECT
    assert "connection was lost" in last.detail["error"]


class Kept(EventStore):
    """Event store that keeps nothing, which is enough to make streams resumable."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        return f"{stream_id}-{next(self._ids)}"

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        return None


async def test_live_call_continues_where_its_stream_is_resumable() -> None:
    trace = Steps()
    requests: list[Request] = []
    server = Server("shop", trace=trace)

    @server.tool()
    async def order(ctx: Context) -> str:
        request = ctx.request_context.request
        assert request is not None
        requests.append(request)
        return str(await ctx.ask_outcome("sure", "Sure?", bool))

    async with served(server, event_store=Kept()) as url, session(url) as client:
        async with client.calling("order") as question:
            pass
        await until(requests[0].is_disconnected)
        await anyio.wait_all_tasks_blocked()
        assert trace.states[-1] is State.AWAITING_INPUT
        assert await client.answer(question, value=True) == 202
        assert (await end_of(trace)).target is State.COMPLETED
