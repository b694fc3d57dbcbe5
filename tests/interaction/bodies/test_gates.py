"""`confirm=`: a dangerous tool asks before anything runs, and shows what it was called with."""

from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Event, InvalidSignature, Resolve, Server, State
from tests.hosts import http
from tests.interaction.bodies.shops import KEY, shop
from tests.players import Era, Hopper, Person, Trace, call, connect, text_of

pytestmark = pytest.mark.anyio

CONFIRM = {"confirm": "Delete {path}?"}


class Reason(BaseModel):
    reason: str


class Disk:
    """What was looked up and deleted, and a tool that does so behind a gate."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def server(self, trace: Trace | None = None) -> Server[Any]:
        async def size(path: str) -> int:
            self.done.append(f"sized {path}")
            return 7

        async def why(size: Annotated[int, Resolve(size)]) -> Elicit[Reason]:
            return Elicit(f"Why delete {size} bytes?", Reason)

        async def body(
            path: str, reason: Annotated[Reason, Resolve(why)], times: Annotated[int, Field(ge=1)] = 1
        ) -> str:
            self.done.append(f"deleted {path}")
            return f"{path} {times}x: {reason.reason}"

        return shop(body, tool=CONFIRM, trace=trace)


async def test_an_accepted_call_goes_on_and_its_own_questions_come_after(era: Era) -> None:
    disk = Disk()
    person = Person({}, {"reason": "old"})
    async with connect(disk.server(), era, person) as client:
        assert text_of(await client.call_tool("order", {"path": "/tmp/a"})) == "/tmp/a 1x: old"
    assert person.messages == ["Delete /tmp/a?\n\npath: /tmp/a\ntimes: 1", "Why delete 7 bytes?"]
    assert disk.done[-1] == "deleted /tmp/a"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refused_call_ends_before_anything_runs(era: Era, action: str) -> None:
    disk, trace = Disk(), Trace()
    result = await call(disk.server(trace), era, "order", {"path": "/tmp/a"}, action)
    assert result.is_error
    assert text_of(result).endswith(f"elicitation was {action}")
    assert disk.done == []
    assert trace.path[-2:] == [State.RESOLVING, State.REFUSED]


async def test_nothing_runs_before_the_answer() -> None:
    disk = Disk()
    hopper = Hopper(disk.server)
    await hopper.leg("order", {"path": "/tmp/a"})
    assert list(hopper.questions) == ["confirm:order"]
    assert disk.done == []


async def test_a_client_that_cannot_be_asked_is_refused_and_nothing_runs(era: Era) -> None:
    """Shows S6."""
    disk, trace = Disk(), Trace()
    async with connect(disk.server(trace), era) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("order", {"path": "/tmp/a"})
    assert refused.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert disk.done == []
    assert trace.events[-1] is Event.REJECT


async def test_an_older_client_without_a_way_back_is_refused_and_nothing_runs() -> None:
    disk = Disk()
    async with http(disk.server(), json_response=True) as url, connect(url, Era.LIVE, Person({})) as client:
        with pytest.raises(MCPError, match="cannot ask 'confirm:order'"):
            await client.call_tool("order", {"path": "/tmp/a"})
    assert disk.done == []


async def test_a_confirmation_is_good_for_the_arguments_it_showed_only() -> None:
    """Shows S5."""
    disk = Disk()
    hopper = Hopper(disk.server)
    await hopper.leg("order", {"path": "/tmp/a"})
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        await hopper.leg("order", {"path": "/etc"}, answers={"confirm:order": {}}, state=hopper.token)
    # Without the state the answer is to a question that nobody asked.
    await hopper.leg("order", {"path": "/etc"}, answers={"confirm:order": {}})
    assert list(hopper.questions) == ["confirm:order"]
    assert disk.done == []


async def test_a_confirmation_rides_along_and_is_not_asked_again() -> None:
    disk = Disk()
    hopper = Hopper(disk.server)
    result = await hopper.play("order", {"path": "/tmp/a"}, [{"confirm:order": {}}, {"why": {"reason": "old"}}])
    assert text_of(result) == "/tmp/a 1x: old"
    assert [list(leg.input_requests or {}) for leg in hopper.legs] == [["confirm:order"], ["why"]]


async def test_invalid_arguments_are_refused_before_the_question(era: Era) -> None:
    disk = Disk()
    person = Person()
    async with connect(disk.server(), era, person) as client:
        assert (await client.call_tool("order", {"path": "/tmp/a", "times": 0})).is_error
    assert person.asked == []


async def test_a_body_that_asks_does_so_after_the_gate_by_the_same_path_on_both_eras() -> None:
    async def body(path: str, ctx: Context[Any, Any]) -> str:
        return (await ctx.ask("reason", Elicit(f"Why {path}?", Reason), unwrap=True)).reason

    paths: list[Any] = []
    for era in Era:
        trace = Trace()
        async with connect(shop(body, tool=CONFIRM, trace=trace), era, Person({}, {"reason": "old"})) as client:
            assert text_of(await client.call_tool("order", {"path": "/a"})) == "old"
        assert trace.asked == [{"confirm:order": "new"}, {"reason": "new"}]
        paths.append(trace.path)
    assert paths[0] == paths[1]


async def test_a_plain_tool_without_questions_of_its_own_has_a_gate_too(era: Era) -> None:
    def body(path: str) -> str:
        return f"deleted {path}"

    server = shop(body, tool=CONFIRM)
    assert text_of(await call(server, era, "order", {"path": "/a"}, {})) == "deleted /a"
    assert (await call(server, era, "order", {"path": "/a"}, "decline")).is_error


async def test_arguments_that_look_like_templates_are_shown_as_they_are(era: Era) -> None:
    async def body(path: str) -> str:
        return "done"

    person = Person({})
    async with connect(shop(body, tool=CONFIRM), era, person) as client:
        await client.call_tool("order", {"path": "{path.__class__} {0}"})
    assert person.messages[0].startswith("Delete {path.__class__} {0}?")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("Delete {file}?", "mentions 'file', which is no argument of the tool (it has: path)"),
        ("Delete {path.name}?", "mentions 'path.name'"),
        ("Delete {}?", "mentions ''"),
        ("Delete {ctx}?", "mentions 'ctx'"),
        ("Delete {path?", "is no format string"),
        ("Delete path}?", "is no format string"),
    ],
)
async def test_a_template_that_cannot_be_filled_in_is_refused_at_registration(template: str, why: str) -> None:
    server = Server("shop", keys=[KEY])

    async def order(path: str, ctx: Context[Any, Any]) -> str:
        return "never"

    with pytest.raises(InvalidSignature) as refused:
        server.tool(confirm=template)(order)
    assert str(refused.value).startswith("tool 'order': confirm=")
    assert why in str(refused.value)
