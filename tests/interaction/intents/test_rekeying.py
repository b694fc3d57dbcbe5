"""Keys that rotate while intents are open or kept: `roundtrip calls rekey`, and what then needs the former key."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from roundtrip import Context, Server
from roundtrip.adapters.finding import attached
from roundtrip.cli import main
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.ledger.contract import ListedEntry, ListsEntries
from roundtrip.once import rekeying
from roundtrip.once.rekeying import IntentEntries
from roundtrip.stored.operations import CallOperations
from roundtrip.switches import PROBE_TOOL, PROBE_VARIABLE
from roundtrip.system import System
from roundtrip.testing import DECLINE, Clock, LegByLeg
from roundtrip.tokens.token import seal_text
from tests.interaction.intents.stores import OTHER_KEY, Store
from tests.interaction.ledger.shops import text_of
from tests.interaction.tasks.effects import FOLDER, folder
from tests.kit.peer import peers
from tests.kit.peer import text_of as text_of_task
from tests.kit.shops import KEY
from tests.kit.stores import AnyLedger

pytestmark = pytest.mark.anyio

OLD: Final = (KEY,)
BOTH: Final = (OTHER_KEY, KEY)
NEW: Final = (OTHER_KEY,)
LONG: Final = 60.0


def of(store: Store, keys: Any, user: str = "ann") -> LegByLeg:
    """Return a client of an instance with these keys."""
    return LegByLeg(lambda: store(keys), principal=user)


def entries_of(server: Server[Any]) -> IntentEntries:
    found = attached(server)
    assert found is not None
    return IntentEntries(found.parts)


async def rekeyed(server: Server[Any]) -> dict[str, int]:
    """Encrypt all entries with the newest key, and count the outcomes."""
    entries = entries_of(server)
    return dict(Counter([await entries.renew_key(entry) async for entry in all_of(entries)]))


async def all_of(entries: IntentEntries) -> AsyncGenerator[ListedEntry]:
    async for page in entries.pages():
        for entry in page:
            yield entry


async def counted(server: Server[Any], *, pages: int = 99) -> tuple[dict[str, int], bool]:
    return await entries_of(server).count(pages=pages)


async def test_open_and_ended_intents_outlive_the_key(ledger: AnyLedger) -> None:
    store = Store(ledger)
    before = of(store, OLD)
    await before.leg("book", {"order": "tea"})
    await before.leg("book", {"order": "tea"}, answers={"first": 1}, state=before.token)
    await before.leg("give", {"order": "tea"})
    await before.leg("pay", {"order": "tea"})
    await before.leg("pay", {"order": "tea"}, answers={"confirm:pay": DECLINE}, state=before.token)
    is_private = isinstance(ledger, MemoryLedger)
    # In this process's memory, only the journals of open calls have a sealed part.
    expected = {"renewed": 2, "current": 1} if is_private else {"renewed": 3}
    assert await rekeyed(store(BOTH)) == expected
    assert await rekeyed(store(BOTH)) == {"current": 3}
    after = of(store, NEW)
    assert text_of(await after.leg("give", {"order": "tea"})) == "1 tea no. 1"
    await after.leg("book", {"order": "tea"})
    assert list(after.questions) == ["second"]
    await after.leg("book", {"order": "tea"}, answers={"second": 2}, state=after.token)
    assert list(after.questions) == ["third"]
    # The answers survive another rotation. A client that begins again gives its own answers again.
    await rekeyed(store(("3f" * 32, OTHER_KEY)))
    last = of(store, ("3f" * 32,))
    await last.leg("book", {"order": "tea"})
    assert list(last.questions) == ["second"]
    await last.leg("book", {"order": "tea"}, answers={"second": 2}, state=last.token)
    assert list(last.questions) == ["third"]
    done = await last.leg("book", {"order": "tea"}, answers={"third": 3}, state=last.token)
    assert text_of(done) == "tea 1 2 3 step 1 no. 2"
    declined = await last.leg("pay", {"order": "tea"})
    assert "declined" in text_of(declined)
    assert store.ran == ["tea", "tea"]
    assert store.steps == ["tea"]


async def test_token_of_a_rotation_goes_on_with_a_rewritten_entry(ledger: AnyLedger) -> None:
    store = Store(ledger)
    legs = of(store, OLD)
    await legs.leg("book", {"order": "tea"})
    await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    rotated = of(store, BOTH)
    await rekeyed(store(BOTH))
    await rotated.leg("book", {"order": "tea"}, answers={"second": 2}, state=legs.token)
    assert list(rotated.questions) == ["third"]
    # The first request's repetition finds its answers, too.
    await of(store, BOTH).leg("book", {"order": "tea"}, answers={"second": 2}, state=legs.token)
    done = await rotated.leg("book", {"order": "tea"}, answers={"third": 3}, state=rotated.token)
    assert text_of(done) == "tea 1 2 3 step 1 no. 1"
    await rekeyed(store(BOTH))
    assert text_of(await of(store, NEW).leg("book", {"order": "tea"})) == text_of(done)
    assert store.steps == ["tea"]


async def test_entry_that_a_leg_holds_is_left_alone_until_the_leg_ends(ledger: AnyLedger) -> None:
    store = Store(ledger)
    legs = of(store, OLD)
    await legs.leg("book", {"order": "tea"})
    store.go_on = anyio.Event()
    results: list[Any] = []

    async def give() -> None:
        results.append(await of(store, OLD).leg("give", {"order": "tea"}))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        await store.began.wait()
        listed = [entry async for entry in all_of(entries_of(store(BOTH)))]
        (held,) = [entry for entry in listed if not entry.notes]
        assert not await ledger.rewrite(held, result=None, notes={})
        assert (await rekeyed(store(BOTH))).get("renewed") == 1
        store.go_on.set()
    assert text_of(results[0]) == "1 tea no. 1"
    await rekeyed(store(BOTH))
    assert text_of(await of(store, NEW).leg("give", {"order": "tea"})) == "1 tea no. 1"
    assert store.ran == ["tea"]


async def test_entry_that_changed_is_not_rewritten(ledger: AnyLedger) -> None:
    key = f"intent/{'0' * 32}"

    async def claim(holder: str, **given: Any) -> int:
        return (await ledger.claim(key, "d", holder=holder, lease=LONG, keep=LONG, is_bound=True, **given)).epoch

    async def listed() -> ListedEntry:
        (entry,), place = await ledger.list_entries("intent/", limit=10)
        while place:
            more, place = await ledger.list_entries("intent/", after=place, limit=10)
            assert not more
        return entry

    epoch = await claim("one", tentative=True, notes={"journal": "1", "empty": ""})
    assert not await ledger.rewrite(await listed(), result=None, notes={"journal": "2"})
    await ledger.release(key, holder="one", epoch=epoch)
    free = await listed()
    assert free == ListedEntry(key, "d", epoch, None, {"journal": "1", "empty": ""})
    second = await claim("two", tentative=True)
    # The entry is held now.
    assert not await ledger.rewrite(free, result=None, notes={"journal": "2"})
    await ledger.release(key, holder="two", epoch=second, notes={"journal": "3"})
    # The entry is free again, but it has been changed.
    assert not await ledger.rewrite(free, result=None, notes={"journal": "2"})
    assert (await listed()).notes["journal"] == "3"
    assert await ledger.rewrite(await listed(), result=None, notes={"journal": "4"})
    third = await claim("three")
    assert await ledger.settle(key, holder="three", epoch=third, result="r", keep=LONG)
    settled = await listed()
    assert (settled.result, settled.notes["journal"]) == ("r", "4")
    assert await ledger.rewrite(settled, result="s", notes={"journal": "5"})
    assert not await ledger.rewrite(settled, result="t", notes={"journal": "6"})
    assert (await ledger.wait(key, patience=0)).result == "s"  # pyright: ignore[reportOptionalMemberAccess]
    assert not await ledger.rewrite(settled._replace(key="intent/none"), result="t", notes={})
    assert await ledger.wait("intent/none", patience=0) is None


async def test_pages_have_all_entries_of_intents_and_no_others(
    ledger: AnyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rekeying, "_ENTRIES_PER_PAGE", 2)
    store = Store(ledger)
    assert isinstance(ledger, ListsEntries)
    for other in ("call", "intent", "intenT/a", "zcall", "0call"):
        await ledger.claim(other, "d", holder="one", lease=LONG, keep=LONG)
    await ledger.count("call/guesses/x", "item", most=3, keep=LONG)
    for number in range(7):
        await of(store, OLD).leg("book", {"order": str(number)})
    scanned = [entry.key async for entry in all_of(entries_of(store(OLD)))]
    assert len(set(scanned)) == 7
    old, new = store(OLD).identity().keys[0], store(NEW).identity().keys[0]
    assert await counted(store(BOTH)) == ({old: 7}, True)
    # Whatever has interrupted an earlier run, the next one finishes its work.
    entries, renewed = entries_of(store(BOTH)), 0
    async for entry in all_of(entries):
        renewed += await entries.renew_key(entry) == "renewed"
        if renewed == 3:
            break
    assert await rekeyed(store(BOTH)) == {"current": 3, "renewed": 4}
    assert await counted(store(BOTH)) == ({new: 7}, True)
    assert not (await counted(store(BOTH), pages=1))[1]


async def test_entries_of_an_unknown_key_are_counted_and_stay(ledger: AnyLedger) -> None:
    store = Store(ledger)
    legs = of(store, OLD)
    await legs.leg("book", {"order": "tea"})
    await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    assert await rekeyed(store(NEW)) == {"unreadable": 1}
    again = of(store, OLD)
    await again.leg("book", {"order": "tea"})
    assert list(again.questions) == ["second"]


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
async def test_stored_call_is_joined_under_the_new_key(ledger: AnyLedger) -> None:
    ran: list[str] = []

    def office(keys: Any) -> Server[Any]:
        server = Server[Any]("office", keys=list(keys), ledger=ledger, principal=lambda _: "ann")

        @server.tool(task=True, once_per="{order}")
        async def report(order: str, ctx: Context) -> str:
            word = await ctx.ask("word", "Which word?", str)
            ran.append(order)
            return f"{order} {word} no. {len(ran)}"

        return server

    async with peers(office(OLD)) as (peer,):
        task = (await peer.call("report", order="a"))["taskId"]
        await peer.asked(task, "word")
    both = office(BOTH)
    service = attached(both).call_service  # pyright: ignore[reportOptionalMemberAccess]
    assert service is not None
    calls = CallOperations(service.book)
    assert [await calls.renew_key(entry) async for entry in calls.scan()] == [True]
    assert await rekeyed(both) == {"renewed": 1}
    async with peers(office(NEW)) as (peer,):
        assert (await peer.call("report", order="a"))["taskId"] == task
        await peer.answer(task, word="tea")
        assert text_of_task(await peer.until(task)) == "a tea no. 1"
        assert (await peer.call("report", order="a"))["content"][0]["text"] == "a tea no. 1"
    assert ran == ["a"]


async def test_stored_call_that_outlives_keep_is_still_joined() -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    ledger = MemoryLedger(system=system)
    server = Server[Any]("office", keys=[KEY], ledger=ledger, system=system, principal=lambda _: "ann")

    @server.tool(task=True, task_ttl=7 * 86400, once_per="{order}", keep=3600)
    async def report(order: str, ctx: Context) -> str:
        return f"{order} {await ctx.ask('word', 'Which word?', str)}"

    async with peers(server) as (peer,):
        task = (await peer.call("report", order="a"))["taskId"]
        await peer.asked(task, "word")
        clock.advance(3 * 86400)
        assert (await peer.call("report", order="a"))["taskId"] == task


# The command.


class Unlisted:
    """Ledger with the methods of the protocol alone."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._ledger = ledger
        for name in ("claim", "renew", "settle", "note", "release", "count", "wait", "aclose"):
            setattr(self, name, functools.partial(getattr(ledger, name)))

    @property
    def reach(self) -> Any:
        return self._ledger.reach


