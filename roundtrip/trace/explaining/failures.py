"""Explain why a leg ended without its result: the error or limit, its place, and the cure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from roundtrip import errors
from roundtrip.machine.table import State
from roundtrip.trace.explaining.stored_ends import end_of_stored, explain_outside
from roundtrip.trace.explaining.wording import clock_text, duration_text, quoted
from roundtrip.trace.reading.calls import Serving, TracedCall
from roundtrip.trace.writing.lines import ActedLine, EndedLine, Revealed, StoppedLine

__all__ = ["FAILURES", "Advice", "explain_end", "explain_failure", "explain_lateness", "failures_of"]


class Advice(NamedTuple):
    """Cause of an event, and the cure."""

    cause: str
    cure: str


_ASK_LIVE: Final = (
    "serve clients of 2025-11-25 with sessions (`roundtrip serve` with one worker, or stateless_http=False and "
    "json_response=False), or have the client speak 2026-07-28"
)

FAILURES: Final[Mapping[str, Advice]] = MappingProxyType(
    {
        "AnswerRejected": Advice(
            "a question got as many invalid answers as attempts= allows",
            "describe the expected answer in the message, or in the descriptions of the fields, or raise attempts=",
        ),
        "QuestionVolatile": Advice(
            "a question has other words each time it is asked, so that no answer to it counts",
            "fix the varying value with Resolve(fn, once=True) or ctx.step(), or keep it out of the question",
        ),
        "QuestionDeclined": Advice(
            "the user declined or cancelled a question whose answer it needs",
            "nothing needs to be fixed; to go on without the answer, use ctx.ask_outcome",
        ),
        "ApprovalRejected": Advice(
            "the people who decide rejected it",
            "nothing needs to be fixed; to go on without the approval, await ctx.approve in the body and catch "
            "ApprovalRejected there; in a resolver or confirm=, a rejection ends the call",
        ),
        "ApprovalExpired": Advice(
            "the people who decide did not do so in time",
            "give them longer with within=, remind them with remind=, or go on with otherwise=",
        ),
        "CallerUnknown": Advice(
            "it needs an approval, and the server does not know its caller, who must not decide",
            "authenticate clients by their users",
        ),
        "KeyUsedTwice": Advice(
            "two questions or steps of its body have one name",
            "give each a name of its own; in a loop, number them",
        ),
        "QuestionsUnkeyed": Advice(
            "two questions without names were open at the same time",
            "name them with key=, or ask them with one ctx.ask_all",
        ),
        "AskedTooLate": Advice(
            "something asked after the leg had ended, from an asyncio task or thread that it did not wait for",
            "ask in a task group, or ask all questions with one ctx.ask_all",
        ),
        "NeedsTask": Advice(
            "its body waited in a way that only a task can, and its client cannot have tasks",
            'declare the tool with task="required", or do not wait',
        ),
        "AskNotAwaited": Advice(
            "its body made a question or a step and never awaited it",
            "write `await ctx.ask(...)`, and ctx.blocking.ask(...) in a plain def",
        ),
        "SuspensionSwallowed": Advice(
            "its body caught the exception that ends a leg with questions",
            "catch Exception, not BaseException, around questions",
        ),
        "CallOutlived": Advice(
            "the call reached its max_age while it still waited for an answer",
            "raise max_age= if people need longer; the client must begin the call again",
        ),
        "ToolTimedOut": Advice(
            "its own work took longer than its timeout=",
            "make that work faster, or raise timeout=; the times of resolvers and steps are in `roundtrip trace show`",
        ),
        "ThreadsExhausted": Advice(
            "every thread for plain functions still runs a function whose call has timed out",
            "limit the waits of those functions, or write them as async def",
        ),
        "OutcomeUnknown": Advice(
            "the body began before, and the process that ran it never recorded its end",
            "check its effects before it is called again, or set on_unknown='rerun' if it may run twice",
        ),
        "CallHasEnded": Advice(
            "the call had ended before, with other answers",
            "a client must begin a new call to give other answers",
        ),
        "StillRunning": Advice(
            "another request was running its body at that time",
            "a client must send the same request again later",
        ),
        "LedgerUnavailable": Advice(
            "the ledger could not report whether its body has run",
            "check the ledger and the server's log of that time; the same request may be sent again",
        ),
        "CapabilityMissing": Advice(
            "the client did not declare that it can be asked this",
            "use a client that can, or set otherwise= for those that cannot",
        ),
        "ChannelMissing": Advice(
            "its client is asked over the open connection, and this connection carries no questions", _ASK_LIVE
        ),
        "ConnectionLost": Advice(
            "the client left, or the server was stopped, while a question was open",
            "nothing needs to be fixed if that was intended; calls of clients on 2026-07-28 outlive a connection",
        ),
        "UrlRequired": Advice(
            "its client has to send the user to a page first, and then call again",
            "nothing needs to be fixed; with sessions such clients are asked within the call",
        ),
        "TokenTooLarge": Advice(
            "the call remembers more than a token may hold",
            "keep large values on the server, and let the call remember a reference to them",
        ),
        "ValueNotStorable": Advice(
            "a value for the token has no JSON form",
            "annotate it with a type that has a JSON form, or do not store it with once=True, ctx.step or done=",
        ),
        "NotSendable": Advice(
            "a result cannot carry the value that it returned",
            "return a value that fits its annotation and output schema, and has a JSON form",
        ),
        "SchemaNotRenderable": Advice(
            "a form has a field that the protocol cannot show",
            "ask for flat fields: text, numbers, booleans, dates and choices",
        ),
        "DependencyEndedCall": Advice(
            "a cancel scope that a dependency entered, such as a timeout, cancelled the call",
            "give the dependency more time, or have it raise an error that names the cause",
        ),
        "DeclinedByUser": Advice(
            "the user declined or cancelled a question that it needs an answer to",
            "nothing needs to be fixed; to go on without the answer, take ElicitationResult[T]",
        ),
        "ToolError": Advice(
            "its code raised ToolError, and the client received the text",
            "nothing needs to be fixed if the caller should see it",
        ),
        "CancelledError": Advice(
            "it was cancelled: the client cancelled the request or left, or the server was stopped",
            "nothing needs to be fixed if that was intended",
        ),
    }
)
"""The advice for each of roundtrip's errors that ends a leg, by its name."""

