"""Calls of the SDK's own classes that become tasks."""

from typing import Any

import pytest

import roundtrip
from roundtrip import Approvals, Context, Pages
from roundtrip.testing import Era, User
from tests.interaction.sdk_class.classes import each_class, low_level
from tests.kit.page_users import BASE, reader
from tests.kit.peer import peers, text_of

pytestmark = pytest.mark.anyio


@roundtrip.tool(task=True)
async def order(title: str, ctx: Context) -> str:
    """Order a title, in the background."""
    copies = await ctx.ask("copies", "How many?", int)
    return f"{copies} x {title}"


@roundtrip.tool(task="required")
async def ship(title: str) -> dict[str, str]:
    """Ship a title, in the background alone."""
    return {"shipped": title}


@each_class
async def test_call_becomes_a_task(make: Any) -> None:
    async with peers(make(order, ship)) as (peer,):
        handle = await peer.call("order", title="Emma")
        assert handle["resultType"] == "task"
        assert handle["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "cinema"
        await peer.asked(handle["taskId"], "copies")
        await peer.answer(handle["taskId"], copies=2)
        ended = await peer.until(handle["taskId"], "completed")
        assert text_of(ended) == "2 x Emma"
        shipped = await peer.until((await peer.call("ship", title="Emma"))["taskId"], "completed")
        assert shipped["result"]["structuredContent"] == {"shipped": "Emma"}


@each_class
async def test_client_without_tasks_is_asked_in_legs(make: Any) -> None:
    async with peers(make(order, ship), declares=False) as (peer,):
        assert (await peer.call("order", title="Emma"))["resultType"] == "input_required"
        refused = await peer.send("tools/call", name="ship", arguments={"title": "Emma"})
        assert refused["error"]["code"] == -32021


@each_class
@pytest.mark.parametrize("era", [Era.TASK, Era.RETRY, Era.LIVE])
async def test_scripted_user_answers_tools_with_tasks(make: Any, era: Era) -> None:
    assert (await User(make(order), {"copies": 2}, era=era).call("order", title="Emma")).text == "2 x Emma"


def test_low_level_server_rejects_what_it_has_no_place_for() -> None:
    stored: dict[str, Any] = {
        "pages": Pages(base_url=BASE, authenticate=reader),
        "channels": ["form", "model"],
        "approvals": Approvals(groups={}),
    }
    for name, value in stored.items():
        with pytest.raises(
            TypeError, match=f"without {name}=: the SDK's low-level Server takes no pages .*; use MCPServer"
        ):
            low_level(order, **{name: value})