def file_ledger() -> SqliteLedger:
    return SqliteLedger(folder() / "ledger.db", durable=False)


def shop(keys: Any, ledger: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=list(keys), ledger=ledger, principal=lambda _: "ann")

    @server.tool(once_per="{order}")
    async def give(order: str) -> str:
        return f"{order} given"

    return server


def old_shop() -> Server[Any]:
    return shop(OLD, file_ledger())


def both_shop() -> Server[Any]:
    return shop(BOTH, file_ledger())


def new_shop() -> Server[Any]:
    return shop(NEW, file_ledger())


def unlisted_shop() -> Server[Any]:
    return shop(BOTH, Unlisted(file_ledger()))


def memory_shop() -> Server[Any]:
    return shop(BOTH, MemoryLedger())


def idle_shop() -> Server[Any]:
    return Server[Any]("shop", keys=list(BOTH), ledger=file_ledger())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))


async def rekey(target: str) -> int:
    return await anyio.to_thread.run_sync(main, ["calls", "rekey", "--server", f"{__name__}:{target}"])


@pytest.mark.usefixtures("here")
async def test_command_encrypts_results_with_the_newest_key(capsys: pytest.CaptureFixture[str]) -> None:
    await LegByLeg(old_shop).leg("give", {"order": "tea"})
    assert await rekey("new_shop") == 1
    assert "intents: 1 could not be read" in capsys.readouterr().out
    assert await rekey("both_shop") == 0
    newest = both_shop().identity().keys[0]
    said = f"intents: 1 now encrypted with the newest key ({newest}), 0 already were\n"
    assert capsys.readouterr().out == said
    assert await rekey("both_shop") == 0
    assert "intents: 0 now encrypted" in capsys.readouterr().out
    assert text_of(await LegByLeg(new_shop).leg("give", {"order": "tea"})) == "tea given"
    with pytest.raises(MCPError):
        await LegByLeg(old_shop).leg("give", {"order": "tea"})


