"""Each reason provoked on real servers by a deploy or a client: `explain` names question, cause and cure."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from mcp.client import Client
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, ElicitUrl, Recorder, Resolve, Server, ToolError
from roundtrip.cli import main
from roundtrip.doctor.facts import Facts
from roundtrip.doctor.findings import builds_text
from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal_bytes import INTENT_FORMAT
from roundtrip.machine.table import State
from roundtrip.switches import PROBE_TOOL
from roundtrip.testing import DECLINE, Answers, Clock, Era, LegByLeg, User
from roundtrip.tokens.token import KeyRing, TokenCodec
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.page.data import data_of
from tests.interaction.trace.transcribed import assert_path_is_in_the_table, calls_of
from tests.kit.players import Reply
from tests.kit.secrets import BORN, CountedEntropy, payload
from tests.kit.shops import KEY, Choice, sure
from tests.kit.time_limits import LIMIT, hang

pytestmark = pytest.mark.anyio

OTHER_KEY = b"o" * 32
ARGUMENTS = {"title": "Dune"}
YES = {"ok": True}


class LongChoice(BaseModel):
    ok: bool
    note: str = ""


class City(BaseModel):
    city: str


class Shop:
    """Builds of a bookshop that all record into one transcript."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "calls.jsonl"
        self._capsys = capsys

    def server(self, build: str = "1", **options: Any) -> Server[Any]:
        recorder = Recorder(self.path, reveal="all", instance=f"instance-{build}")
        if "request_state_security" not in options:
            options["keys"] = [KEY]
        return Server[Any]("shop", build=build, trace=recorder, **options)

    def with_tool(self, function: Callable[..., Any], build: str = "1", **options: Any) -> Server[Any]:
        server = self.server(build, **options)
        server.add_tool(function, name="order")
        return server

    def asking(
        self,
        message: str = "Sure?",
        build: str = "1",
        schema: type[BaseModel] = Choice,
        key: str = "confirm",
        **options: Any,
    ) -> Server[Any]:
        """Return a build whose tool asks one question."""

        async def confirm() -> Elicit[Any]:
            return Elicit(message, schema)

        async def order(title: str, choice: Annotated[Any, Resolve(confirm, name=key)]) -> str:
            return title

        return self.with_tool(order, build, **options)

    def explained(self, reason: str) -> str:
        """Return the only sentence that `explain` has for a reason."""
        assert main(["trace", "ls", "--json", "--reason", reason, str(self.path)]) == 0
        (found,) = json.loads(self._capsys.readouterr().out)
        assert main(["trace", "explain", found["call"], "--json", str(self.path)]) == 1
        (told,) = [one for one in json.loads(self._capsys.readouterr().out) if one["reason"] == reason]
        return str(told["text"])

    def rejected(self, reason: str) -> str:
        """Return the only sentence about a rejected token that names no call."""
        assert main(["trace", "ls", "--rejections", "--reason", reason, "--json", str(self.path)]) == 0
        (told,) = json.loads(self._capsys.readouterr().out)
        return str(told["text"])


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path, capsys)


async def play(servers: list[Server[Any]], *replies: dict[str, Reply]) -> None:
    """Make a call over several servers; each after the first receives the answers of one round."""
    hopper = LegByLeg(servers)
    await hopper.leg("order", ARGUMENTS)
    for reply in replies:
        await hopper.leg("order", ARGUMENTS, answers=reply, state=hopper.token)


