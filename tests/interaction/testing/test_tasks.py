"""Users whose calls become tasks, and hostile networks for tasks."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallContent
from roundtrip.tasks import extension
from roundtrip.testing import (
    Breach,
    Era,
    Inapplicable,
    TaskUnfinished,
    User,
    assert_same_in_all_lives,
)

pytestmark = pytest.mark.anyio

LEDGER = MemoryLedger()
REPLIES: dict[str, Any] = {
    "confirm:order": {},
    "how_many": 3,
    "seat": 4,
    "gift": True,
    "all": {"seat": 4, "gift": True},
}


def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


def make_shop(keys: Sequence[bytes]) -> Server[Any]:
    server = Server[Any]("shop", keys=keys, ledger=LEDGER)

    @server.tool(task=True, confirm="Order {title}?")
    async def order(title: str, copies: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
        """Order books."""
        await ctx.step("first", str, "first")
        seat = await ctx.ask("seat", "Which seat?", int)
        await ctx.step("second", str, "second")
        gift = await ctx.ask("gift", "A gift?", bool)
        await ctx.review("all", "Right?", of=["seat", "gift"])
        await ctx.step("third", str, "third")
        return f"{copies} of {title}, seat {seat}, {gift}"

    @server.tool(task=True)
    async def other(ctx: Context) -> str:
        return str(await ctx.ask("seat", "Which other seat?", int))

    return server


@pytest.mark.roundtrip(eras="task", hostile=True)
async def test_task_survives_every_network() -> None:
    call = await User(make_shop, REPLIES, principal="ann").call("order", title="Ulysses")
    assert call.text == "3 of Ulysses, seat 4, True"
    assert set(call.names) == set(REPLIES)


async def test_states_and_questions_are_the_same_in_all_lives() -> None:
    call = await assert_same_in_all_lives(make_shop, "order", {"title": "Ulysses"}, answers=REPLIES)
    assert call.text == "3 of Ulysses, seat 4, True"


async def test_task_that_waits_is_reported() -> None:
    server = Server[Any]("shop")

    @server.tool(task="required")
    async def wait(ctx: Context) -> str:
        return await ctx.wait_for("payment")

    with pytest.raises(TaskUnfinished, match=r"'working' for 0\.5 s without a change"):
        await User(server, era=Era.TASK, patience=0.1).call("wait")


async def test_networks_of_tasks_do_not_fit_another_life() -> None:
    with pytest.raises(Inapplicable, match="needs tasks"):
        await User(make_shop, REPLIES, era=Era.RETRY, network="kill").call("order", title="Ulysses")


def reuse_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh_key(content: CallContent, name: str) -> str:
        return name

    monkeypatch.setattr(CallContent, "fresh_key", fresh_key)


def forget_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancel(self: CallBook, call_id: str) -> bool:
        return True

    monkeypatch.setattr(CallBook, "cancel", cancel)


def tell_strangers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = vars(extension.TaskMethods)["_find_own"]

    async def own_or_tell(methods: Any, ctx: Any, task_id: str) -> Any:
        view = await own(methods, ctx, task_id)
        book = cast("CallBook", methods._book)
        if view is None and await book.find(task_id.rpartition(".")[0]) is not None:
            raise MCPError(code=-32602, message="Not yours")
        return view

    monkeypatch.setattr(extension.TaskMethods, "_find_own", own_or_tell)


@pytest.mark.parametrize(
    ("fault", "network"), [(reuse_keys, "garble"), (tell_strangers_apart, "swap"), (forget_cancellation, "abort")]
)
async def test_faulty_server_breaks_a_rule(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], network: str
) -> None:
    fault(monkeypatch)
    with pytest.raises(Breach):
        await User(make_shop, REPLIES, era=Era.TASK, network=network, principal="ann").call("order", title="Ulysses")
