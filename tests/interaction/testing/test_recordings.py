"""Conversations with real servers are recorded, and played to right clients and to wrong ones, on both eras."""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ErrorData,
    RootsListChangedNotification,
)

from roundtrip import Context, Resolve, Server
from roundtrip.testing import DECLINE, Answers, Conversation, Era, LegByLeg, User, served
from roundtrip.testing.recordings import Replayed, Unrecordable, record, replay
from tests.interaction.testing.keepsakes import of_the_sdk
from tests.interaction.testing.seats import Seat, Snack, seat, snack
from tests.kit.players import Person, connect, roots
from tests.kit.shops import server_with
from tests.kit.waiting import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(eras="both")]

Over = Literal["memory", "http"]


async def book(
    film: str, seat: Annotated[Seat, Resolve(seat)], snack: Annotated[Snack, Resolve(snack)]
) -> dict[str, str]:
    return {"film": film, "row": seat.row, "snack": snack.name}


async def clean(hall: int, ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half clean")
    await ctx.notify_tools_changed()
    return f"hall {hall} is clean"


def cinema() -> Server[Any]:
    return server_with(book, clean, version="7", instructions="Be on time.")


ROW, FOOD = re.compile("row for"), re.compile("eat")
ANSWERS: Answers = {ROW: {"row": "last"}, FOOD: {"name": "tea"}}
BOOKED = {"film": "Solaris", "row": "last", "snack": "tea"}


async def booking(
    server: Any, era: Era, answers: Answers = ANSWERS, film: str = "Solaris", **options: Any
) -> Conversation:
    return await User(server, answers, era=era, allow_unused=True, **options).call("book", film=film)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a recording goes, in a folder that does not exist yet."""
    return tmp_path / "recordings" / "cinema.json"


@pytest.fixture
async def recorded(era: Era, path: Path) -> Path:
    """A recorded booking."""
    async with record(cinema(), path) as tapped:
        await booking(tapped, era)
    return path


@asynccontextmanager
async def reachable(path: Path, over: Over) -> AsyncGenerator[tuple[Any, Replayed]]:
    """Yield a target to connect to, and the replayed server."""
    replayed = replay(path)
    async with AsyncExitStack() as stack:
        yield (await stack.enter_async_context(served(replayed)) if over == "http" else replayed), replayed


async def assert_replayed(converse: Callable[[Any, Era], Awaitable[Any]], era: Era, path: Path, result: Any) -> None:
    """Record a conversation, and have it once more in memory and over HTTP."""
    async with record(cinema(), path) as tapped:
        then = await converse(tapped, era)
    async with reachable(path, "memory") as (server, near), reachable(path, "http") as (url, far):
        with anyio.fail_after(WAIT):
            now = [await converse(server, era), await converse(url, era)]
    assert [then, *now] == [result] * 3
    assert [replayed.unplayed + replayed.mismatches for replayed in (near, far)] == [[], []]
    near.assert_played()


async def booked(target: Any, era: Era) -> Any:
    return (await booking(target, era)).value


async def progress(target: Any, era: Era) -> list[tuple[float, float | None, str | None]]:
    reports: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async with connect(target, era) as client:
        await client.call_tool("clean", {"hall": 1}, progress_callback=report)
    return reports


@pytest.mark.parametrize(("converse", "result"), [(booked, BOOKED), (progress, [(1, 2, "half clean")])])
async def test_the_client_that_was_recorded_gets_what_it_got(era: Era, path: Path, converse: Any, result: Any) -> None:
    await assert_replayed(converse, era, path, result)


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_idle_or_wrong_client_is_reported_and_may_still_succeed(recorded: Path, era: Era, over: Over) -> None:
    async with reachable(recorded, over) as (target, replayed):
        assert "tools/list" in [message.method for message in replayed.unplayed]
        with pytest.raises(AssertionError, match=r'recorded, but not sent: tools/call book \{"film": "Solaris"\}'):
            replayed.assert_played()
        with pytest.raises(MCPError, match=r'params\.arguments\.film: expected "Solaris", got "Stalker"'):
            await booking(target, era, film="Stalker")
        with pytest.raises(MCPError, match=r'content\.row: expected "last", got "first"'):
            await booking(target, era, {**ANSWERS, ROW: {"row": "first"}})
        assert [mismatch.request.method for mismatch in replayed.mismatches] == ["tools/call", "tools/call"]
        if era is Era.LIVE:
            with pytest.raises(
                MCPError, match=r"'Something to eat in the last row\?'.*expected \"accept\", got \"decline\""
            ):
                await booking(target, era, {**ANSWERS, FOOD: DECLINE})
            # In the retry era the first leg, which was right, has been played.
            assert (await booking(target, era)).value == BOOKED
        with pytest.raises(AssertionError, match=r"sent, but not recorded so: tools/call book"):
            replayed.assert_played()


@pytest.mark.roundtrip(eras="retry")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_each_leg_must_be_the_recorded_one(recorded: Path, over: Over) -> None:
    async with reachable(recorded, over) as (target, replayed):
        legs = LegByLeg(target)

        async def refused(*words: str, film: str = "Solaris", **sent: Any) -> None:
            with pytest.raises(MCPError) as refusal:
                await legs.leg("book", {"film": film}, **sent)
            assert [word for word in words if word not in refusal.value.error.message] == []

        await legs.leg("book", {"film": "Solaris"})
        (key,), state = legs.questions, legs.token
        row = {"row": "last"}
        answers, misnamed = {key: row}, {"seating": row}
        middle = len(state) // 2
        changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]

        await refused("params.requestState: expected …", f"({len(state)} characters)", state=changed, answers=answers)
        await refused("params.requestState: expected", "got nothing", answers=answers)
        await refused(f"params.inputResponses.{key}: expected", "got nothing", state=state, answers=misnamed)
        await refused("params.inputResponses.seating: expected nothing", state=state, answers=misnamed)
        await refused("params.inputResponses: expected", "got nothing", state=state)
        await refused("params.arguments.film", state=state, answers=answers, film="Stalker")
        await refused('{"film": "Stalker"}: params.arguments.film: expected "Solaris", got "Stalker"', film="Stalker")
        await refused("recorded once, and has been sent as often already")
        assert len(replayed.mismatches) == 8

        # Nothing of that has spoiled the call.
        await legs.leg("book", {"film": "Solaris"}, state=state, answers=answers)
        (key,) = legs.questions
        final = await legs.leg("book", {"film": "Solaris"}, state=legs.token, answers={key: {"name": "tea"}})
        assert isinstance(final, CallToolResult)
        assert final.structured_content == BOOKED


async def test_a_client_must_declare_that_it_can_be_asked(recorded: Path, era: Era) -> None:
    replayed = replay(recorded)
    with pytest.raises(MCPError, match="the client has not declared the capability elicitation"):
        await booking(replayed, era, lacks={"elicitation"})
    assert (await booking(replayed, era)).value == BOOKED


@pytest.mark.roundtrip(eras="retry")
async def test_repeated_recording_may_be_replayed_twice(era: Era, path: Path) -> None:
    async with record(cinema(), path) as tapped:
        for _ in range(2):
            async with connect(tapped, era) as client:
                await client.call_tool("clean", {"hall": 1})
                await client.call_tool("clean", {"hall": 2})

    replayed = replay(path)
    async with connect(replayed, era) as client:
        for hall in (2, 1, 1, 2):
            result = await client.call_tool("clean", {"hall": hall})
            assert result.structured_content == {"result": f"hall {hall} is clean"}
        with pytest.raises(MCPError, match="it was recorded 2 times, and has been sent as often already"):
            await client.call_tool("clean", {"hall": 2})
        for _ in range(3):
            tools = await client.list_tools(cache_mode="bypass")
            assert [tool.name for tool in tools.tools] == ["book", "clean"]
        with pytest.raises(MCPError, match="prompts/list: no such request was recorded"):
            await client.list_prompts()


async def test_replayed_server_reports_its_identity(era: Era, path: Path) -> None:
    async def identity(target: Any) -> tuple[Any, ...]:
        async with Client(target, mode="auto" if era is Era.RETRY else "legacy") as client:
            return client.server_info, client.server_capabilities, client.protocol_version, client.instructions

    async with record(cinema(), path) as tapped:
        told = await identity(tapped)
    assert told[-1] == "Be on time."
    assert await identity(replay(path)) == told


async def test_client_of_the_other_era_is_reported(recorded: Path, era: Era) -> None:
    replayed = replay(recorded)
    told = "of protocol 2026-07-28, which has no initialize" if era is Era.RETRY else "with mode='legacy'"
    # The handshake is refused inside the client's task groups.
    with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match=told), flatten_subgroups=True, allow_unwrapped=True):
        await booking(replayed, Era.LIVE if era is Era.RETRY else Era.RETRY)
    (mismatch,) = replayed.mismatches
    assert told in str(mismatch)


async def test_a_client_of_both_eras_finds_the_recorded_one(recorded: Path, era: Era) -> None:
    person = Person({"row": "last"}, {"name": "tea"})
    async with served(replay(recorded)) as url, Client(url, mode="auto", elicitation_callback=person) as client:
        assert client.protocol_version == (era.value if era is Era.RETRY else "2025-11-25")
        result = await client.call_tool("book", {"film": "Solaris"})
        assert result.structured_content == BOOKED


async def test_an_sdk_server_elsewhere_is_recorded_too(era: Era, path: Path) -> None:
    answers = {ROW: {"row": "back"}}
    async with served(of_the_sdk()) as url, record(url, path) as tapped:
        then = await User(tapped, answers, era=era).call("book", film="Solaris")
    call = await User(replay(path), answers, era=era).call("book", film="Solaris")
    assert call.value == then.value == "Solaris, back"


async def test_redacted_answers_are_absent_and_match_anything(era: Era, tmp_path: Path) -> None:
    path = tmp_path / "cinema.json"
    anything = re.compile("")
    async with record(cinema(), path, redact=["row", "message", "requestState", "text"]) as tapped:
        await booking(tapped, era, {anything: [{"row": "s3cr3t"}, {"name": "tea"}]})
    assert "s3cr3t" not in path.read_text(encoding="utf-8")

    replayed = replay(path)
    call = await booking(replayed, era, {anything: [{"row": "any"}, {"name": "tea"}]})
    assert call.value == {"film": "Solaris", "row": "[redacted]", "snack": "tea"}
    replayed.assert_played()


@pytest.mark.roundtrip(eras="retry")
async def test_a_name_of_the_protocol_is_redacted_by_its_path(era: Era, tmp_path: Path) -> None:
    path = tmp_path / "cinema.json"
    with pytest.raises(ValueError, match=r"name: the protocol has fields of that name .* redact=\['arguments\.name'"):
        async with record(cinema(), path, redact="name"):
            raise AssertionError("not reached")
    async with record(cinema(), path, redact=["content.name", "structuredContent.snack"]) as tapped:
        await booking(tapped, era)
    assert '"name": "book"' in path.read_text(encoding="utf-8")
    assert '"name": "tea"' not in path.read_text(encoding="utf-8")


@pytest.mark.roundtrip(eras="retry")
async def test_only_a_whole_conversation_is_written(era: Era, tmp_path: Path) -> None:
    path = tmp_path / "cinema.json"

    async def bookings(*eras: Era, error: Exception | None = None) -> None:
        async with record(cinema(), path) as tapped:
            for one in eras:
                await booking(tapped, one)
            if error is not None:
                raise error

    with pytest.raises(Unrecordable, match="nothing was said"):
        await bookings()
    with pytest.raises(Unrecordable, match="a recording has one protocol, these were 2025-11-25 and 2026-07-28"):
        await bookings(Era.RETRY, Era.LIVE)
    with pytest.raises(ZeroDivisionError):
        await bookings(era, error=ZeroDivisionError())
    assert not path.exists()


@pytest.mark.roundtrip(eras="retry")
async def test_reused_id_is_rejected_where_requested(recorded: Path, era: Era) -> None:
    replayed = replay(recorded, unique_ids=True)
    async with served(replayed) as url:
        assert (await booking(url, era)).is_error is False
        assert replayed.mismatches == []
        with pytest.raises(MCPError, match="an earlier request had the JSON-RPC id"):
            await booking(url, era)


@pytest.mark.roundtrip(eras="retry")
async def test_a_subscription_is_played_back(era: Era, tmp_path: Path) -> None:
    path = tmp_path / "cinema.json"

    async def watch(target: Any, era: Era) -> list[str]:
        async with connect(target, era) as client, client.listen(tools_list_changed=True) as changes:
            await client.call_tool("clean", {"hall": 3})
            return [type(await anext(aiter(changes))).__name__]

    await assert_replayed(watch, era, path, ["ToolsListChanged"])
    (listening,) = (
        part
        for part in json.loads(path.read_text(encoding="utf-8"))["conversation"]
        if part["request"]["method"] == "subscriptions/listen"
    )
    assert "response" not in listening


@pytest.mark.roundtrip(eras="live")
async def test_a_recording_may_be_written_by_hand(era: Era, tmp_path: Path) -> None:
    path = tmp_path / "cinema.json"
    told: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    root = {"uri": "file:///home/user/books", "name": "books"}
    asked = {"question": {"method": "roots/list"}, "answer": {"result": {"roots": [root]}}}
    conversation: list[dict[str, Any]] = [
        {"request": {"method": "initialize"}, "response": {"result": told}},
        {"notification": {"method": "notifications/initialized"}},
        {"request": {"method": "tools/list"}, "meanwhile": [asked], "response": {"result": {"tools": []}}},
    ]
    path.write_text(json.dumps({"roundtripRecording": 1, "protocol": "2025-11-25", "conversation": conversation}))

    replayed = replay(path)
    async with connect(replayed, era, list_roots_callback=roots) as client:
        await client.session.send_notification(RootsListChangedNotification())
        assert (await client.list_tools()).tools == []
    assert replayed.unplayed == []
    assert [str(mismatch) for mismatch in replayed.mismatches] == [
        "notifications/roots/list_changed: no such notification was recorded"
    ]

    async def no_roots(context: ClientRequestContext) -> ErrorData:
        del context
        return ErrorData(code=-1, message="not today")

    replayed = replay(path)
    async with connect(replayed, era, list_roots_callback=no_roots) as client:
        with pytest.raises(
            MCPError, match=r'answer\.error: expected nothing, got \{"code": -1, "message": "not today"\}'
        ):
            await client.list_tools()


@pytest.mark.roundtrip(eras="retry")
async def test_recording_handles_one_client_at_a_time(era: Era, path: Path) -> None:
    async with record(cinema(), path) as tapped:
        async with connect(tapped, era) as client:
            await client.list_tools()
            with pytest.raises(Unrecordable, match="close the first one before the next connects"):
                await booking(tapped, era)
        await booking(tapped, era)
