"""A recorder writes every leg of real calls, on both eras, and no confidential value."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import InputRequiredResult
from pydantic import BaseModel

from roundtrip import Context, Elicit, Recorder, Resolve, Server, Transition
from roundtrip.errors import RejectionReason
from roundtrip.machine.pins import digest, label_of
from roundtrip.machine.table import State
from roundtrip.testing import DECLINE, Answers, Clock, Era, LegByLeg, User
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of
from roundtrip.trace.writing.lines import AskedLine, BeganLine, RejectedLine, Revealed
from tests.interaction.protocol.by_hand import by_hand
from tests.interaction.trace.transcribed import assert_path_is_in_the_table, calls_of, lines_of, raw_lines
from tests.kit.players import connect
from tests.kit.shops import KEY, Choice
from tests.kit.tables import check_each
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    note: str


def confirm(title: str) -> Elicit[Choice]:
    return Elicit(f"Order {title}?", Choice)


async def price(choice: Annotated[Choice, Resolve(confirm)]) -> int:
    return 7 if choice.ok else 0


def shop(path: Path | None, instance: str = "a", *, reveal: Any = (), **options: Any) -> Server[Any]:
    trace = Recorder(path, instance=instance, reveal=reveal) if path is not None else None
    server = Server[Any]("shop", keys=[KEY], trace=trace, **options)

    @server.tool()
    async def order(
        title: str,
        choice: Annotated[Choice, Resolve(confirm)],
        price: Annotated[int, Resolve(price)],
        ctx: Context,
    ) -> str:
        note = await ctx.ask("note", "A note?", Note)
        code = await ctx.step("code", lambda: 42)
        return f"{title} for {price}, {note.note}: {code}"

    @server.tool()
    async def crash(title: str) -> str:
        raise RuntimeError(f"no {title} left")

    @server.tool()
    async def outer(ctx: Context) -> str:
        result = await server.call_tool("inner", {})
        return "outer" if not isinstance(result, InputRequiredResult) else "asked"

    @server.tool()
    async def inner() -> str:
        return "inner"

    @server.tool()
    async def hand(ctx: Context) -> str | InputRequiredResult:
        return by_hand("secret state") if ctx.request_state is None else "done"

    @server.prompt()
    async def letter(title: str, choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return f"{title} {choice.ok}"

    @server.resource("shelf://{title}")
    async def shelf(title: str, choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return f"{title} {choice.ok}"

    return server


def echo(title: str) -> str:
    return title


def ignore(title: str) -> str:
    return "x"


ANSWERS: Answers = {"confirm": {"ok": True}, "note": {"note": "by noon"}}


# One call.


async def test_call_is_recorded_from_first_request_to_result(path: Path, era: Era) -> None:
    call = await User(shop(path), ANSWERS, era=era).call("order", title="Dune")
    assert call.text == "Dune for 7, by noon: 42"
    (traced,) = calls_of(path)
    assert_path_is_in_the_table(traced)
    assert (traced.tool, traced.state, len(traced.rounds), traced.bodies) == (
        "order",
        State.COMPLETED,
        2,
        {Era.RETRY: 2, Era.LIVE: 1}[era],
    )
    assert [(q.key, q.reason.value) for r in traced.rounds for q in r.asked.questions] == [
        ("confirm", "new"),
        ("note", "new"),
    ]
    assert [[(a.key, a.action, a.how) for a in r.answers] for r in traced.rounds] == [
        [("confirm", "accept", "taken")],
        [("note", "accept", "taken")],
    ]
    assert [r.asked.by for r in traced.rounds] == ["resolvers", "body"]
    steps = [step for serving in traced.servings for line in serving.happened for step in line.steps]
    assert [(step.key, step.how) for step in steps] == [("code", "ran")]
    assert traced.began is not None
    assert (traced.began.era, traced.began.protocol) == {
        Era.RETRY: ("retry", "2026-07-28"),
        Era.LIVE: ("live", "2025-11-25"),
    }[era]


async def test_each_retry_leg_records_token_size_and_used_contents(
    path: Path,
) -> None:
    servers = [shop(path, name) for name in ("a", "b", "c")]
    hopper = LegByLeg(servers)
    sizes: list[int] = []
    result = await hopper.leg("order", {"title": "Dune"})
    for answers in ({"confirm": {"ok": True}}, {"note": {"note": "n"}}):
        assert isinstance(result, InputRequiredResult)
        sizes.append(len(hopper.token))
        result = await hopper.leg("order", {"title": "Dune"}, answers=answers, state=hopper.token)
    (traced,) = calls_of(path)
    assert traced.instances == ["a", "b", "c"]
    tokens = [round_.asked.token for round_ in traced.rounds]
    assert [token.bytes for token in tokens if token is not None] == sizes
    assert tokens[0] is not None
    assert tokens[1] is not None
    assert (tokens[0].added, tokens[1].added, tokens[1].dropped) == (
        ("asked:confirm",),
        ("answer:confirm", "asked:note"),
        ("asked:confirm",),
    )
    assert [line.token_bytes for line in lines_of(path) if isinstance(line, BeganLine)] == [None, *sizes]
    assert traced.ended is not None
    assert traced.ended.reused == ("confirm",)


async def test_the_name_of_a_call_never_looks_like_an_option(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([b"\xfb" * 9, b"\xf8" * 9, b"a" * 9])

    def draw(count: int) -> bytes:
        return next(drawn) if count == 9 else bytes(count)

    monkeypatch.setattr("os.urandom", draw)
    await User(shop(path), era=Era.RETRY).call("inner")
    assert calls_of(path)[0].id == "YWFhYWFhYWFh"


# Every way to end.


async def test_calls_of_every_kind_are_recorded(path: Path) -> None:
    user = User(shop(path), {"confirm": {"ok": True}, "sure": {"ok": True}}, era=Era.RETRY, allow_unused=True)
    await user.get_prompt("letter", title="Dune")
    await user.read_resource("shelf://Dune")
    await user.call("hand")
    await user.call("outer")
    calls = calls_of(path)
    began = [call.began for call in calls if call.began is not None]
    asked = [[(each.asked.by, each.asked.questions[0].key) for each in call.rounds] for call in calls]
    assert list(zip([line.method for line in began], [call.tool for call in calls], asked, strict=True)) == [
        ("prompts/get", "letter", [("resolvers", "confirm")]),
        ("resources/read", "shelf://{title}", [("resolvers", "confirm")]),
        ("tools/call", "hand", [("author", "sure")]),
        ("tools/call", "outer", []),
        ("tools/call", "inner", []),
    ]
    assert {call.state for call in calls} == {State.COMPLETED}
    assert [line.within for line in began] == [None] * 4 + [calls[3].id]
    token = calls[2].rounds[0].asked.token
    assert token is not None
    assert "authored" in token.added


async def test_questions_by_hand_that_the_client_does_not_know_fail_its_call(path: Path) -> None:
    with pytest.raises(MCPError):
        await User(shop(path), era=Era.LIVE).call("hand")
    (call,) = calls_of(path)
    assert (call.state, call.rounds) == (State.FAILED, [])


async def test_cancelled_call_is_reported_as_failed(path: Path) -> None:
    server = Server[Any]("slow", trace=path)
    started = anyio.Event()

    @server.tool()
    async def wait() -> str:
        started.set()
        await anyio.sleep_forever()
        return "never"

    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait")
            await started.wait()
            group.cancel_scope.cancel()
    (traced,) = calls_of(path)
    assert traced.ended is not None
    assert traced.ended.error is not None
    assert (traced.state, traced.ended.error.type) == (State.FAILED, "CancelledError")


async def test_unnamed_question_is_not_recorded_by_a_text_digest(path: Path, era: Era) -> None:
    server = Server[Any]("shop", keys=[KEY], trace=Recorder(path))

    @server.tool()
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("Delete account 1234?", Choice)
        return answer.action

    await User(server, {re.compile("Delete account"): {"ok": True}}, era=era).call("order")
    await User(server, {re.compile("Delete account"): DECLINE}, era=era).call("order")
    assert label_of(digest("Delete account 1234?")) not in str(raw_lines(path))
    first, second = calls_of(path)
    (key,) = {question.key for round_ in first.rounds for question in round_.asked.questions}
    assert [[answer.key for answer in round_.answers] for round_ in first.rounds] == [[key]]
    assert second.rounds[0].asked.questions[0].key == key


# Refused tokens.


@pytest.mark.parametrize(
    ("reason", "whose"),
    [
        (RejectionReason.EXPIRED, "its own"),
        (RejectionReason.UNKNOWN_KEY, None),
        (RejectionReason.TAMPERED, None),
        (RejectionReason.OTHER_TARGET, "its own"),
        (RejectionReason.OTHER_ARGUMENTS, "its own"),
        (RejectionReason.OTHER_AUDIENCE, "its own"),
        (RejectionReason.OTHER_PRINCIPAL, "its own"),
        (RejectionReason.OVERSIZED, None),
        (RejectionReason.MALFORMED, None),
    ],
    ids=lambda value: getattr(value, "name", value),
)
async def test_rejected_token_is_recorded_with_its_authentic_call(
    path: Path, clock: Clock, reason: RejectionReason, whose: str | None
) -> None:
    who = ["ada"]

    def principal(ctx: Any) -> str:
        return who[0]

    options: dict[str, Any] = {"principal": principal, "max_token_bytes": 2000}
    first, second = shop(path, "a", **options), shop(path, "b", **options)
    hopper = LegByLeg([first, second])
    await hopper.leg("order", {"title": "Dune"})
    tool, arguments, token = "order", {"title": "Dune"}, hopper.token
    match reason:
        case RejectionReason.EXPIRED:
            clock.advance(601)
        case RejectionReason.UNKNOWN_KEY:
            other = Server[Any]("shop", keys=[b"o" * 32], trace=Recorder(path, instance="b"))
            other.add_tool(echo, name="order")
            hopper = LegByLeg([other])
        case RejectionReason.TAMPERED:
            token = token[:-22] + "A" * 22
        case RejectionReason.OTHER_TARGET:
            tool = "crash"
        case RejectionReason.OTHER_ARGUMENTS:
            arguments = {"title": "Emma"}
        case RejectionReason.OTHER_AUDIENCE:
            hopper = LegByLeg([shop(path, "b", audience="elsewhere", **options)])
        case RejectionReason.OTHER_PRINCIPAL:
            who[0] = "eve"
        case RejectionReason.OVERSIZED:
            token += "A" * 3000
        case _:
            token = "nonsense"
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        await hopper.leg(tool, arguments, answers={"confirm": {"ok": True}}, state=token)
    lines = lines_of(path)
    (rejected,) = [line for line in lines if isinstance(line, RejectedLine)]
    asked = next(line for line in lines if isinstance(line, AskedLine))
    assert (rejected.reason, rejected.call) == (reason, asked.call if whose else None)
    assert (rejected.tool, rejected.token_bytes) == (tool, len(token))
    assert (rejected.leg, rejected.round) == ((2, 1) if whose else (None, None))
    traced = join(lines)
    assert len(traced.strays) == (0 if whose else 1)


async def test_unknown_name_of_a_rejected_token_is_not_recorded(path: Path) -> None:
    hopper = LegByLeg([shop(path)])
    with pytest.raises(MCPError):
        await hopper.leg("a secret \x1b[31m", {}, answers={}, state="nonsense")
    (rejected,) = lines_of(path)
    assert isinstance(rejected, RejectedLine)
    assert rejected.tool is None


# Servers and their recorders.


async def test_environment_reveals_for_a_path_and_not_for_a_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own, named = tmp_path / "calls.jsonl", tmp_path / "own.jsonl", tmp_path / "named.jsonl"
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(named))
    monkeypatch.setenv("ROUNDTRIP_TRACE_REVEAL", "all")
    for trace in (path, Recorder(own), False):
        server = Server[Any]("revealing", trace=trace)
        server.add_tool(lambda: "x", name="x")
        await User(server, era=Era.RETRY).call("x")
    ends = [call.ended for file in (path, own) for call in calls_of(file)]
    assert [end is not None and isinstance(end.result, Revealed) for end in ends] == [True, False]
    assert not named.exists(), "False switches the environment off"


async def test_raising_tracer_harms_no_other_tracer(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps: list[Transition] = []

    def broken(step: Transition) -> None:
        raise RuntimeError("broken")

    server = Server[Any]("shop", trace=[broken, steps.append, path])
    server.add_tool(lambda: "x", name="x")
    with caplog.at_level(logging.CRITICAL):
        assert (await User(server, era=Era.RETRY).call("x")).text == "x"
    assert len(steps) == 3
    assert calls_of(path)[0].state is State.COMPLETED


def test_invalid_trace_option_is_rejected() -> None:
    def check(trace: Any) -> None:
        with pytest.raises(TypeError, match="a path, a Recorder, another tracer, a function"):
            Server("shop", trace=trace)

    check_each([7, {"a": "dict"}, [7]], check)


async def test_a_file_that_cannot_be_written_ends_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING, logger="roundtrip"):
        call = await User(shop(blocked / "calls.jsonl"), ANSWERS, era=Era.RETRY).call("order", title="Dune")
    assert call.text == "Dune for 7, by noon: 42"
    assert len([record for record in caplog.records if "cannot write the transcript" in record.message]) == 1


async def test_a_folder_gets_a_file_of_each_instance(tmp_path: Path) -> None:
    for instance in ("a", "b/../c"):
        await User(shop(tmp_path, instance), era=Era.RETRY).call("inner")
    assert [file.name for file in files_of([tmp_path])] == ["a.jsonl", "b-..-c.jsonl"]
    assert len(calls_of(tmp_path)) == 2


@pytest.mark.parametrize("text", ["\ud800", "\\\ud800", "\U0001f600\x1b[31m\u2028"], ids=["half", "spelt", "controls"])
async def test_any_client_text_is_recorded_readably(path: Path, text: str) -> None:
    server = Server[Any]("shop", trace=Recorder(path, reveal="all"))
    server.add_tool(ignore, name="order")
    await server.call_tool("order", {"title": text})
    (began, _) = lines_of(path)
    assert isinstance(began, BeganLine)
    assert isinstance(began.arguments, Revealed)
    assert began.arguments.value == {"title": text.replace("\ud800", "\ufffd")}


# What is not told.


REVEALED: dict[str, Callable[[list[dict[str, Any]]], bool]] = {
    "arguments": lambda lines: any("value" in line.get("arguments", {}) for line in lines),
    "answers": lambda lines: any("value" in a.get("data", {}) for line in lines for a in line.get("answers", [])),
    "questions": lambda lines: any("value" in q["message"] for line in lines for q in line.get("questions", [])),
    "results": lambda lines: any("value" in line.get("result", {}) for line in lines),
    "steps": lambda lines: any("value" in s.get("value", {}) for line in lines for s in line.get("steps", [])),
}


@pytest.mark.parametrize("kind", REVEALED)
async def test_reveal_keeps_what_it_names_and_nothing_else(path: Path, kind: Any) -> None:
    await User(shop(path, reveal=[kind]), ANSWERS, era=Era.RETRY).call("order", title="Dune")
    lines = raw_lines(path)
    assert {name for name, shows in REVEALED.items() if shows(lines)} == {kind}


async def test_recorder_changes_no_byte_on_the_wire(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_entropy(count: int) -> bytes:
        return bytes(count)

    monkeypatch.setattr("os.urandom", no_entropy)
    legs: list[Any] = []
    for path in (None, tmp_path / "calls.jsonl"):
        hopper = LegByLeg([shop(path)])
        await hopper.leg("order", {"title": "Dune"})
        final = await hopper.leg("order", {"title": "Dune"}, answers={"confirm": {"ok": True}}, state=hopper.token)
        legs.append([leg.model_dump_json() for leg in [*hopper.rounds, final]])
    assert legs[0] == legs[1]
