"""A call that came to nothing leaves its intent to a call with other arguments, and no other call does."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Resolve, ToolError
from roundtrip.ledger import ClaimAnswer, ClaimStatus, MemoryLedger, SqliteLedger
from roundtrip.system import System
from roundtrip.testing import CANCEL, DECLINE, LEAVE, Clock, Era, LegByLeg, User
from tests.interaction.intents import offices, stores
from tests.interaction.intents.offices import End, Office, call_in, end, opened, peer_of
from tests.interaction.intents.stores import OTHER_KEY, Store, anew, client
from tests.interaction.ledger.shops import text_of
from tests.kit.approving import Person
from tests.kit.page_users import Browser, client_of, handle_in, link_in, resume
from tests.kit.page_users import text_of as text_of_page
from tests.kit.peer import text_of as text_of_task
from tests.kit.stores import AnyLedger
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio

EACH: Final = pytest.mark.usefixtures("each_class")
ERAS: Final = pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
WRONG: Final = {"order": "tea", "euros": 200}
RIGHT: Final = {"order": "tea", "euros": 20}
REFUSED: Final = "has other arguments"


async def price_of(order: str) -> int:
    return len(order)


class Bank(Store):
    """Factory of servers whose tools take an amount that identifies no intent."""

    def __init__(self, ledger: Any = None, *, declined_for: float = 300, **options: Any) -> None:
        super().__init__(ledger, **options)
        self.declined_for = declined_for

    def __call__(self, keys: Any = (stores.KEY,)) -> Any:
        server = super().__call__(keys)

        async def pay(order: str, euros: int) -> str:
            """Pay."""
            self.ran.append(order)
            if euros < 0:
                raise ToolError("too little")
            return f"{order} {euros} no. {len(self.ran)}"

        async def weighed(order: str, euros: int, ctx: Context) -> str:
            """Ask, run a step and ask again."""
            await ctx.ask("first", "First?", int)
            await ctx.step("step", lambda: self.steps.append(order))
            await ctx.ask("second", "Second?", int)
            self.ran.append(order)
            return f"{order} {euros} no. {len(self.ran)}"

        async def priced(
            order: str, euros: int, ctx: Context, price: Annotated[int, Resolve(price_of, remember=True)]
        ) -> str:
            """Ask after a resolver."""
            await ctx.ask("first", "First?", int)
            self.ran.append(order)
            return f"{order} {euros} {price}"

        async def stumbling(order: str, euros: int, ctx: Context) -> str:
            """Run a step and fail."""
            await ctx.step("step", lambda: self.steps.append(order))
            raise ToolError(f"{euros} is too little")

        tools: list[tuple[Any, dict[str, Any]]] = [
            (pay, {"name": "pay_for", "confirm": "Pay {euros} euros for {order}?"}),
            (pay, {"name": "just_pay"}),
            (pay, {"name": "pay_together", "confirm": "Pay {euros} euros for {order}?", "scope": "service"}),
            (weighed, {}),
            (priced, {}),
            (stumbling, {"on_failure": "rerun"}),
        ]
        for body, more in tools:
            options: dict[str, Any] = {"once_per": "{order}", "declined_for": self.declined_for, **more}
            server.add_tool(anew(body), **options)
        return server


def timed(**options: Any) -> tuple[Clock, Bank]:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    return clock, Bank(MemoryLedger(system=system), system=system, **options)


def confirm_of(tool: str = "pay_for") -> str:
    return f"confirm:{tool}"


async def declined(bank: Bank, tool: str = "pay_for", user: str | None = "ann", arguments: Any = WRONG) -> LegByLeg:
    """Call a tool, decline its confirmation, and return the client, which still has its token."""
    legs: LegByLeg = client(bank, user)
    await legs.leg(tool, arguments)
    refused = await legs.leg(tool, arguments, answers={confirm_of(tool): DECLINE}, state=legs.token)
    assert text_of(refused)
    return legs


@EACH
@ERAS
@pytest.mark.parametrize("answer", [DECLINE, CANCEL])
async def test_corrected_call_begins_once_the_decline_has_lapsed(era: Era, answer: Any) -> None:
    clock, bank = timed()
    await User(bank, {confirm_of(): answer}, era=era, principal="ann").call("pay_for", **WRONG)
    nag: Any = await User(bank, {}, era=era, principal="ann").call("pay_for", **RIGHT)
    assert nag.asked == []
    assert REFUSED in text_of(nag.result)
    assert "Waiting helps only if" in text_of(nag.result)
    clock.advance(6 * 60)
    paid = await User(bank, {confirm_of(): True}, era=era, principal="ann").call("pay_for", **RIGHT)
    assert paid.value == "tea 20 no. 1"
    assert [question.splitlines()[0] for question in paid.asked] == ['Pay 20 euros for "tea"?']
    late: Any = await User(bank, {}, era=era, principal="ann").call("pay_for", **WRONG)
    assert REFUSED in text_of(late.result)
    assert bank.ran == ["tea"]


@ERAS
async def test_corrected_call_begins_once_nobody_can_answer_any_more(era: Era) -> None:
    clock, bank = timed(max_age=600, ttl=60)
    await User(bank, {confirm_of(): LEAVE}, era=era, principal="ann").call("pay_for", **WRONG)
    early: Any = await User(bank, {}, era=era, principal="ann").call("pay_for", **RIGHT)
    assert REFUSED in text_of(early.result)
    clock.advance(11 * 60)
    paid = await User(bank, {confirm_of(): True}, era=era, principal="ann").call("pay_for", **RIGHT)
    assert paid.value == "tea 20 no. 1"


async def test_lapsed_decline_is_known_in_each_ledger(ledger: AnyLedger) -> None:
    bank = Bank(ledger, declined_for=0.05)
    await declined(bank)
    legs = client(bank)

    async def has_begun() -> bool:
        return REFUSED not in str(await legs.leg("pay_for", RIGHT))

    await until(has_begun)
    assert legs.questions[confirm_of()].message.startswith("Pay 20 euros")
    paid = await legs.leg("pay_for", RIGHT, answers={confirm_of(): True}, state=legs.token)
    assert text_of(paid) == "tea 20 no. 1"


async def test_old_token_runs_nothing_after_a_corrected_call() -> None:
    clock, bank = timed(ttl=3600)
    wrong = client(bank)
    await wrong.leg("pay_for", WRONG)
    token = wrong.token
    await wrong.leg("pay_for", WRONG, answers={confirm_of(): DECLINE}, state=token)
    clock.advance(6 * 60)
    right = client(bank)
    await right.leg("pay_for", RIGHT)

    async def late() -> str:
        return text_of(await wrong.leg("pay_for", WRONG, answers={confirm_of(): True}, state=token))

    assert REFUSED in await late()
    await right.leg("pay_for", RIGHT, answers={confirm_of(): DECLINE}, state=right.token)
    clock.advance(6 * 60)
    # The corrected call came to nothing too, but only a new call can take over.
    assert REFUSED in await late()
    again = client(bank)
    await again.leg("pay_for", WRONG)
    paid = await again.leg("pay_for", WRONG, answers={confirm_of(): True}, state=again.token)
    assert text_of(paid) == "tea 200 no. 1"
    late_right = await right.leg("pay_for", RIGHT, answers={confirm_of(): True}, state=right.token)
    assert REFUSED in text_of(late_right)
    assert bank.ran == ["tea"]


@pytest.mark.parametrize("ends", ["declined", "old"])
async def test_steps_keep_the_arguments(ends: str) -> None:
    clock, bank = timed(max_age=600, ttl=60)
    legs = client(bank)
    await legs.leg("weighed", WRONG)
    await legs.leg("weighed", WRONG, answers={"first": 1}, state=legs.token)
    if ends == "declined":
        await legs.leg("weighed", WRONG, answers={"second": DECLINE}, state=legs.token)
    clock.advance(6 * 60 if ends == "declined" else 11 * 60)
    assert REFUSED in text_of(await client(bank).leg("weighed", RIGHT))
    same = client(bank)
    await same.leg("weighed", WRONG)
    for name in list(same.questions):
        await same.leg("weighed", WRONG, answers={name: 1}, state=same.token)
    assert bank.steps == ["tea"]


async def test_step_of_a_leg_without_an_end_keeps_the_arguments() -> None:
    clock, bank = timed()
    for _ in range(2):
        assert "200 is too little" in text_of(await client(bank).leg("stumbling", WRONG))
        clock.advance(3600)
        assert REFUSED in text_of(await client(bank).leg("stumbling", RIGHT))
    assert bank.steps == ["tea"]


async def test_remembered_values_keep_the_arguments() -> None:
    clock, bank = timed()
    legs = client(bank)
    await legs.leg("priced", WRONG)
    await legs.leg("priced", WRONG, answers={"first": DECLINE}, state=legs.token)
    clock.advance(6 * 60)
    assert REFUSED in text_of(await client(bank).leg("priced", RIGHT))


async def test_answers_alone_do_not_keep_the_arguments() -> None:
    clock, bank = timed(max_age=600, ttl=60)
    legs = client(bank)
    await legs.leg("weighed", WRONG)
    await legs.leg("weighed", WRONG, answers={"first": DECLINE}, state=legs.token)
    clock.advance(11 * 60)
    right = client(bank)
    await right.leg("weighed", RIGHT)
    assert list(right.questions) == ["first"]
    for name in ("first", "second"):
        result = await right.leg("weighed", RIGHT, answers={name: 1}, state=right.token)
    assert text_of(result) == "tea 20 no. 1"
    assert bank.steps == ["tea"]


@pytest.mark.parametrize("euros", [200, -200])
async def test_results_and_failures_keep_the_arguments(euros: int) -> None:
    clock, bank = timed()
    first = await client(bank).leg("just_pay", {**WRONG, "euros": euros})
    clock.advance(6 * 60)
    assert REFUSED in text_of(await client(bank).leg("just_pay", RIGHT))
    assert text_of(await client(bank).leg("just_pay", {**WRONG, "euros": euros})) == text_of(first)
    assert bank.ran == ["tea"]


async def test_another_caller_may_correct_a_shared_call() -> None:
    clock, bank = timed()
    await declined(bank, "pay_together", "ann")
    assert REFUSED in text_of(await client(bank, "bob").leg("pay_together", RIGHT))
    clock.advance(6 * 60)
    bob = client(bank, "bob")
    await bob.leg("pay_together", RIGHT)
    paid = await bob.leg("pay_together", RIGHT, answers={confirm_of("pay_together"): True}, state=bob.token)
    assert text_of(paid) == "tea 20 no. 1"


class MeetingLedger(MemoryLedger):
    """Ledger that lets two claims find the same conflict before either goes on."""

    def __init__(self, system: System) -> None:
        super().__init__(system=system)
        self.meets = False
        self._met = 0
        self._both = anyio.Event()

    async def claim(self, *given: Any, **options: Any) -> ClaimAnswer:
        answer = await super().claim(*given, **options)
        if self.meets and answer.status is ClaimStatus.CONFLICT and self._met < 2:
            self._met += 1
            if self._met == 2:
                self._both.set()
            await self._both.wait()
        return answer


@pytest.mark.parametrize("other", [RIGHT, {**RIGHT, "euros": 30}])
async def test_of_two_corrected_calls_one_begins_and_equal_ones_join(other: dict[str, Any]) -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    ledger = MeetingLedger(system)
    bank = Bank(ledger, system=system)
    await declined(bank)
    clock.advance(6 * 60)
    ledger.meets = True
    one, two = client(bank), client(bank)
    ends: list[tuple[LegByLeg, dict[str, Any], Any]] = []

    async def call(legs: LegByLeg, arguments: dict[str, Any]) -> None:
        ends.append((legs, arguments, await legs.leg("pay_for", arguments)))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(call, one, RIGHT)
            group.start_soon(call, two, other)
    if other is not RIGHT:
        refused = [text_of(end) for _, _, end in ends if REFUSED in str(end)]
        assert len(refused) == 1
    asked = [(legs, arguments) for legs, arguments, end in ends if REFUSED not in str(end)]
    results = [
        text_of(await legs.leg("pay_for", arguments, answers={confirm_of(): True}, state=legs.token))
        for legs, arguments in asked
    ]
    # The first answer counts for both, because both have the same question of the same call.
    assert set(results) == {f"tea {asked[0][1]['euros']} no. 1"}
    assert bank.ran == ["tea"]


async def test_without_the_key_nothing_is_decided(tmp_path: Path) -> None:
    bank = Bank(SqliteLedger(tmp_path / "ledger.db"))
    await client(lambda: bank((stores.KEY,))).leg("pay_for", WRONG)
    with pytest.raises(MCPError) as refused:
        await client(lambda: bank((OTHER_KEY,))).leg("pay_for", RIGHT)
    assert refused.value.error.data["reason"] == "ledger_unavailable"
    assert "no key that opens" in refused.value.error.message
    assert bank.ran == []


class CopyOffice(Office):
    """Office whose stored calls compute nothing before they ask."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

        async def copy(order: str, ctx: Context, copies: int = 1) -> str:
            """Ask which word to copy."""
            word = await ctx.ask("word", "Which word?", str)
            self.ran.append(order)
            return f"{order} {word} {copies}"

        self.server.add_tool(anew(copy), name="task", task=True, once_per="{order}")
        self.server.add_tool(anew(copy), name="page", once_per="{order}")
        self.server.add_tool(anew(copy), name="lost", task=True, once_per="{order}", on_unknown="rerun")


