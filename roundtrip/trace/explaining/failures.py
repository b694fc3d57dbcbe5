"""Explanations of legs that ended without a result. Each contains the error or limit, its place and its cure."""

from collections.abc import Iterator, Mapping
from typing import Final

from roundtrip import errors
from roundtrip.machine.table import State
from roundtrip.trace.explaining.advice import FAILURES, Advice
from roundtrip.trace.explaining.stored_ends import end_of_stored, explain_action, explain_stop
from roundtrip.trace.explaining.wording import clock_text, duration_text, intent_text, quoted
from roundtrip.trace.reading.calls import Serving, TracedCall
from roundtrip.trace.writing.lines import ActedLine, EndedLine, Revealed, StoppedLine

_UNANSWERED: Final = Advice(
    "the client closed the connection, or answered a question with a protocol error",
    "nothing needs to be fixed on the server if that was intended",
)
_DECLINED: Final = FAILURES["DeclinedByUser"]
_PLACE_TEXTS: Final[Mapping[State | None, str]] = {
    State.RECEIVED: "before anything ran",
    State.RESOLVING: "while it filled its parameters",
    State.AWAITING_INPUT: "while it waited for answers",
    State.RESUMED: "after the answers arrived",
    State.EXECUTING: "in its body",
}
_STATE_TEXTS: Final[Mapping[str, str]] = {
    "failed": "failed",
    "declined": "was declined",
    "rejected": "was rejected",
    "completed": "ended with an error result",
}


def failures_of(call: TracedCall) -> Iterator[tuple[Serving, EndedLine]]:
    """Yield every unsuccessful end. If several equal requests report the same failure, yield it only once."""
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
    """Return the line that ended a call without a result, and its explanation. Return None if no such line exists."""
    outside = end_of_stored(call)
    if outside is not None:
        return outside, explain_action(outside) if isinstance(outside, ActedLine) else explain_stop(call, outside)
    ended = call.ended
    if ended is None or not _lacks_result(ended):
        return None
    serving = next(serving for serving in call.servings if serving.ended is ended)
    return ended, explain_failure(serving, ended)


def explain_failure(serving: Serving, ended: EndedLine) -> str:
    """Explain why a leg ended without a result."""
    where = f" after round {ended.round}" if ended.round else ""
    leg = f"Leg {serving.leg} on {quoted(serving.instance)}"
    if serving.is_recall and (found := intent_text(serving.intent)) is not None:
        return (
            f"{leg} {_STATE_TEXTS[ended.state]}, because it {found}, which had ended so, and nothing ran; a user's "
            "decline counts for declined_for=, and any other end for keep=."
        )
    what = f"{leg} {_STATE_TEXTS[ended.state]}{where}{_place_text(serving, ended)}"
    error = ended.error
    if ended.decline is not None:
        cure = _cure_of_decline(serving)
        return f"{what}, because {_DECLINED.cause} ({quoted(ended.decline)}); {cure}."
    if error is None:
        cause = "its function returned an error" if ended.is_error else "nothing more was recorded"
        return f"{what}, because {cause}; `roundtrip trace show` shows its result."
    advice = _advice_on(error.type)
    if error.type == "MCPError" and _state_before_end(serving) is State.AWAITING_INPUT:
        advice = _UNANSWERED
    text = f": {quoted(error.text.value)}" if isinstance(error.text, Revealed) else ""
    if advice is not None:
        return f"{what}, because {advice.cause} ({error.type}{text}); {advice.cure}."
    hint = "" if text else " (record with reveal=['errors'] to see its text here)"
    return (
        f"{what}, because {error.type}{text} was raised{hint}; its traceback is in the log of instance "
        f"{quoted(serving.instance)} at that time; raise ToolError for errors that callers should see."
    )


def explain_lateness(call: TracedCall, now: float) -> str | None:
    """Explain why a waiting call can no longer continue; return None if the call can continue."""
    if not call.pending:
        return None
    asked = call.rounds[-1].asked
    if asked.until is None or asked.until > now:
        return None
    keys = ", ".join(quoted(question.key) for question in call.pending)
    when = f"{duration_text((now - asked.until) * 1000)} ago, at {clock_text(asked.until)}"
    if call.is_stored:
        cause, options = f"its time expired {when}, while it asked {keys}", "max_age= (for a task, task_ttl=)"
    else:
        cause = f"the token that asked {keys} expired {when}"
        options = "ttl= (for the answers to one leg) or max_age= (for the whole call)"
    return (
        f"Round {asked.round} was never answered, and the call cannot continue, because {cause}; raise {options} if "
        f"people need longer; the client must begin the call again."
    )


def _advice_on(error: str) -> Advice | None:
    """Return the advice for a roundtrip error or its nearest base class; None for any other error."""
    found = getattr(errors, error, None)
    kinds = [kind.__name__ for kind in found.__mro__] if isinstance(found, type) else [error]
    return next((FAILURES[kind] for kind in kinds if kind in FAILURES), None)


def _place_text(serving: Serving, ended: EndedLine) -> str:
    """Say where the leg ended. Name the function, or the state if no function is known."""
    failed = [run.key for run in ended.nodes if run.how == "failed"]
    if failed:
        return f", in the resolver or dependency {quoted(failed[-1])}"
    steps = [run.key for run in ended.steps if run.how == "failed"]
    if steps:
        return f", in its step {quoted(steps[-1])}"
    before = _state_before_end(serving)
    return f", {_PLACE_TEXTS[before]}" if before in _PLACE_TEXTS else ""


def _state_before_end(serving: Serving) -> State | None:
    return serving.arrows[-1][0] if serving.arrows else None


def _cure_of_decline(serving: Serving) -> str:
    """Return the cure for a declined question; it differs for `confirm=`, the body and resolvers."""
    not_given = [read.key for line in serving.happened for read in line.answers if read.action != "accept"]
    if serving.began is not None and not_given[-1:] == [f"confirm:{serving.began.tool}"]:
        return "nothing needs to be fixed: with confirm=, nothing runs unless the user accepts"
    if _state_before_end(serving) is State.EXECUTING:
        return FAILURES["QuestionDeclined"].cure
    return _DECLINED.cure
