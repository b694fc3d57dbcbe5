"""Rounds without questions, which give a call its token, and clients that cannot take one."""

import logging
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import Implementation

from roundtrip import Context, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.machine.facts import BodyBegan
from roundtrip.testing import Era, LegByLeg, User
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.lines import AskedLine, EndedLine
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.ledger.shops import Shop, text_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio

ONE_LEG = Implementation(name="one-leg", version="1")


class Bank:
    """Server whose tool asks nothing, and runs once if the client allows it."""

    def __init__(self, uncovered: Any = "round", **options: Any) -> None:
        self.ran: list[str] = []
        self.facts: list[object] = []
        self.server = Server("bank", keys=[KEY], ledger=MemoryLedger(), trace=self, **options)

        @self.server.tool(exactly_once=True, uncovered=uncovered)
        async def pay() -> str:
            """Pay."""
            self.ran.append("pay")
            return f"paid {len(self.ran)}"

        @self.server.tool(exactly_once=True, uncovered=uncovered)
        async def order(ctx: Context[Any, Any]) -> str:
            """Order."""
            agreed = await ctx.ask("agreed", "Sure?", bool)
            self.ran.append("order")
            return f"ordered {agreed} {len(self.ran)}"

    def begin(self, beginning: object) -> Any:
        del beginning
        return self.facts.append

    def reject(self, rejection: object) -> None:
        del rejection

    @property
    def uncovered(self) -> list[bool]:
        return [fact.uncovered for fact in self.facts if isinstance(fact, BodyBegan)]


async def paid(bank: Bank, **options: Any) -> str:
    """Call the tool as the OpenAI Agents SDK does: by the session alone, which takes no round."""
    async with Client(bank.server, mode="2026-07-28", **options) as client:
        try:
            return text_of(await client.session.call_tool("pay", {}))
        except RuntimeError as error:
            return str(error)


async def test_run_sends_no_round_without_questions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="roundtrip")
    bank = Bank("run")
    assert await paid(bank) == "paid 1"
    assert bank.uncovered == [True]
    assert "tool 'pay' runs in call" in caplog.text
    assert "without the guarantee to run once: uncovered='run', and the call asked no question" in caplog.text


async def test_run_covers_a_call_that_has_a_token() -> None:
    bank = Bank("run")
    legs = LegByLeg(bank.server)
    await legs.leg("order")
    told = [text_of(await legs.leg("order", answers={"agreed": True}, state=legs.token)) for _ in range(2)]
    assert (told, bank.ran, bank.uncovered) == (["ordered True 1"] * 2, ["order"], [True, False])


async def test_reject_runs_no_call_that_asked_nothing() -> None:
    bank = Bank("reject")
    said = "tool 'pay' was not run: nothing in the request identifies this call, so that it could run twice"
    assert said in await paid(bank)
    assert (bank.ran, bank.uncovered) == ([], [])


async def test_reject_covers_a_call_that_has_a_token() -> None:
    shop = Shop(MemoryLedger())
    shop.add(shop.buy, name="order", uncovered="reject")
    legs = LegByLeg(shop)
    await legs.leg("order", {"what": "tea"})
    answered: dict[str, Any] = {"answers": {"paid": True}, "state": legs.token}
    told = [text_of(await legs.leg("order", {"what": "tea"}, **answered)) for _ in range(2)]
    assert (told, shop.ran) == (["tea no. 1, paid"] * 2, ["tea"])


async def test_reject_makes_no_task_of_a_call_that_asked_nothing() -> None:
    server, ran = Server[Any]("bank", keys=[KEY], ledger=MemoryLedger()), list[str]()

    @server.tool(exactly_once=True, uncovered="reject", task="required")
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    said = (await User(server, era=Era.TASK, allow_error=True).call("pay")).text
    assert (said.partition(": ")[2].startswith("tool 'pay' was not run: nothing in the request"), ran) == (True, [])


async def test_a_named_client_is_sent_no_round_without_questions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="roundtrip")
    bank = Bank(no_empty_rounds=["one-leg"])
    assert await paid(bank, client_info=ONE_LEG) == "paid 1"
    assert bank.uncovered == [True]
    assert "its client does not accept a round without questions" in caplog.text
    assert "InputRequiredResult" in await paid(bank, client_info=Implementation(name="another", version="1"))
    assert bank.ran == ["pay"]


async def test_a_transcript_says_what_was_not_covered(tmp_path: Path) -> None:
    bank = Bank("run")
    recorder = Recorder(tmp_path / "calls.jsonl")
    bank.server.internals.parts.effects.tracers.add(recorder)
    await paid(bank)
    legs = LegByLeg(bank.server)
    await legs.leg("order")
    await legs.leg("order", answers={"agreed": True}, state=legs.token)
    reading = read_files([tmp_path / "calls.jsonl"])
    told = [line.uncovered for line in reading.lines if isinstance(line, AskedLine | EndedLine)]
    assert told == [True, True, False]


def test_text_is_no_list_of_clients() -> None:
    with pytest.raises(TypeError, match="no_empty_rounds must be a list"):
        Bank(no_empty_rounds="one-leg")