@pytest.mark.usefixtures("here")
async def test_command_says_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    # A ledger that lists nothing still serves tools.
    assert text_of(await LegByLeg(unlisted_shop).leg("give", {"order": "tea"})) == "tea given"
    assert await rekey("unlisted_shop") == 1
    assert "the ledger (Unlisted) cannot list entries" in capsys.readouterr().out
    assert await rekey("memory_shop") == 2
    assert "got a MemoryLedger" in capsys.readouterr().err
    assert await rekey("idle_shop") == 2
    assert "the server stores no calls" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
async def test_held_entry_is_left_for_the_next_run(capsys: pytest.CaptureFixture[str]) -> None:
    await LegByLeg(old_shop).leg("give", {"order": "tea"})
    ledger, server = file_ledger(), attached(old_shop())
    assert server is not None
    ((entry,), _) = await ledger.list_entries("intent/", limit=9)
    protection = server.parts.protection
    text = seal_text(
        protection.ledger_sealer, "1", entry.key, entry.answers_digest, "n", hint=f"{protection.hints[0]}."
    )
    options: dict[str, Any] = {"lease": LONG, "keep": LONG, "voids": entry.epoch, "notes": {"n": text}}
    await ledger.claim(entry.key, entry.answers_digest, holder="one", **options)
    await ledger.aclose()
    assert await rekey("both_shop") == 1
    assert "intents: 1 are in use; run the command again" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
