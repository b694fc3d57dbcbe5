"""Clients on 2026-07-28 stop after 10 rounds: the log warns before, and the kit's users stop there."""

import logging
from typing import Any

import pytest

from roundtrip import Context, Server
from roundtrip.testing import Era, User

pytestmark = pytest.mark.anyio


def asking(rounds: int, **options: Any) -> Server[Any]:
    server = Server[Any]("shop")

    @server.tool(**options)
    async def chat(ctx: Context) -> str:
        for number in range(rounds):
            await ctx.ask(f"item-{number}", "More?", bool)
        return "done"

    return server


def answers(rounds: int) -> dict[str, bool]:
    return {f"item-{number}": True for number in range(rounds)}


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_rounds_from_the_eighth_on_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert (await User(asking(10), answers(10), era=Era.RETRY).call("chat")).value == "done"
    lines = warned(caplog)
    assert [f"tool 'chat' asks in round {number} of one call" in line for number, line in enumerate(lines, 8)] == [
        True
    ] * 3
    assert "stop after round 10" in lines[0]
    assert "ctx.ask_all" in lines[0]


@pytest.mark.parametrize(("era", "rounds"), [(Era.RETRY, 7), (Era.LIVE, 12)])
async def test_seven_or_live_rounds_are_no_matter_for_the_log(
    era: Era, rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await User(asking(rounds), answers(rounds), era=era).call("chat")).value == "done"
    assert warned(caplog) == []


async def test_user_stops_after_ten_rounds() -> None:
    with pytest.raises(AssertionError, match=r"still asks after 10 rounds: .*'item-9'.*max_rounds="):
        await User(asking(11), answers(11), era=Era.RETRY).call("chat")


async def test_task_that_never_stops_asking_is_told_to_end_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundtrip.testing.users._MAX_TASK_ROUNDS", 3)
    said = r"still asks after 3 rounds: .*'item-2'.*\. End its loop, or ask in fewer rounds \(ctx\.ask_all, .*\)$"
    with pytest.raises(AssertionError, match=said):
        await User(asking(5, task=True), answers(5), era=Era.TASK).call("chat")


async def test_user_continues_for_the_requested_number_of_rounds() -> None:
    user = User(asking(12), answers(12), era=Era.RETRY, max_rounds=12)
    assert (await user.call("chat")).value == "done"


def test_user_without_any_round_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_rounds= must be at least 1, got 0"):
        User(asking(1), max_rounds=0)
