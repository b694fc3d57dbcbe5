"""A recorder writes every leg of real calls, on both eras, and no confidential value."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, InputRequiredResult
from pydantic import BaseModel

from roundtrip import Context, Elicit, ElicitUrl, Recorder, Resolve, Server, Transition
from roundtrip.client.legs import ERAS
from roundtrip.errors import RejectionReason
from roundtrip.machine.pins import digest, label_of
from roundtrip.machine.table import State
from roundtrip.testing import DECLINE, Answers, Clock, Era, LegByLeg, User
from roundtrip.trace.reading.calls import join
from roundtrip.trace.reading.transcripts import files_of
from roundtrip.trace.writing.lines import AskedLine, BeganLine, RejectedLine, Revealed
from tests.interaction.protocol.test_authored_states import by_hand
from tests.interaction.trace.transcribed import assert_path_is_in_the_table, calls_of, lines_of, raw_lines
from tests.kit.bookshop import bookshop
from tests.kit.players import connect, roots, sample
from tests.kit.tables import check_each
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio
KEY = b"k" * 32


class Choice(BaseModel):
    ok: bool


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


async def test_failed_step_is_recorded_when_it_fails(tmp_path: Path) -> None:
    server = Server[Any]("shop", trace=tmp_path / "calls.jsonl")

    def stamp() -> str:
        raise LookupError

    @server.tool
    async def post(ctx: Context) -> str:
        with suppress(LookupError):
            await ctx.step("stamp", stamp)
        return await ctx.step("send", lambda: "sent")

    del post
    assert (await User(server, era=Era.RETRY).call("post")).text == "sent"
    (traced,) = calls_of(tmp_path / "calls.jsonl")
    steps = [step for serving in traced.servings for line in serving.happened for step in line.steps]
    assert [(step.key, step.how) for step in steps] == [("stamp", "failed"), ("send", "ran")]


async def test_call_is_recorded_from_first_request_to_result(tmp_path: Path, era: Era) -> None:
    path = tmp_path / "calls.jsonl"
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


async def test_equal_states_are_recorded_on_both_eras(tmp_path: Path) -> None:
    paths: list[list[State]] = []
    for era in ERAS:
        path = tmp_path / f"{era.name}.jsonl"
        await User(shop(path), ANSWERS, era=era).call("order", title="Dune")
        (traced,) = calls_of(path)
        paths.append([state for _, _, state in traced.arrows])
    assert paths[0] == paths[1]


async def test_each_retry_leg_records_token_size_and_used_contents(
    tmp_path: Path,
) -> None:
    path = tmp_path / "calls.jsonl"
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


async def test_the_name_of_a_call_never_looks_like_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([b"\xfb" * 9, b"\xf8" * 9, b"a" * 9])

    def draw(count: int) -> bytes:
        return next(drawn) if count == 9 else bytes(count)

    monkeypatch.setattr("os.urandom", draw)
    path = tmp_path / "calls.jsonl"
    await User(shop(path), era=Era.RETRY).call("inner")
    assert calls_of(path)[0].id == "YWFhYWFhYWFh"


# Every way to end.


async def play(server: Server[Any], era: Era, tool: str, answers: Answers | None) -> None:
    lacks: list[Literal["elicitation"]] = ["elicitation"] if answers is None else []
    with anyio.fail_after(WAIT):
        await User(server, answers, era=era, lacks=lacks, allow_error=True).call(tool, title="Dune")


@pytest.mark.parametrize(
    ("tool", "answers", "state", "error"),
    [
        ("order", {"confirm": DECLINE}, State.DECLINED, None),
        ("order", None, State.REJECTED, "CapabilityMissing"),
        ("order", {"confirm": [{"ok": 1.5}] * 3}, State.FAILED, "AnswerRejected"),
        ("crash", None, State.FAILED, "RuntimeError"),
    ],
    ids=["declined", "without the capability", "invalid too often", "crashed"],
)
async def test_each_way_to_end_is_recorded(
    tmp_path: Path, era: Era, tool: str, answers: Answers | None, state: State, error: str | None
) -> None:
    path = tmp_path / "calls.jsonl"
    await play(shop(path), era, tool, answers)
    (traced,) = calls_of(path)
    assert_path_is_in_the_table(traced)
    assert traced.ended is not None
    assert (traced.state, traced.ended.error.type if traced.ended.error is not None else None) == (state, error)
    if state is State.DECLINED:
        assert traced.ended.decline is not None
        assert "elicitation was decline" in traced.ended.decline


async def test_invalid_answer_is_recorded_with_its_complaint_and_count(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    server = shop(path, reveal="all")
    await User(server, {"confirm": [{"ok": "perhaps"}, {"ok": True}], "note": {"note": "n"}}, era=Era.RETRY).call(
        "order", {"title": "Dune"}
    )
    (traced,) = calls_of(path)
    again = traced.rounds[1].asked.questions[0]
    assert (again.reason.value, again.attempt) == ("invalid", 2)
    assert isinstance(again.complaint, Revealed)
    assert [(a.how, a.data) for a in traced.rounds[0].answers] == [("invalid", Revealed(value={"ok": "perhaps"}))]


async def test_a_call_from_within_a_call_says_which(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await User(shop(path), era=Era.RETRY).call("outer")
    outer, inner = calls_of(path)
    assert (outer.tool, inner.tool) == ("outer", "inner")
    assert inner.began is not None
    assert (inner.began.within, inner.state, outer.state) == (outer.id, State.COMPLETED, State.COMPLETED)


async def test_cancelled_call_is_reported_as_failed(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
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


@pytest.mark.parametrize("kind", ["prompt", "resource"])
async def test_prompts_and_templates_are_reported_like_tools(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "calls.jsonl"
    user = User(shop(path), {"confirm": {"ok": True}}, era=Era.RETRY)
    if kind == "prompt":
        await user.get_prompt("letter", title="Dune")
    else:
        await user.read_resource("shelf://Dune")
    (traced,) = calls_of(path)
    assert traced.began is not None
    assert (traced.began.method, traced.tool) == {
        "prompt": ("prompts/get", "letter"),
        "resource": ("resources/read", "shelf://{title}"),
    }[kind]
    assert (traced.state, len(traced.rounds)) == (State.COMPLETED, 1)


async def test_hand_written_questions_are_reported_too(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await User(shop(path), {"sure": {"ok": True}}, era=Era.RETRY).call("hand")
    (traced,) = calls_of(path)
    asked = traced.rounds[0].asked
    assert (asked.by, [question.key for question in asked.questions]) == ("author", ["sure"])
    assert asked.token is not None
    assert "authored" in asked.token.added
    assert traced.state is State.COMPLETED


async def test_hand_written_question_to_an_incapable_client_fails(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await play(shop(path), Era.LIVE, "hand", {})
    (traced,) = calls_of(path)
    assert_path_is_in_the_table(traced)
    assert traced.state is State.FAILED


async def test_unnamed_question_is_not_recorded_by_a_text_digest(tmp_path: Path, era: Era) -> None:
    path = tmp_path / "calls.jsonl"
    server = Server[Any]("shop", keys=[KEY], trace=Recorder(path))

    @server.tool()
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("Delete account 1234?", Choice)
        return answer.action

    await User(server, {re.compile("Delete account"): {"ok": True}}, era=era).call("order")
    await User(server, {re.compile("Delete account"): DECLINE}, era=era).call("order")
    assert label_of(digest("Delete account 1234?")) not in path.read_text()
    first, second = calls_of(path)
    (key,) = {question.key for round_ in first.rounds for question in round_.asked.questions}
    assert [[answer.key for answer in round_.answers] for round_ in first.rounds] == [[key]]
    assert second.rounds[0].asked.questions[0].key == key


async def test_samples_roots_and_pages_are_named_by_kind(tmp_path: Path, era: Era) -> None:
    path = tmp_path / "calls.jsonl"
    server = bookshop(trace=Recorder(path))

    @server.tool()
    async def visit(ctx: Context) -> str:
        await ctx.ask("page", ElicitUrl("Pay", "https://pay.example/x"))
        return "paid"

    async def anything(context: Any, params: Any) -> Any:
        return ElicitResult(action="accept", content={"confirm": True} if hasattr(params, "requested_schema") else None)

    async with Client(
        server,
        mode=era.value,
        elicitation_callback=anything,
        sampling_callback=sample,
        list_roots_callback=roots,
    ) as client:
        await client.call_tool("present", {"title": "Neuromancer"})
        await client.call_tool("visit", {})
    kinds = {q.kind for traced in calls_of(path) for r in traced.rounds for q in r.asked.questions}
    assert kinds >= {"form", "sample", "roots", "page"}


# Refused tokens.


def _flip(token: str) -> str:
    place = len(token) // 2
    return token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]


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
    tmp_path: Path, clock: Clock, reason: RejectionReason, whose: str | None
) -> None:
    path = tmp_path / "calls.jsonl"
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
            hopper = LegByLeg([shop(path, "b", **options)])
            other = Server[Any]("shop", keys=[b"o" * 32], trace=Recorder(path, instance="b"))
            other.add_tool(echo, name="order")
            hopper = LegByLeg([other])
        case RejectionReason.TAMPERED:
            token = _flip(token)
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


async def test_unknown_name_of_a_rejected_token_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    hopper = LegByLeg([shop(path)])
    with pytest.raises(MCPError):
        await hopper.leg("a secret \x1b[31m", {}, answers={}, state="nonsense")
    (rejected,) = lines_of(path)
    assert isinstance(rejected, RejectedLine)
    assert rejected.tool is None


# Servers and their recorders.


async def test_the_environment_has_an_unchanged_server_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(path))
    monkeypatch.setenv("ROUNDTRIP_TRACE_REVEAL", "results, arguments")
    await User(shop(None), era=Era.RETRY).call("inner")
    (traced,) = calls_of(path)
    assert traced.ended is not None
    assert isinstance(traced.ended.result, Revealed)


async def test_environment_reveals_for_a_path_and_not_for_a_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = tmp_path / "calls.jsonl", tmp_path / "own.jsonl"
    monkeypatch.setenv("ROUNDTRIP_TRACE_REVEAL", "all")
    for trace in (path, Recorder(own)):
        server = Server[Any]("revealing", trace=trace)
        server.add_tool(lambda: "x", name="x")
        await User(server, era=Era.RETRY).call("x")
    ends = [call.ended for file in (path, own) for call in calls_of(file)]
    assert [end is not None and isinstance(end.result, Revealed) for end in ends] == [True, False]


async def test_false_switches_the_environment_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(path))
    server = Server[Any]("quiet", trace=False)
    server.add_tool(lambda: "x", name="x")
    await User(server, era=Era.RETRY).call("x")
    assert not path.exists()


async def test_raising_tracer_harms_no_other_tracer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps: list[Transition] = []

    def broken(step: Transition) -> None:
        raise RuntimeError("broken")

    path = tmp_path / "calls.jsonl"
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


@pytest.mark.parametrize("text", ["\ud800", "\\\ud800", "\U0001f600\x1b[31m\u2028"], ids=ascii)
async def test_any_client_text_is_recorded_readably(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calls.jsonl"
    server = Server[Any]("shop", trace=Recorder(path, reveal="all"))
    server.add_tool(ignore, name="order")
    await server.call_tool("order", {"title": text})
    (began, _) = lines_of(path)
    assert isinstance(began, BeganLine)
    assert isinstance(began.arguments, Revealed)
    assert began.arguments.value == {"title": text.replace("\ud800", "\ufffd")}


# What is not told.


MARKERS = {
    "argument": "MARK-argument",
    "answer": "MARK-answer",
    "step": "MARK-step",
    "result": "MARK-result",
    "message": "MARK-message",
    "state": "MARK-state",
    "error": "MARK-error",
    "url": "MARK-url",
    "once": "MARK-once",
    "principal": "MARK-principal",
}


def marked_server(path: Path) -> Server[Any]:
    server = Server[Any](
        "shop",
        keys=["MARK-key" + "k" * 32],
        trace=Recorder(path, instance="a"),
        principal=lambda ctx: MARKERS["principal"],
    )

    async def ask(title: str) -> Elicit[Note]:
        return Elicit(f"{MARKERS['message']} {title}?", Note)

    async def secret() -> str:
        return MARKERS["once"]

    @server.tool()
    async def order(
        title: str,
        ctx: Context,
        note: Annotated[Note, Resolve(ask)],
        kept: Annotated[str, Resolve(secret, once=True)],
    ) -> str:
        await ctx.step("step", lambda: MARKERS["step"])
        await ctx.ask("second", f"{MARKERS['message']}: {note.note}?", Note)
        return MARKERS["result"]

    @server.tool()
    async def fail(title: str, note: Annotated[Note, Resolve(ask)]) -> str:
        raise RuntimeError(f"{MARKERS['error']} {note.note}")

    @server.tool()
    async def visit(ctx: Context) -> str:
        await ctx.ask("page", ElicitUrl(MARKERS["message"], f"https://x.example/{MARKERS['url']}"))
        return "visited"

    @server.resource("shelf://{title}")
    async def shelf(title: str, note: Annotated[Note, Resolve(ask)]) -> str:
        return MARKERS["result"]

    return server


async def test_transcript_and_log_contain_no_private_values(
    tmp_path: Path, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "calls.jsonl"
    server = marked_server(path)
    title, note = MARKERS["argument"], {"note": MARKERS["answer"]}
    tokens: list[str] = []
    with caplog.at_level(logging.DEBUG, logger="roundtrip"):
        user = User(server, {"ask": note, "second": note}, era=era, allow_unused=True)
        await user.call("order", title=title)
        await user.call("fail", title=title)
        await user.read_resource(f"shelf://{title}")
        await User(server, {"ask": DECLINE}, era=era).call("order", {"title": title})
        wrong = ElicitResult(action="accept", content={"note": 7, "more": MARKERS["answer"]})
        await User(server, {"ask": [wrong] * 3}, era=era).call("order", title=title)
        if era is Era.RETRY:
            hopper = LegByLeg([server])
            await hopper.leg("order", {"title": title})
            tokens.append(hopper.token)
            for changed in (hopper.token[:-9], hopper.token):
                with pytest.raises(MCPError):
                    await hopper.leg("order", {"title": title + "!"}, answers={"ask": note}, state=changed)
    written = path.read_text()
    assert "MARK" not in written
    assert all(token not in written and token[20:60] not in written for token in tokens)
    assert len(calls_of(path)) >= 5
    # The SDK logs what a tool raised, with its traceback; that is not ours to cut.
    ours = [record.getMessage() for record in caplog.records if record.name == "roundtrip"]
    assert not [message for message in ours if "MARK" in message]


REVEALED: dict[str, Callable[[list[dict[str, Any]]], bool]] = {
    "arguments": lambda lines: any("value" in line.get("arguments", {}) for line in lines),
    "answers": lambda lines: any("value" in a.get("data", {}) for line in lines for a in line.get("answers", [])),
    "questions": lambda lines: any("value" in q["message"] for line in lines for q in line.get("questions", [])),
    "results": lambda lines: any("value" in line.get("result", {}) for line in lines),
    "steps": lambda lines: any("value" in s.get("value", {}) for line in lines for s in line.get("steps", [])),
}


@pytest.mark.parametrize("kind", REVEALED)
async def test_reveal_keeps_what_it_names_and_nothing_else(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "calls.jsonl"
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