@EACH
@pytest.mark.parametrize("action", ["cancel", "expire"])
async def test_corrected_task_begins_after_the_first_was_ended(action: End) -> None:
    office = CopyOffice()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.call("task", order="a", copies=200)
        await peer.asked(first["taskId"], "word")
        assert REFUSED in str(await peer.call("task", order="a", copies=20))
        await end(office, action, call_in(first))
        second = await peer.call("task", order="a", copies=20)
        await peer.asked(second["taskId"], "word")
        await peer.answer(second["taskId"], word="tea")
        assert text_of_task(await peer.until(second["taskId"])) == "a tea 20"
        assert REFUSED in str(await peer.call("task", order="a", copies=200))
        assert office.ran == ["a"]


@pytest.mark.parametrize("action", ["cancel", "expire"])
async def test_corrected_page_is_shown_after_the_first_was_ended(action: End) -> None:
    office = CopyOffice()
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("page", {"order": "a", "copies": 200})
        assert REFUSED in text_of_page(await client.call_tool("page", {"order": "a", "copies": 20}))
        await end(office, action, handle_in(asked).partition(".")[0])
        corrected = await client.call_tool("page", {"order": "a", "copies": 20})
        await Browser(url, "ann").answer_all(link_in(corrected), {"Which word?": "tea"})
        assert text_of_page(await resume(client, corrected)) == "a tea 20"
        assert office.ran == ["a"]


