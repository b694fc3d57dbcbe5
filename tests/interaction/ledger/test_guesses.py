"""Questions with `guesses=`: a call accepts so many different answers, over all legs and instances."""

import logging
import secrets
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import InputRequiredResult
from pydantic import AfterValidator, BaseModel, create_model

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import Ledger, LedgerDown, MemoryLedger, SqliteLedger
from roundtrip.testing import DECLINE, Era, LegByLeg, User
from tests.interaction.ledger.shops import text_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


def exactly(code: str) -> type[BaseModel]:
    """Return a form that accepts one code."""

    def check(sent: str) -> str:
        if sent != code:
            raise ValueError("this is not the code")
        return sent

    return create_model("Code", code=(Annotated[str, AfterValidator(check)], ...))


class Safe:
    """Tool that opens to a code that was made for its call."""

    def __init__(self, ledger: Ledger, *, guesses: int | None = 5, attempts: int = 3, once: bool = False) -> None:
        self.ledger = ledger
        self.code = ""
        self.opened: list[str] = []
        self._guesses, self._attempts, self._once = guesses, attempts, once

    def minted(self) -> str:
        self.code = self.code or f"{secrets.randbelow(10**6):06}"
        return self.code

    def __call__(self, keys: Any = (KEY,)) -> Server:
        server = Server("safe", keys=keys, ledger=self.ledger)

        async def code(minted: Annotated[str, Resolve(self.minted, remember=True)]) -> Any:
            return Elicit("The code?", exactly(minted), guesses=self._guesses, attempts=self._attempts)

        @server.tool(exactly_once=self._once)
        async def by_resolver(code: Annotated[Any, Resolve(code)]) -> str:
            self.opened.append(code.code)
            return "open"

        @server.tool(exactly_once=self._once)
        async def by_body(ctx: Context[Any, Any]) -> str:
            minted = await ctx.step("minted", self.minted)
            sent = await ctx.ask("code", "The code?", str, guesses=self._guesses)
            if sent != minted:
                return "shut"
            self.opened.append(sent)
            return "open"

        return server


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def guess(legs: LegByLeg, tool: str, code: Any, token: str) -> str:
    """Send an answer to the first question again, and return a word for the outcome."""
    form = code if tool == "by_body" or not isinstance(code, str) else {"code": code}
    result = await legs.leg(tool, answers={"code": form}, state=token)
    return "asked again" if isinstance(result, InputRequiredResult) else text_of(result)


async def asked(safe: Safe, tool: str) -> tuple[LegByLeg, str]:
    legs = LegByLeg(safe)
    await legs.leg(tool)
    while "code" not in legs.questions:
        await legs.leg(tool, state=legs.token)
    return legs, legs.token


@pytest.mark.parametrize("tool", ["by_resolver", "by_body"])
async def test_a_token_that_is_sent_again_brings_no_more_guesses(tool: str) -> None:
    safe = Safe(MemoryLedger())
    legs, token = await asked(safe, tool)
    told = [await guess(legs, tool, f"x{number}", token) for number in range(8)]
    assert all("takes no other answer in this call" in text for text in told[5:])
    assert not any("takes no other" in text for text in told[:5])
    # Not even the right one.
    assert "takes no other answer" in await guess(legs, tool, safe.code, token)
    assert safe.opened == []


@pytest.mark.parametrize("once", [False, True])
async def test_the_same_answer_counts_once(once: bool) -> None:
    safe = Safe(MemoryLedger(), guesses=2, once=once)
    legs, token = await asked(safe, "by_resolver")
    told = [await guess(legs, "by_resolver", "wrong", token) for _ in range(4)]
    assert told == ["asked again"] * 4
    # What is no answer is not a guess.
    assert "could not resolve" in await guess(legs, "by_resolver", DECLINE, token)
    assert [await guess(legs, "by_resolver", safe.code, token) for _ in range(3)] == ["open"] * 3
    refused = "has ended already" if once else "takes no other answer"
    assert refused in await guess(legs, "by_resolver", "another", token)


async def test_instances_count_together_in_an_unreadable_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    safe = Safe(SqliteLedger(path), guesses=2)
    legs, token = await asked(safe, "by_resolver")
    assert await guess(legs, "by_resolver", "marker-of-a-guess", token) == "asked again"
    kept = bytes_in(tmp_path)
    assert b"guesses" in kept
    assert b"marker-of-a-guess" not in kept
    safe.ledger = SqliteLedger(path)
    other = LegByLeg(safe)
    # Other tokens of the call share its guesses.
    assert await guess(other, "by_resolver", "b", legs.token) == "asked again"
    for token_of_call in (token, legs.token, other.token):
        assert "takes no other answer" in await guess(other, "by_resolver", "c", token_of_call)
    assert await guess(legs, "by_resolver", "marker-of-a-guess", token) == "asked again"


