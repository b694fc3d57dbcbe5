"""Every error that ends a leg has an explanation with its place and its cure."""

import inspect
from typing import Any

from roundtrip import errors
from roundtrip.trace.explaining.advice import FAILURES
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.explaining.failures import explain_failure, explain_lateness, failures_of
from roundtrip.trace.writing.lines import Line
from tests.kit.tables import check_each
from tests.kit.transcripts import AT, asked, began, call_of, ended

ELSEWHERE = {
    errors.IllegalTransition,  # a mistake of roundtrip's own
    errors.CircularDependencyError,  # raised at registration
    errors.InvalidSignature,
    errors.TicketRejected,  # raised to a page
    errors.TokenRejected,  # told as a rejection
}


def failed(error: str = "ValueError", *, text: str | None = None, **more: Any) -> list[Line]:
    kept = {"value": text} if text is not None else {"digest": "abcdefghijkl", "bytes": 12}
    moves: list[Any] = [
        ["resume", "resumed", 0.1],
        ["resolve", "resolving", 0.2],
        ["execute", "executing", 1],
        ["fail", "failed", 2],
    ]
    fields: dict[str, Any] = {"moves": moves, "error": {"type": error, "text": kept}, **more}
    return [began(), asked(), began(2, leg=2, round=1), ended(leg=2, round=1, state="failed", **fields)]


def told(*lines: Line) -> str:
    (text,) = [explain_failure(*failure) for failure in failures_of(call_of(*lines))]
    return text


def test_every_leg_ending_error_has_a_cause_and_cure() -> None:
    kinds = [kind for name in errors.__all__ if inspect.isclass(kind := getattr(errors, name))]
    leaves = [
        kind
        for kind in kinds
        if issubclass(kind, errors.RoundtripError)
        and kind not in ELSEWHERE
        and not any(other is not kind and issubclass(other, kind) for other in kinds)
    ]
    missing = [kind.__name__ for kind in leaves if not {one.__name__ for one in kind.__mro__} & FAILURES.keys()]
    assert missing == [], "give them advice in roundtrip/trace/explaining/advice.py"
    assert all(advice.cause and advice.cure for advice in FAILURES.values())


def test_failure_names_leg_round_place_exception_and_cure() -> None:
    assert told(*failed(text="no seat left")) == (
        "Leg 2 on 'a' failed after round 1, in its body, because ValueError: 'no seat left' was raised; its traceback "
        "is in the log of instance 'a' at that time; raise ToolError for errors that callers should see."
    )
    assert "ValueError was raised (record with reveal=['errors']" in told(*failed())
    assert "ended with an error result" in told(began(), ended(is_error=True))
    moves: list[Any] = [["resolve", "resolving", 0.1], ["ask", "awaiting_input", 0.2], ["fail", "failed", 2]]
    left = told(*failed("MCPError", text="Connection closed", moves=moves))
    assert "the client closed the connection, or answered a question with a protocol error" in left


def test_repeated_failure_is_explained_once() -> None:
    again = [began(4, leg=2, round=1, serving=9), ended(5, leg=2, round=1, serving=9, state="failed")]
    first = failed()
    again[1] = again[1].model_copy(update={"error": first[-1].error})  # type: ignore[union-attr]
    assert len(list(failures_of(call_of(*first, *again)))) == 1


def test_call_whose_answers_come_too_late_says_what_to_raise() -> None:
    def check(now: float, late: bool) -> None:
        call = call_of(began(), asked(until=AT + 600))
        text = explain_lateness(call, now)
        assert (text is not None) == late
        if text is not None:
            assert "expired 1 min 40 s ago" in text
            assert "raise ttl=" in text
        assert [one.subject for one in explain(call, now=now) if not one.is_plain] == [ExplainedSubject.FAILURE] * late

    check_each([(AT + 700, True), (AT + 500, False)], check)