async def test_corrected_page_is_shown_once_the_decline_has_lapsed() -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    office = CopyOffice(ledger=MemoryLedger(system=system), system=system)
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("page", {"order": "a", "copies": 200})
        browser = Browser(url, "ann")
        await browser.send(link_in(asked), (await browser.open(link_in(asked))).text, decision="decline")
        assert (await resume(client, asked)).is_error
        assert REFUSED in text_of_page(await client.call_tool("page", {"order": "a", "copies": 20}))
        clock.advance(6 * 60)
        corrected = await client.call_tool("page", {"order": "a", "copies": 20})
        assert handle_in(corrected) != handle_in(asked)


async def test_step_of_a_stored_call_keeps_the_arguments() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.call("report", order="a", copies=200)
        await peer.asked(first["taskId"], "word")
        await peer.ask("tasks/cancel", taskId=first["taskId"])
        assert REFUSED in str(await peer.call("report", order="a", copies=20))
        again = await peer.call("report", order="a", copies=200)
        await peer.asked(again["taskId"], "word")
        assert office.steps == ["a"]


async def test_rejected_and_failed_and_lost_calls_keep_the_arguments(tmp_path: Path) -> None:
    office = CopyOffice(ledger=SqliteLedger(tmp_path / "ledger.db"))

    async def refund(order: str, euros: int) -> str:
        """Refund an order."""
        raise ToolError("out of stock")

    options: dict[str, Any] = {"once_per": "{order}", "on_failure": "rerun"}
    office.server.add_tool(
        anew(refund), name="asks", confirm=offices.Approve("Refund {order}?", by="finance"), **options
    )
    office.server.add_tool(anew(refund), name="fails", task=True, **options)
    async with opened(office) as url, client_of(url) as client, peer_of(url) as peer:
        asked = await client.call_tool("asks", {"order": "a", "euros": 200})
        await Person(url, "fay").decide("reject", "no", start="Refund")
        assert (await resume(client, asked)).is_error
        assert REFUSED in text_of_page(await client.call_tool("asks", {"order": "a", "euros": 20}))
        await peer.until((await peer.call("fails", order="a", euros=200))["taskId"])
        assert REFUSED in str(await peer.call("fails", order="a", euros=20))
        lost = await peer.call("lost", order="a", copies=200)
        await peer.asked(lost["taskId"], "word")
        with sqlite3.connect(tmp_path / "ledger.db") as db:
            db.execute("DELETE FROM tasks")
        assert REFUSED in str(await peer.call("lost", order="a", copies=20))
