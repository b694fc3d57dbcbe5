"""One function as a live call, as a retried call, and as a task; waits, signals, and what outlives a worker."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ListRootsResult

from roundtrip import Context, Depends, Elicit, ElicitUrl, ListRoots, Resolve, Server, Transition
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.stored import legs, worker
from roundtrip.testing import Era, User
from tests.interaction.tasks.looks import Looks
from tests.kit.peer import WAIT_SECONDS, Peer, peers, text_of
from tests.kit.shops import KEY

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


def traced(moves: list[Transition]) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], trace=moves.append)

    @server.tool(task=True, confirm="Order {title}?")
    async def order(title: str, copies: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
        gift = await ctx.ask("gift", "A gift?", bool)
        price = await ctx.step("price", lambda: 7 * copies)
        word = await ctx.ask("word", "What to write?", str)
        return f"{title} for {price}, {gift}, {word}"

    return server


REPLIES: dict[str, Any] = {"confirm:order": True, "how_many": 3, "gift": True, "word": "Dear"}


async def test_path_of_states_is_the_same_in_all_three_lives() -> None:
    paths: list[list[tuple[str, str, str]]] = []
    for life in ("live", "retry", "task"):
        moves: list[Transition] = []
        server = traced(moves)
        if life == "task":
            async with peers(server) as (peer,):
                text = await by_peer(peer)
        else:
            user = User(server, REPLIES, era=Era[life.upper()])
            text = (await user.call("order", title="Ulysses")).text
        assert text == "Ulysses for 21, True, Dear"
        paths.append([(move.source, move.event, move.target) for move in moves])
    assert paths[0] == paths[1] == paths[2]


async def by_peer(peer: Peer) -> str:
    """Call `order`: two rounds before the task, and two inside."""
    replies: list[dict[str, Any]] = [{}, {"value": 3}]
    params: dict[str, Any] = {"name": "order", "arguments": {"title": "Ulysses"}}
    reply = await peer.ask("tools/call", **params)
    for content in replies:
        (key,) = reply["inputRequests"]
        answer = {key: {"action": "accept", "content": content}}
        reply = await peer.ask("tools/call", **params, requestState=reply["requestState"], inputResponses=answer)
    task = reply["taskId"]
    await peer.asked(task, "gift")
    await peer.answer(task, gift=True)
    await peer.asked(task, "word")
    await peer.answer(task, word="Dear")
    return text_of(await peer.until(task))


def waiting(ledger: Any = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], ledger=ledger)

    @server.tool(task=True)
    async def buy(seconds: float, ctx: Context) -> str:
        try:
            paid = await ctx.wait_for("payment", timeout=seconds)
        except TimeoutError:
            again = await ctx.ask("again", "Too late. Again?", bool)
            return f"too late, {again}"
        return f"paid {paid}"

    @server.tool()
    async def plain(ctx: Context) -> str:
        await ctx.sleep(1)
        return ""

    return server


async def task_of(peer: Peer, tool: str, **arguments: Any) -> str:
    return (await peer.call(tool, **arguments))["taskId"]


async def test_signal_wakes_and_repeats_change_nothing(ledger: Any) -> None:
    server = waiting(ledger)
    async with peers(server) as (peer,):
        task = await task_of(peer, "buy", seconds=1000)
        call = task.split(".")[0]
        assert (await peer.get(task))["status"] == "working"
        assert await server.signal(call, "payment", {"sum": 3})
        assert await server.signal(call, "payment", {"sum": 9})
        assert text_of(await peer.until(task)) == "paid {'sum': 3}"
        assert await server.signal(call, "payment", {"sum": 9})
        assert not await server.signal("unknown", "payment")


async def test_signal_that_comes_while_its_leg_runs_wakes_the_task() -> None:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool(task=True)
    async def buy(ctx: Context) -> str:
        if ctx.call.leg == 1:
            # Behind the look of this leg at its signals, and before the leg ends.
            assert await server.signal(ctx.call.id, "payment", 3)
        return f"paid {await ctx.wait_for('payment', timeout=1000)}"

    del buy
    async with peers(server) as (peer,):
        assert text_of(await peer.until(await task_of(peer, "buy"))) == "paid 3"


async def test_signal_that_comes_too_late_changes_nothing() -> None:
    server = waiting()
    async with peers(server) as (peer,):
        task = await task_of(peer, "buy", seconds=0.05)
        await peer.asked(task, "again")
        await server.signal(task.split(".")[0], "payment", 3)
        await peer.answer(task, again=True)
        assert text_of(await peer.until(task)) == "too late, True"


async def test_waits_outside_of_a_task_are_refused() -> None:
    for era in (Era.LIVE, Era.RETRY):
        call = await User(waiting(), {}, era=era).call("plain")
        assert call.is_error
        assert 'task="required"' in call.text


async def test_task_waits_for_a_build_that_has_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_SKIP_SECONDS", 0.05)
    looks = Looks(monkeypatch)

    def shop(*, has_tool: bool) -> Server[Any]:
        server = Server[Any]("shop", keys=[KEY], ledger=SqliteLedger(tmp_path / "tasks.db"))

        async def work(ctx: Context) -> str:
            return str(await ctx.ask("sure", "Sure?", bool))

        server.add_tool(work, name="work" if has_tool else "other", task=True)
        return server

    async with peers(shop(has_tool=True)) as (peer,):
        task = await task_of(peer, "work")
        await peer.asked(task, "sure")
    async with peers(shop(has_tool=False)) as (peer,):
        await peer.answer(task, sure=True)
        await looks.more(6)
        assert (await peer.get(task))["status"] == "working"
    async with peers(shop(has_tool=True)) as (peer,):
        assert text_of(await peer.until(task)) == "True"


async def test_features_of_tools_work_inside_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "_PAGE_SECONDS", 0.05)
    server = Server[Any]("shop", keys=[KEY], ledger=MemoryLedger())
    closed: list[str] = []
    visited: list[bool] = []

    def connection() -> Any:
        yield "connection"
        closed.append("closed")

    def is_done() -> bool:
        visited.append(True)
        return len(visited) > 2

    @server.tool(name="plain", task=True)
    def plain(ctx: Context) -> str:
        price = ctx.blocking.step("price", lambda: 7)
        return f"{price} {ctx.blocking.ask('sure', 'Sure?', bool)}"

    @server.tool(name="dependency", task=True)
    async def dependency(used: Annotated[str, Depends(connection)], ctx: Context) -> str:
        assert ctx.request_context.method == "tools/call"
        return f"{used} {await ctx.ask('sure', 'Sure?', bool)}"

    @server.tool(name="fallback", task=True)
    async def fallback(ctx: Context) -> str:
        roots = await ctx.ask("roots", ListRoots(fallback=ListRootsResult(roots=[])))
        return f"{roots.roots} {await ctx.ask('sure', 'Sure?', bool)}"

    @server.tool(name="review", task=True)
    async def review(ctx: Context) -> str:
        sure = await ctx.ask("sure", "Sure?", bool)
        await ctx.review("check", "All right?", of=["sure"])
        return f"reviewed {sure}"

    @server.tool(name="page", task=True)
    async def page(ctx: Context) -> str:
        await ctx.ask("sure", ElicitUrl("Log in", "https://example.com/login", done=is_done))
        return "logged in"

    expected = {
        "plain": "7 True",
        "dependency": "connection True",
        "fallback": "[] True",
        "review": "reviewed True",
        "page": "logged in",
    }

    async def told_by(peer: Peer, kind: str) -> str:
        task = await task_of(peer, kind)
        await peer.asked(task, "sure")
        if kind == "page":
            await peer.ask("tasks/update", taskId=task, inputResponses={"sure": {"action": "accept"}})
        else:
            await peer.answer(task, sure=True)
        if kind == "review":
            await peer.asked(task, "check")
            await peer.ask(
                "tasks/update", taskId=task, inputResponses={"check": {"action": "accept", "content": {"sure": True}}}
            )
        return text_of(await peer.until(task))

    async with peers(server) as (peer,):
        assert {kind: await told_by(peer, kind) for kind in expected} == expected
    assert closed


async def test_answer_that_comes_while_a_leg_runs_counts() -> None:
    server = Server[Any]("shop", keys=[KEY], ledger=MemoryLedger())
    woken, go_on = anyio.Event(), anyio.Event()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        said: list[Any] = []

        async def ask() -> None:
            said.append(await ctx.ask("word", "Which word?", str))

        async def sleep() -> None:
            await ctx.sleep(0.1)
            if not woken.is_set():
                woken.set()
                await go_on.wait()

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(sleep)
        return f"{said}"

    async with peers(server) as (peer,):
        task = await task_of(peer, "work")
        await peer.asked(task, "word")
        with anyio.fail_after(WAIT_SECONDS):
            await woken.wait()
        await peer.answer(task, word="late")
        go_on.set()
        assert text_of(await peer.until(task)) == "['late']"


async def test_sleeps_have_places_of_their_own() -> None:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool(name="named", task=True)
    async def named(ctx: Context) -> str:
        await ctx.sleep(timedelta(milliseconds=10))
        await ctx.sleep(0.01, name="nap")
        try:
            await ctx.wait_for("sleep-1", timeout=0.01)
        except TimeoutError:
            return "all of them"
        return "none"

    @server.tool(name="together", task=True)
    async def together(ctx: Context) -> str:
        async def nap(seconds: float) -> None:
            await ctx.sleep(seconds)

        async with anyio.create_task_group() as group:
            group.start_soon(nap, 1)
            group.start_soon(nap, 2)
        return ""

    async with peers(server) as (peer,):
        assert text_of(await peer.until(await task_of(peer, "named"))) == "all of them"
        assert "name them" in text_of(await peer.until(await task_of(peer, "together")))


async def test_tool_that_asks_by_hand_gets_its_answers() -> None:
    server = Server[Any]("shop", keys=[KEY], ledger=MemoryLedger())

    @server.tool(task=True)
    async def order(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            params = ElicitRequestFormParams(
                message="Which word?", requested_schema={"type": "object", "properties": {"value": {"type": "string"}}}
            )
            return InputRequiredResult(input_requests={"word": ElicitRequest(params=params)}, request_state="mine")
        return f"{ctx.request_state}: {ctx.input_responses['word'].content}"  # type: ignore[union-attr]

    async with peers(server) as (peer,):
        task = await task_of(peer, "order")
        await peer.asked(task, "word")
        await peer.answer(task, word="Dear")
        assert text_of(await peer.until(task)) == "mine: {'value': 'Dear'}"