_UNANSWERED: Final = Advice(
    "the client closed the connection, or answered a question with a protocol error",
    "nothing needs to be fixed on the server if the client meant to",
)
_DECLINED: Final = FAILURES["DeclinedByUser"]
_PLACES: Final[Mapping[State | None, str]] = MappingProxyType(
    {
        State.RECEIVED: "before anything ran",
        State.RESOLVING: "while it filled its parameters",
        State.AWAITING_INPUT: "while it waited for answers",
        State.RESUMED: "when the answers had come",
        State.EXECUTING: "in its body",
    }
)
_SHOWN_STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "failed": "failed",
        "declined": "was declined",
        "rejected": "was rejected",
        "completed": "ended with an error result",
    }
)


def failures_of(call: TracedCall) -> Iterator[tuple[Serving, EndedLine]]:
    """Yield every unsuccessful end of a leg; a failure that is reported again to a repeated request counts once."""
    seen: set[tuple[object, ...]] = set()
    for serving in call.servings:
        for line in serving.happened:
            if isinstance(line, EndedLine) and _lacks_result(line):
                error = line.error.model_dump_json() if line.error is not None else None
                name = (serving.leg, line.state, error, line.decline)
                if name not in seen:
                    seen.add(name)
                    yield serving, line


def _lacks_result(line: EndedLine) -> bool:
    return line.state != "completed" or line.is_error


def explain_end(call: TracedCall) -> tuple[ActedLine | StoppedLine | EndedLine, str] | None:
    """Return the line that ended a call without its result, and its explanation; None if there is none."""
    outside = end_of_stored(call)
    if outside is not None:
        return outside, explain_outside(call, outside)
    ended = call.ended
    if ended is None or not _lacks_result(ended):
        return None
    serving = next(serving for serving in call.servings if serving.ended is ended)
    return ended, explain_failure(serving, ended)


