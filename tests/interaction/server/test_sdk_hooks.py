"""The SDK's hooks around calls of tools: approvals, pages and tasks go on behind them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

import httpx
import pytest
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.extension import Extension, ToolBinding
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult

import roundtrip
from roundtrip import Approval, Approve, Resolve, Server
from tests.kit import approving
from tests.kit.approving import Person, open_shop, shop
from tests.kit.page_users import client_of, resume, text_of
from tests.kit.peer import Peer
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

SEEN: Final[list[str]] = []
LifespanT = TypeVar("LifespanT")


async def note(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    if ctx.method == "tools/call":
        SEEN.append("middleware")
    return await call_next(ctx)


class Noting(Extension):
    """Extension that sees each call of a tool."""

    identifier = "com.example/noting"

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        SEEN.append("extension")
        return await call_next(ctx)


class NotingServer(Server[LifespanT]):
    """Server that overrides `call_tool`, as subclasses of the SDK's do."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None, **named: Any) -> Any:
        SEEN.append("subclass")
        return await super().call_tool(name, arguments, context, **named)


def with_middleware(monkeypatch: pytest.MonkeyPatch) -> Server[Any]:
    server = shop()
    server.middleware.append(note)
    return server


def with_extension(monkeypatch: pytest.MonkeyPatch) -> Server[Any]:
    return shop(extensions=[Noting()])


def of_a_subclass(monkeypatch: pytest.MonkeyPatch) -> Server[Any]:
    monkeypatch.setattr(approving, "Server", NotingServer)
    return shop()


@pytest.fixture(params=[with_middleware, with_extension, of_a_subclass], ids=lambda make: make.__name__)
def hooked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server[Any]:
    SEEN.clear()
    make: Callable[[pytest.MonkeyPatch], Server[Any]] = request.param
    return make(monkeypatch)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_approval_reaches_the_inbox_and_the_call_goes_on(hooked: Server[Any], mode: str) -> None:
    async with open_shop(hooked) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("refund", {"amount": 5})
        await Person(url, "fay").decide("approve")
        assert text_of(await resume(client, asked)) == "refunded 5"
    assert SEEN


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_question_of_a_client_without_forms_has_a_link(hooked: Server[Any], mode: str) -> None:
    async with open_shop(hooked) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("partly", {"order": "o1"})
        assert approving.BASE in text_of(asked)


async def test_task_gives_its_client_a_handle(hooked: Server[Any]) -> None:
    async with open_shop(hooked) as url, httpx.AsyncClient(timeout=WAIT) as http:
        peer = Peer(http, f"{url}/mcp", headers={"x-user": "ann"})
        made = await peer.call("close_books", year=2026)
        assert made["resultType"] == "task"
        for person in ("fay", "sam"):
            await Person(url, person).decide("approve")
        assert (await peer.until(made["taskId"]))["status"] == "completed"
    assert SEEN


async def test_hook_may_answer_by_itself(hooked: Server[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(ctx: Any, call_next: Any) -> Any:
        return CallToolResult(content=[], is_error=True) if ctx.method == "tools/call" else await call_next(ctx)

    hooked.middleware.append(refuse)
    async with open_shop(hooked) as url, client_of(url) as client:
        result = await client.call_tool("refund", {"amount": 5})
        assert result.is_error
        assert await Person(url, "fay").inbox() == []


async def refund_order(order: str) -> str:
    return f"refunded {order}"


async def refund_approved(order: str, approval: Annotated[Approval, Resolve(approving.large)]) -> str:
    return f"refunded {order}"


GIVEN: Final[dict[str, tuple[Callable[..., Any], dict[str, Any]]]] = {
    "confirm": (refund_order, {"confirm": Approve("Refund {order}?", by="finance")}),
    "resolver": (refund_approved, {}),
    "task": (refund_order, {"task": True}),
    "required": (refund_order, {"task": "required"}),
}


def given_to_the_constructor(what: str) -> Server[Any]:
    fn, options = GIVEN[what]

    async def copied(order: str) -> str:
        return await fn(order)

    asking = roundtrip.tool(**options)(copied) if options else fn
    return shop(tools=[Tool.from_function(asking, name="given")])


def given_by_an_extension(what: str) -> Server[Any]:
    fn, options = GIVEN[what]

    class Giving(Extension):
        identifier = "com.example/giving"

        def tools(self) -> Sequence[ToolBinding]:
            return [ToolBinding(fn=fn, kwargs={"name": "given", **options})]

    return shop(extensions=[Giving()])


@pytest.mark.parametrize("what", GIVEN)
@pytest.mark.parametrize("make", [given_to_the_constructor, given_by_an_extension])
async def test_tool_of_constructor_or_extension_keeps_its_promise(
    make: Callable[[str], Server[Any]], what: str
) -> None:
    async with open_shop(make(what)) as url, httpx.AsyncClient(timeout=WAIT) as http:
        if what in ("task", "required"):
            peer = Peer(http, f"{url}/mcp", headers={"x-user": "ann"})
            made = await peer.call("given", order="o1")
            assert made["resultType"] == "task"
            assert (await peer.until(made["taskId"]))["status"] == "completed"
            return
        async with client_of(url) as client:
            asked = await client.call_tool("given", {"order": "o1"})
            await Person(url, "fay").decide("approve")
            assert text_of(await resume(client, asked)) == "refunded o1"