class Broken(MemoryLedger):
    """Ledger that cannot count for now."""

    down = True

    async def count(self, *args: Any, **more: Any) -> bool:
        if self.down:
            raise LedgerDown("the ledger of this test is down")
        return await super().count(*args, **more)


@pytest.mark.parametrize(("tool", "once"), [("by_resolver", False), ("by_body", True)])
async def test_no_guess_is_taken_while_the_ledger_is_down(tool: str, once: bool) -> None:
    ledger = Broken()
    safe = Safe(ledger, once=once)
    legs, token = await asked(safe, tool)
    for code in (safe.code, "wrong"):
        with pytest.raises(MCPError) as refused:
            await guess(legs, tool, code, token)
        assert refused.value.error.data == {"reason": "ledger_unavailable", "tool": tool}
    assert safe.opened == []
    ledger.down = False
    assert await guess(legs, tool, safe.code, token) == "open"


@pytest.mark.parametrize("era", [era for era in Era if era is not Era.TASK])
async def test_guesses_are_counted_on_both_eras(era: Era) -> None:
    safe = Safe(MemoryLedger(), guesses=2, attempts=9)
    wrong = await User(safe, {"code": [{"code": str(number)} for number in range(3)]}, era=era).call("by_resolver")
    assert "takes no other answer" in (wrong.failure or "")
    right = User(safe, {"code": [{"code": "0"}, {"code": safe.code}]}, era=era)
    assert (await right.call("by_resolver")).value == "open"


async def test_another_question_s_answers_do_not_smuggle_a_guess_in() -> None:
    """An answer that no code has read is kept, and counted when it is read."""
    counted: list[str] = []

    class Watched(MemoryLedger):
        async def count(self, key: str, item: str, **more: Any) -> bool:
            counted.append(item)
            return await super().count(key, item, **more)

    server = Server("safe", keys=[KEY], ledger=Watched())

    @server.tool
    async def open_both(ctx: Context[Any, Any]) -> str:
        both = {"name": Elicit("Name?", str), "code": Elicit("Code?", exactly("1234"), guesses=1)}
        if ctx.call.leg == 2:
            await ctx.ask("name", both["name"])
            await ctx.ask("more", "More?", bool)
        got = await ctx.ask_all(both)
        return f"open {len(got)}"

    legs = LegByLeg(server)
    await legs.leg("open_both")
    token = legs.token
    for number in range(3):
        await legs.leg("open_both", answers={"name": "n", "code": {"code": f"{number}"}}, state=token)
        assert counted == []
    smuggled = [legs.token]
    await legs.leg("open_both", answers={"name": "n", "code": {"code": "1234"}}, state=token)
    smuggled.append(legs.token)
    told = [await legs.leg("open_both", answers={"more": True}, state=state) for state in smuggled]
    assert len(counted) == 2
    assert "takes no other answer" in text_of(told[1])


async def test_an_answer_that_is_counted_cannot_be_reviewed() -> None:
    server = Server("safe", keys=[KEY], ledger=MemoryLedger())

    @server.tool
    async def review(ctx: Context[Any, Any]) -> str:
        await ctx.ask("code", "Code?", exactly("1234"), guesses=1)
        await ctx.review("all", "All right?", ["code"])
        return "done"

    call = await User(server, {"code": {"code": "1234"}}).call("review")
    assert "it has guesses=, and a review does not count guesses" in (call.failure or "")


async def test_possibly_replicated_server_is_advised_to_share_a_ledger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="roundtrip")
    server = Server("safe", keys=[KEY])

    @server.tool
    async def enter(ctx: Context[Any, Any]) -> str:
        await ctx.ask("code", "Code?", str, guesses=1)
        return "done"

    for _ in range(2):
        await User(server, {"code": "1"}).call("enter")
    warned = [record for record in caplog.records if "guesses=" in record.getMessage()]
    assert len(warned) == 1


def test_invalid_number_of_guesses_is_rejected() -> None:
    given: list[Any] = [0, -1, True]
    for guesses in given:
        with pytest.raises(ValueError, match=r"guesses=\.\.\.\) must be a whole number of at least 1"):
            Elicit("Code?", str, guesses=guesses)