def explain_failure(serving: Serving, ended: EndedLine) -> str:
    """Explain why a leg ended without its result."""
    where = f" after round {ended.round}" if ended.round else ""
    what = (
        f"Leg {serving.leg} on {quoted(serving.instance)} {_SHOWN_STATES[ended.state]}{where}{_place(serving, ended)}"
    )
    error = ended.error
    if ended.decline is not None:
        cure = _cure_of_decline(serving)
        return f"{what}, because {_DECLINED.cause} ({quoted(ended.decline)}); {cure}."
    if error is None:
        cause = "its function returned an error" if ended.is_error else "nothing more was recorded"
        return f"{what}, because {cause}; its result is in `roundtrip trace show`."
    advice = _advice_on(error.type)
    if error.type == "MCPError" and _state_before_end(serving) is State.AWAITING_INPUT:
        advice = _UNANSWERED
    text = f": {quoted(error.text.value)}" if isinstance(error.text, Revealed) else ""
    if advice is not None:
        return f"{what}, because {advice.cause} ({error.type}{text}); {advice.cure}."
    hint = "" if text else " (record with reveal=['errors'] to have its text here)"
    return (
        f"{what}, because {error.type}{text} was raised{hint}; its traceback is in the log of instance "
        f"{quoted(serving.instance)} at that time; raise ToolError for errors that callers should see."
    )


def explain_lateness(call: TracedCall, now: float) -> str | None:
    """Explain why a waiting call can no longer go on; None if it can."""
    if not call.pending:
        return None
    asked = call.rounds[-1].asked
    if asked.until is None or asked.until > now:
        return None
    keys = ", ".join(quoted(question.key) for question in call.pending)
    late = duration_text((now - asked.until) * 1000)
    if call.is_stored:
        return (
            f"Round {call.rounds[-1].number} was never answered, and the call cannot go on, because its time was over "
            f"{late} ago, at {clock_text(asked.until)}, while it asked {keys}; raise max_age= (of a task, task_ttl=) "
            "if people need longer, and the client must begin the call again."
        )
    return (
        f"Round {call.rounds[-1].number} was never answered, and the call cannot go on, because the token that asked "
        f"{keys} expired {late} ago, at {clock_text(asked.until)}; raise ttl= (for the answers to one leg) or max_age= "
        "(for the whole call) if people need longer, and the client must begin the call again."
    )


def _advice_on(error: str) -> Advice | None:
    """Return the advice on one of roundtrip's errors, or on its nearest base class."""
    found = getattr(errors, error, None)
    kinds = [kind.__name__ for kind in found.__mro__] if isinstance(found, type) else [error]
    return next((FAILURES[kind] for kind in kinds if kind in FAILURES), None)


def _place(serving: Serving, ended: EndedLine) -> str:
    """Return the place in a leg where it ended; a function, if that is recorded."""
    failed = [run.key for run in ended.nodes if run.how == "failed"]
    if failed:
        return f", in the resolver or dependency {quoted(failed[-1])}"
    steps = [run.key for run in ended.steps if run.how == "failed"]
    if steps:
        return f", in its step {quoted(steps[-1])}"
    before = _state_before_end(serving)
    return f", {_PLACES[before]}" if before in _PLACES else ""


def _state_before_end(serving: Serving) -> State | None:
    return serving.arrows[-1][0] if serving.arrows else None


def _cure_of_decline(serving: Serving) -> str:
    """Return the cure for a declined question, which depends on the part that asked."""
    not_given = [read.key for line in serving.happened for read in line.answers if read.action != "accept"]
    if serving.began is not None and not_given[-1:] == [f"confirm:{serving.began.tool}"]:
        return "nothing needs to be fixed: with confirm=, nothing runs unless the user accepts"
    if _state_before_end(serving) is State.EXECUTING:
        return FAILURES["QuestionDeclined"].cure
    return _DECLINED.cure