@pytest.mark.parametrize(
    ("reason", "later", "reply", "cause"),
    [
        (Reason.MISSING, {}, {"other": YES}, "without an answer to it, but with 1 answer to questions that were not"),
        (Reason.INVALID, {}, {"confirm": {"ok": "perhaps"}}, "because the answer did not fit its form ("),
        (
            Reason.REWORDED,
            {"build": "2", "message": "Really?"},
            {"confirm": YES},
            "its message changed from 'Sure?' to 'Really?' between build 1 and build 2",
        ),
        (
            Reason.SCHEMA_CHANGED,
            {"build": "2", "schema": LongChoice},
            {"confirm": YES},
            "its form changed ('note' is new) between build 1 and build 2",
        ),
        (Reason.RENAMED, {"build": "2", "key": "approve"}, {"confirm": YES}, "Resolve(fn, former_names=('confirm',))"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_repeated_question_is_explained(
    shop: Shop, reason: Reason, later: dict[str, Any], reply: dict[str, Reply], cause: str
) -> None:
    await play([shop.asking(), shop.asking(**later)], reply)
    text = shop.explained(reason)
    assert text.startswith(f"Question '{later.get('key', 'confirm')}' was asked ")
    assert cause in text


async def facts_of(server: Server[Any]) -> Facts:
    async with Client(server, mode=Era.RETRY.value) as client:
        return Facts.model_validate((await client.call_tool(PROBE_TOOL, {})).structured_content)


async def test_every_view_spells_a_build_alike(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builds, shown = ("2026.11", "fedcba9876543210" * 2), ("2026.11", "fedcba987654")
    servers = [shop.asking(name, build, probe=True) for name, build in zip(("Sure?", "Really?"), builds, strict=True)]
    hopper = LegByLeg(servers)
    await hopper.leg("order", ARGUMENTS)
    await hopper.leg("order", ARGUMENTS, answers={"confirm": YES}, state=hopper.token)
    (tmp_path / "token.txt").write_text(hopper.token)

    def printed(*arguments: str) -> str:
        assert main(["trace", *arguments]) in (0, 1)
        return capsys.readouterr().out

    assert printed("ls", str(shop.path)).split()[-1] == shown[0]
    assert f"build {shown[1]}, after {shown[0]}" in printed("show", "last", str(shop.path))
    assert f"between build {shown[0]} and build {shown[1]}" in printed("explain", "last", str(shop.path))
    token_lines = printed("token", str(tmp_path / "token.txt")).splitlines()
    assert [line.split()[-1] for line in token_lines if line.strip().startswith("build")] == [shown[1]]
    (call,) = calls_of(shop.path)
    page = data_of(call)
    assert ["Build", shown[0]] in page["facts"]
    assert ["Build", f"{shown[0]} before, now {shown[1]}"] in page["steps"][1]["facts"]
    assert [builds_text(await facts_of(server)) for server in servers] == [f"build {name}" for name in shown]


async def test_volatile(shop: Shop) -> None:
    hours = itertools.count(1)

    async def confirm() -> Elicit[Choice]:
        return Elicit(f"It is {next(hours)} o'clock. Sure?", Choice)

    async def order(title: str, choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return title

    await User(shop.with_tool(order), {"confirm": [YES, YES]}, era=Era.RETRY).call("order", ARGUMENTS)
    text = shop.explained(Reason.VOLATILE)
    assert "Question 'confirm'" in text
    assert "'It is 1 o\\'clock. Sure?'" in text or '"It is 1 o\'clock. Sure?"' in text
    assert "remember=True" in text
    assert "ctx.step()" in text


async def test_other_build(shop: Shop) -> None:
    async def where() -> Elicit[City]:
        return Elicit("Where to?", City)

    async def order(
        title: str, choice: Annotated[Choice, Resolve(sure, name="confirm")], city: Annotated[City, Resolve(where)]
    ) -> str:
        return title

    await play([shop.asking(), shop.with_tool(order, "2")], {"confirm": YES})
    text = shop.explained(Reason.OTHER_BUILD)
    assert "Question 'where'" in text
    assert "an earlier leg was served by build 1, and this leg by build 2, which asks something else" in text


async def test_unfinished(shop: Shop) -> None:
    async def pay() -> ElicitUrl[str]:
        return ElicitUrl("Please pay.", "https://shop.example/pay", done=lambda: None, wait=0)

    async def order(title: str, paid: Annotated[Any, Resolve(pay)]) -> str:
        return title

    server = shop.with_tool(order)
    await play([server, server], {"pay": ElicitResult(action="accept")})
    text = shop.explained(Reason.UNFINISHED)
    assert "Question 'pay'" in text
    assert "agreed to open the page, but has not finished there" in text
    assert "done=" in text


async def test_questions_that_follow_a_revised_one_are_explained(
    shop: Shop, era: Era, capsys: pytest.CaptureFixture[str]
) -> None:
    async def order(title: str, ctx: Context[Any, Any]) -> str:
        city = await ctx.ask("city", "Where to?", City)
        await ctx.ask("sure", f"{city.city}, sure?", Choice)
        await ctx.review("review", "All right?", ["city"])
        return title

    answers: Answers = {"city": {"city": "Rome"}, "sure": [YES, YES], "review": {"city.city": "Oslo"}}
    await User(shop.with_tool(order), answers, era=era).call("order", ARGUMENTS)
    assert main(["trace", "explain", "last", str(shop.path)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "Question 'sure' was asked again in round 4, because " in told
    assert "the user changed" in told
    assert "it may depend on" in told


@pytest.mark.parametrize(
    ("passed", "reason", "cause"),
    [
        (180, RejectionReason.EXPIRED, "it had expired 2 min before; raise ttl="),
        (-180, RejectionReason.FUTURE, "synchronize the instances' clocks"),
    ],
)
async def test_expired_and_minted_in_the_future(
    shop: Shop, clock: Clock, passed: float, reason: RejectionReason, cause: str
) -> None:
    hopper = LegByLeg([shop.asking(ttl=60)])
    await hopper.leg("order", ARGUMENTS)
    clock.advance(passed)
    with pytest.raises(MCPError):
        await hopper.leg("order", ARGUMENTS, answers={"confirm": YES}, state=hopper.token)
    text = shop.explained(reason)
    assert "Instance 'instance-1' rejected the token of a 'tools/call' for 'order'" in text
    assert cause in text


async def test_another_method(shop: Shop) -> None:
    server = shop.asking()

    @server.prompt(name="order")
    def prompt(title: str) -> str:
        return title

    hopper = LegByLeg([server])
    await hopper.leg("order", ARGUMENTS)
    async with Client(server, mode=Era.RETRY.value) as client:
        with pytest.raises(MCPError):
            await client.session.get_prompt("order", {"title": "Dune"}, request_state=hopper.token)
    assert "a request with the method 'tools/call'" in shop.explained(RejectionReason.OTHER_METHOD)


async def test_another_version_of_the_tool(shop: Shop) -> None:
    async def order(title: str, choice: Annotated[Choice, Resolve(sure)]) -> str:
        return title

    server = shop.server()
    server.tool(version=1)(order)
    hopper = LegByLeg([server])
    await hopper.leg("order", ARGUMENTS)
    server.tool(version=2)(order)
    with pytest.raises(MCPError):
        await hopper.leg("order", ARGUMENTS, answers={"sure": YES}, state=hopper.token, meta={"roundtrip/version": "2"})
    assert "name the version with which it began the call" in shop.explained(RejectionReason.OTHER_VERSION)


async def test_a_token_of_a_later_format(shop: Shop, clock: Clock) -> None:
    clock.now = BORN + 1
    later = bytes([INTENT_FORMAT + 1 << 4, *range(60)])
    token = TokenCodec(KeyRing([KEY]), entropy=CountedEntropy()).seal(
        payload(later, tool="order", arguments=ARGUMENTS, audience="shop")
    )
    with pytest.raises(MCPError):
        await LegByLeg([shop.asking()]).leg("order", ARGUMENTS, state=token)
    assert "finish rolling out one version of roundtrip" in shop.rejected(RejectionReason.FORMAT)


async def test_a_seal_that_another_key_made(shop: Shop) -> None:
    async def price() -> int:
        return 3

    async def confirm(price: Annotated[int, Resolve(price, remember=True)]) -> Elicit[Choice]:
        return Elicit(f"{price}, sure?", Choice)

    async def order(title: str, choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return title

    servers = [
        shop.with_tool(order, request_state_security=RequestStateSecurity(keys=[KEY]), seal_keys=[seal_key], build="1")
        for seal_key in (KEY, OTHER_KEY)
    ]
    hopper = LegByLeg(servers)
    await hopper.leg("order", ARGUMENTS)
    with pytest.raises(MCPError):
        await hopper.leg("order", ARGUMENTS, answers={"confirm": YES}, state=hopper.token)
    assert "(or seal_keys=)" in shop.rejected(RejectionReason.SEAL)


# Failures.


class Seat(BaseModel):
    row: Annotated[int, Field(ge=1)]


async def seat() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


def price(seat: Annotated[Seat, Resolve(seat)]) -> int:
    raise LookupError("no price list")


def cinema(transcript: Path) -> Server[Any]:
    server = Server[Any]("cinema", trace=Recorder(transcript, reveal="all"))

    @server.tool()
    async def crash(seat: Annotated[Seat, Resolve(seat)]) -> str:
        raise ValueError(f"row {seat.row} is broken")

    @server.tool()
    async def quote(price: Annotated[int, Resolve(price)]) -> int:
        return price

    @server.tool()
    async def sold_out(seat: Annotated[Seat, Resolve(seat)]) -> str:
        raise ToolError("sold out")

    @server.tool()
    async def book(seat: Annotated[Seat, Resolve(seat)]) -> str:
        return f"row {seat.row}"

    @server.tool(timeout=LIMIT)
    async def dawdle(seat: Annotated[Seat, Resolve(seat)]) -> str:
        await hang()
        return "done"

    @server.tool()
    async def charge(ctx: Context) -> str:
        await ctx.ask("seat", "Which row?", Seat)
        await ctx.step("charge", no_card)
        return "charged"

    @server.tool(confirm="Empty it?")
    async def empty() -> str:
        return "emptied"

    @server.tool()
    async def reserve(ctx: Context) -> str:
        await ctx.ask("seat", "Which row?", Seat)
        return "reserved"

    return server


def no_card() -> str:
    raise PermissionError("no card")


@pytest.mark.usefixtures("limits")
@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize(
    ("tool", "answer", "state", "place", "cause"),
    [
        ("crash", {"row": 3}, State.FAILED, "in its body", "ValueError: 'row 3 is broken' was raised"),
        (
            "quote",
            {"row": 3},
            State.FAILED,
            "in the resolver or dependency 'price'",
            "LookupError: 'no price list' was raised",
        ),
        ("sold_out", {"row": 3}, State.FAILED, "in its body", "(ToolError: 'sold out')"),
        ("dawdle", {"row": 3}, State.FAILED, "in its body", "(ToolTimedOut: 'timed out after 5s')"),
        ("charge", {"row": 3}, State.FAILED, "in its step 'charge'", "PermissionError: 'no card' was raised"),
        ("book", DECLINE, State.DECLINED, "", "the user declined or cancelled a question whose answer it needs"),
        ("book", DECLINE, State.DECLINED, "", "to continue without the answer, take ElicitationResult[T]"),
        ("reserve", DECLINE, State.DECLINED, "", "to continue without the answer, use ctx.ask_outcome"),
        ("empty", DECLINE, State.DECLINED, "", "with confirm=, nothing runs unless the user accepts"),
        ("book", [{"row": 0}] * 3, State.FAILED, "", "got as many invalid answers as attempts= allows"),
        ("book", None, State.REJECTED, "", "CapabilityMissing"),
    ],
)
async def test_failed_call_says_where_and_why(
    path: Path, tool: str, answer: Any, state: State, place: str, cause: str
) -> None:
    answers = {"confirm:empty" if tool == "empty" else "seat": answer} if answer is not None else {}
    lacks: list[Literal["elicitation"]] = ["elicitation"] if answer is None else []
    await User(cinema(path), answers, missing_capabilities=lacks, allow_error=True).call(tool)
    (call,) = calls_of(path)
    assert_path_is_in_the_table(call)
    assert call.state is state
    (failure,) = [one for one in explain(call) if one.subject is ExplainedSubject.FAILURE]
    assert (failure.leg, failure.round or 0) == (call.legs, call.round_count)
    assert place in failure.text
    assert cause in failure.text
    assert failure.text.startswith(f"Leg {call.legs} on ")