async def test_probe_counts_the_keys_that_results_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROBE_VARIABLE, "1")
    await LegByLeg(old_shop).leg("give", {"order": "tea"})
    both, unlisted = both_shop(), unlisted_shop()
    old = both.identity().keys[1]
    for server, keys, is_whole in ((both, {old: 1}, True), (unlisted, {}, False)):
        facts = await probed(server)
        assert facts["intents"] == {"keys": keys, "own_keys": list(server.identity().keys), "is_whole": is_whole}
    assert "intents" not in await probed(memory_shop())


async def probed(server: Server[Any]) -> dict[str, Any]:
    found = await LegByLeg(server).leg(PROBE_TOOL)
    assert isinstance(found, CallToolResult)
    assert found.structured_content is not None
    return found.structured_content


async def test_tool_whose_calls_a_former_build_began_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger()

    def build(**option: Any) -> Server[Any]:
        server = Server[Any]("store", keys=[KEY], ledger=ledger, principal=lambda _: "ann")

        @server.tool(**option)
        async def renamed_tool(order: str, ctx: Context) -> str:
            return f"{order} {await ctx.ask('size', 'Which size?', int)}"

        return server

    for order in ("tea", "cocoa"):
        former = LegByLeg(lambda: build(exactly_once=True))
        await former.leg("renamed_tool", {"order": order})
        # The first round has no questions.
        await former.leg("renamed_tool", {"order": order}, state=former.token)
        new = LegByLeg(lambda: build(once_per="{order}"))
        new.rounds.extend(former.rounds)
        done = await new.leg("renamed_tool", {"order": order}, answers={"size": 1}, state=former.token)
        assert text_of(done) == f"{order} 1"
    named = [record for record in caplog.records if "a build without once_per= began" in record.getMessage()]
    assert len(named) == 1
