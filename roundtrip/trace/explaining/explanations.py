"""Explanations of a call's questions, rejected tokens, repeated requests and failures, each with its cure.

The general texts are in `advice.py`. `explain` adds names and texts from the call's transcript.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from roundtrip.errors import CallHasEnded, RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import UNNAMED
from roundtrip.machine.table import State
from roundtrip.text import build_text
from roundtrip.trace.explaining.advice import QUESTIONS, REJECTIONS, Advice
from roundtrip.trace.explaining.failures import explain_failure, explain_lateness, failures_of
from roundtrip.trace.explaining.stored_ends import end_of_stored, explain_action, explain_stop
from roundtrip.trace.explaining.wording import (
    approvals_text,
    channel_text,
    count_text,
    duration_text,
    intent_text,
    omitted_text,
    quoted,
    size_text,
    wait_text,
)
from roundtrip.trace.reading.calls import Round, Serving, TracedCall
from roundtrip.trace.writing.lines import ActedLine, Line, Recorded, RejectedLine, Revealed, ShownQuestion, StoppedLine
from roundtrip.untrusted import mapping_of


class ExplainedSubject(StrEnum):
    """Kind of event to explain."""

    QUESTION = "question"
    REJECTION = "rejection"
    REPLAY = "replay"
    TAKEOVER = "takeover"
    FAILURE = "failure"
    WAIT = "wait"
    ACTION = "action"
    INTENT = "intent"
    """Another request had begun or continued the call. Nothing needs to be fixed."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of one event in a call."""

    subject: ExplainedSubject
    at: float
    instance: str
    leg: int | None
    round: int | None
    key: str | None
    """The question's name; None if the event does not concern a single question."""
    reason: Reason | RejectionReason | None
    text: str
    error: str | None = None
    """Name of the exception that ended a leg."""
    is_plain: bool = False
    """True for the expected case: a question is asked for the first time."""


def explain(call: TracedCall, *, now: float | None = None) -> list[Explanation]:
    """Explain a call's events in chronological order, including questions that are asked for the first time.

    Args:
        call: The call.
        now: The current time. If None, the expiry of a waiting call's token is not reported.
    """
    parts = (_questions, _waits, _unfinished_leg, _rejections, _repeats, _intents)
    found = [explanation for explain_part in parts for explanation in explain_part(call)]
    found += [*_failures(call, now), *_actions(call), *_omitted(call)]
    return sorted(found, key=lambda explanation: explanation.at)


def _waits(call: TracedCall) -> Iterator[Explanation]:
    """Explain what a task waits for."""
    if call.state is not State.AWAITING_INPUT or not call.rounds:
        return
    asked = call.rounds[-1].asked
    if asked.approvals and call.rounds[-1].answered_at is None:
        text = f"The call waits {approvals_text(asked.approvals)}, and no worker holds it; the group has an inbox."
        yield _about(asked, ExplainedSubject.WAIT, text)
    if asked.waits and call.rounds[-1].answered_at is None:
        text = f"The task waits {wait_text(asked.waits)}, and no worker holds it; server.signal(...) sends a signal."
        yield _about(asked, ExplainedSubject.WAIT, text)


def _unfinished_leg(call: TracedCall) -> Iterator[Explanation]:
    """Report that the last leg's end is not recorded: the leg is still running, or its process died."""
    last = call.servings[-1] if call.servings else None
    if last is None or last.is_over or last.is_open or call.is_over:
        return
    where, cure = f"Leg {last.leg} on {quoted(last.instance)}", "check its effects before you repeat it"
    if last.is_of_worker:
        cure = "when its lease ends, another worker may continue it; if its body must run only once, the task is lost"
    text = f"{where} has no recorded end: it is still running, or its process died and its body may have run; {cure}."
    yield _about_serving(last, ExplainedSubject.WAIT, text)


def explain_question(call: TracedCall, round_: Round, question: ShownQuestion) -> str:
    """Explain why a question was asked in a round."""
    advice = _advice_on(call, round_, question)
    is_again = call.is_asked_again(round_, question)
    asked = f"Question {quoted(question.key)} was {'asked again' if is_again else 'asked'}{channel_text(round_.asked)}"
    asked += f" in round {round_.number}"
    if question.reason is Reason.NEW and not is_again:
        return f"{asked}, because {advice.cause}."
    return f"{asked}, because {advice.cause}; {advice.cure}."


def explain_rejection(line: RejectedLine, call: TracedCall | None = None) -> str:
    """Explain why a token was rejected. If the call is given, the explanation is more precise."""
    advice = REJECTIONS[line.reason]
    cause = advice.cause
    if line.reason is RejectionReason.EXPIRED and call is not None:
        late = _late_ms(line, call)
        cause = f"it had expired {duration_text(late)} before" if late is not None else cause
    elif line.reason is RejectionReason.OVERSIZED and line.token_bytes is not None:
        cause = f"it has {size_text(line.token_bytes)}, which is larger than a token may be"
    elif line.reason is RejectionReason.OTHER_TARGET and call is not None and call.began is not None:
        same = ", under another address" if call.tool == line.tool else ""
        cause = f"it belongs to a call of {quoted(call.tool)}{same}"
    elif line.reason is RejectionReason.OTHER_METHOD and call is not None and call.began is not None:
        cause = f"it belongs to a request with the method {quoted(call.began.method)}"
    where = f" in leg {line.leg}" if line.leg is not None else ""
    whose = f" for {quoted(line.tool)}" if line.tool is not None else ""
    what = f"the token of a {quoted(line.method)}{whose}{where}"
    return f"Instance {quoted(line.instance)} rejected {what}, because {cause}; {advice.cure}."


def explain_replay(call: TracedCall, serving: Serving, first: Serving) -> str:
    """Explain why a leg was served more than once."""
    later = _time_between(first, serving)
    if serving.is_of_worker:
        cause = f"a worker began it again {later} after {quoted(first.instance)} began it"
        cause += ": the previous worker gave it up or stopped responding, or an operator retried it"
    elif first.is_over:
        cause = f"its request arrived again {later} after {quoted(first.instance)} received it"
        if first.brought and serving.brought and _answer_values(serving) != _answer_values(first):
            cause += ", and with other answers"
        elif first.brought and not serving.brought and not serving.is_recall and serving.has_asked:
            cause += ", but without its answers"
    else:
        cause = f"its request arrived again {later} after {quoted(first.instance)} received it and did not respond"
        cause += ", perhaps because that instance crashed or was stopped" if not first.happened else ""
    return f"Leg {serving.leg} was served again, by {quoted(serving.instance)}, because {cause}; {_effect_of(serving)}."


def explain_takeover(serving: Serving, before: Serving | None) -> str:
    """Explain why a worker took over a leg. `before` is the previous worker's attempt; None if it is not recorded."""
    silent = "the previous worker"
    when = ""
    if before is not None:
        silent, when = quoted(before.instance), f" {_time_between(before, serving)} after that one began it"
    return (
        f"Leg {serving.leg} was taken over from {silent} by {quoted(serving.instance)}{when}, because the previous "
        f"worker died or stopped renewing its lease; the body began again after its stored steps, so everything after "
        f"these steps must be safe to do twice."
    )


def _time_between(earlier: Serving, later: Serving) -> str:
    return duration_text(max(0.0, later.started_at - earlier.started_at) * 1000)


def _effect_of(serving: Serving) -> str:
    """Return the effect of serving this leg again."""
    if serving.is_recall:
        return "the ledger returned the recorded result, and its body did not run again"
    if serving.ended is not None and serving.ended.error_type == CallHasEnded.__name__:
        return "the call had ended with other answers, so it was rejected, and its body did not run again"
    if serving.is_over and not serving.bodies:
        return "its body did not run again"
    return "a client may retry, so everything a body does must be safe to do twice"


def _answer_values(serving: Serving) -> dict[str, object]:
    return {answer.key: (answer.action, answer.data) for answer in serving.brought}


def _actions(call: TracedCall) -> Iterator[Explanation]:
    for line in call.actions:
        key = line.why if line.action == "answer" and line.outcome == "done" else None
        is_plain = line.outcome == "rejected" or line.action == "remind"
        yield replace(_about(line, ExplainedSubject.ACTION, explain_action(line)), key=key, is_plain=is_plain)


def _questions(call: TracedCall) -> Iterator[Explanation]:
    for round_ in call.rounds:
        for question in round_.asked.questions:
            is_plain = question.reason is Reason.NEW and not call.is_asked_again(round_, question)
            text = explain_question(call, round_, question)
            is_of_intent = _cause_of_intent(call, round_, question) is not None
            subject = ExplainedSubject.INTENT if is_of_intent else ExplainedSubject.QUESTION
            explanation = _about(round_.asked, subject, text, question.reason)
            yield replace(explanation, key=question.key, is_plain=is_plain)


def _rejections(call: TracedCall) -> Iterator[Explanation]:
    for line in call.rejections:
        yield _about(line, ExplainedSubject.REJECTION, explain_rejection(line, call), line.reason)


def _repeats(call: TracedCall) -> Iterator[Explanation]:
    for serving, first in call.replays:
        yield _about_serving(serving, ExplainedSubject.REPLAY, explain_replay(call, serving, first))
    for serving, before in call.takeovers:
        yield _about_serving(serving, ExplainedSubject.TAKEOVER, explain_takeover(serving, before))


def _intents(call: TracedCall) -> Iterator[Explanation]:
    """Explain requests that found their call by its intent, and not by their own token."""
    for serving in call.servings:
        if (found := intent_text(serving.intent)) is None:
            continue
        text = f"The request that {quoted(serving.instance)} served as leg {serving.leg} {found}, "
        text += (
            "because both have the same intent (once_per=), and nothing ran" if serving.is_recall else _join_of(serving)
        )
        yield _about_serving(serving, ExplainedSubject.INTENT, f"{text}; nothing needs to be fixed.")


def _join_of(serving: Serving) -> str:
    if serving.intent is not None and serving.intent.token_leg is not None:
        return "so its answers count only where no other answer had come first"
    return "because both have the same intent (once_per=); it is asked what is open, and no step runs again"


def _omitted(call: TracedCall) -> Iterator[Explanation]:
    if call.omitted.requests:
        last = call.servings[-1].lines[-1] if call.servings else call.rejections[-1]
        text = f"{omitted_text(call)}."
        explanation = _about(last, ExplainedSubject.REPLAY, text)
        is_plain = not call.omitted.replays and not call.omitted.rejections
        yield replace(explanation, at=call.last_at, leg=None, round=None, is_plain=is_plain)


def _failures(call: TracedCall, now: float | None) -> Iterator[Explanation]:
    outside = end_of_stored(call)
    for serving, ended in failures_of(call):
        if outside is not None and ended.state == State.FAILED.value and serving is call.servings[-1]:
            # This worker was stopped. The explanation of the call's end says why.
            continue
        explanation = _about(ended, ExplainedSubject.FAILURE, explain_failure(serving, ended))
        yield replace(explanation, round=ended.round or None, error=ended.error_type)
    if isinstance(outside, StoppedLine) and outside.how != "joined":
        explanation = _about(outside, ExplainedSubject.FAILURE, explain_stop(call, outside))
        yield replace(explanation, error=outside.how)
    text = explain_lateness(call, now) if now is not None else None
    if text is not None:
        asked = call.rounds[-1].asked
        yield replace(_about(asked, ExplainedSubject.FAILURE, text), at=asked.until or asked.at)


def _about(
    line: Line, subject: ExplainedSubject, text: str, reason: Reason | RejectionReason | None = None
) -> Explanation:
    leg, round_ = (None, None) if isinstance(line, ActedLine | StoppedLine) else (line.leg, line.round)
    return Explanation(subject, line.at, line.instance, leg, round_, None, reason, text)


def _about_serving(serving: Serving, subject: ExplainedSubject, text: str) -> Explanation:
    return replace(_about(serving.lines[0], subject, text), at=serving.started_at, round=None)


def _late_ms(line: RejectedLine, call: TracedCall) -> float | None:
    """Return the time between a token's expiry and its rejection; None if the transcript does not show an expiry."""
    ends = [round_.asked.until for round_ in call.rounds if round_.asked.until is not None]
    if line.leg is not None:
        of_leg = [round_.asked.until for round_ in call.rounds if round_.asked.leg == line.leg - 1]
        ends = [until for until in of_leg if until is not None] or ends
    return max(0.0, line.at - ends[-1]) * 1000 if ends and ends[-1] <= line.at else None


def _advice_on(call: TracedCall, round_: Round, question: ShownQuestion) -> Advice:
    """Return the advice for a question, with names and texts from the transcript."""
    before = call.shown_before(round_, question)
    cause, cure = QUESTIONS[question.reason]
    if (cause_of_intent := _cause_of_intent(call, round_, question)) is not None:
        return Advice(cause_of_intent, QUESTIONS[Reason.NEW].cure)
    match question.reason:
        case Reason.NEW if before is not None and (revision := _revision_between(call, before[0], round_)) is not None:
            return Advice(_cause_of_revision(revision), QUESTIONS[Reason.REVISED].cure)
        case Reason.NEW if before is not None:
            cause = f"it was asked in round {before[0].number}, and the call continued without an answer to it"
            cure = "no fix is needed if the body gave it up; otherwise, ask it on each leg until it is answered"
        case Reason.REWORDED | Reason.SCHEMA_CHANGED | Reason.KEY_GONE | Reason.VOLATILE if before is not None:
            return _advice_on_change(round_, question, *before)
        case Reason.REWORDED:
            cause = "its message changed after it was shown"
        case Reason.SCHEMA_CHANGED:
            message = ", and its message" if "message" in question.changed else ""
            cause = f"its form changed after it was shown{message}"
        case Reason.RENAMED if question.former is not None:
            return _advice_on_renaming(round_, question, quoted(question.former))
        case Reason.INVALID:
            complaint = question.complaint
            error = f" ({quoted(complaint.value)})" if isinstance(complaint, Revealed) else ""
            cause += f"{error}; this is attempt {question.attempt}"
        case Reason.MISSING if round_.asked.ignored:
            cause += f", but with {count_text(round_.asked.ignored, 'answer')} to questions that were not asked"
        case Reason.OTHER_BUILD:
            now, earlier = _builds(call, round_)
            if now is not None and earlier is not None:
                cause = (
                    f"an earlier leg was served by build {earlier}, and this leg by build {now}, which asks something "
                    "else"
                )
        case Reason.REVISED:
            cause = _cause_of_revision(round_)
        case _:
            pass
    return Advice(cause, cure)


def _cause_of_intent(call: TracedCall, round_: Round, question: ShownQuestion) -> str | None:
    """Return why a question is asked again that another request with the same intent was also asked."""
    found, leg = round_.serving.intent, round_.serving.leg
    if found is None or question.reason not in (Reason.NEW, Reason.MISSING):
        return None
    before = call.shown_before(round_, question)
    if before is None or (before[0].serving.leg == leg - 1 and not round_.serving.joins):
        return None
    answered = [one for one in call.rounds if one.read_by is not None and one.read_by.leg < leg]
    if found.has_begun_again and any(read.key == question.key for one in answered for read in one.answers):
        return "the client began the call again, and a client that does so gives its earlier answers again in order"
    if round_.serving.joins:
        return f"its request {intent_text(found)}, where the question was open"
    return "the client began the call again while the question was open" if found.has_begun_again else None


def _revision_between(call: TracedCall, before: Round, round_: Round) -> Round | None:
    """Return the last round between `before` and `round_` whose questions were asked again because the user changed an
    answer in a review.

    After a review, the token no longer contains the answers that the review made stale. So in the retry era, only the
    first round after the review has the reason `revised`. Later rounds have the reason `new`.
    """
    between = call.rounds[call.rounds.index(before) + 1 : call.rounds.index(round_)]
    revised = (
        other for other in reversed(between) if any(each.reason is Reason.REVISED for each in other.asked.questions)
    )
    return next(revised, None)


def _cause_of_revision(round_: Round) -> str:
    """Return why a question was revised. The text names the changed answers if the transcript contains them."""
    changed = round_.asked.token.changed if round_.asked.token is not None else ()
    names = [part.removeprefix("answer:") for part in changed if part.startswith("answer:")]
    if not names:
        return QUESTIONS[Reason.REVISED].cause
    return f"the user changed their answer to {', '.join(map(quoted, names))}, and it may depend on that"


def _advice_on_change(round_: Round, question: ShownQuestion, before: Round, former: ShownQuestion) -> Advice:
    """Return the advice for a question that was asked before with a different wording."""
    reason = question.reason
    texts = _change_of(former.message, question.message)
    fields = _field_changes(former.form, question.form)
    if reason is Reason.VOLATILE:
        change = f" (it was {texts[0]}, and is now {texts[1]})" if texts else ""
        return Advice(QUESTIONS[reason].cause + change, QUESTIONS[reason].cure)
    if reason is Reason.KEY_GONE:
        # For 2 of 256 changes, the token does not show what changed, but the transcript may show it.
        if not texts and not fields:
            return QUESTIONS[reason]
        reason = Reason.REWORDED if texts else Reason.SCHEMA_CHANGED
    builds = _between_builds(round_, before)
    change = f" from {texts[0]} to {texts[1]}" if texts else ""
    if reason is Reason.REWORDED:
        cause = f"its message changed{change or ' after it was shown'}{builds}"
    else:
        message = f", and its message{change}" if "message" in question.changed else ""
        cause = f"its form changed{f' ({fields})' if fields else ' after it was shown'}{builds}{message}"
    # If the same build asked both questions, advice about deploys does not help.
    return Advice(cause, QUESTIONS[reason if builds else Reason.VOLATILE].cure)


def _advice_on_renaming(round_: Round, question: ShownQuestion, former: str) -> Advice:
    """Return the advice for a question whose answer is stored under a former name."""
    if round_.asked.by == "resolvers":
        cause = f"its answer is known as {former}, a name that no question has now"
        return Advice(cause, f"name it where it is resolved, as in Resolve(fn, former_names=({former},))")
    # The body may still use the former name in a later question.
    cause = f"an answer to the same question is known as {former}, a name that the body had not used before"
    if question.key.startswith(UNNAMED):
        return Advice(cause, f"restore its name, as in name={former}")
    cure = f"name it where it is asked, as in ctx.ask({quoted(question.key)}, ..., former_names=({former},))"
    return Advice(cause, f"{cure}, unless the body still uses that name")


def _builds(call: TracedCall, round_: Round) -> tuple[str | None, str | None]:
    """Return the build that asked a round's questions, and the previous leg's build if it differs."""
    began = round_.serving.began
    if began is None:
        return None, None
    if began.previous_build is not None:
        return build_text(began.build), build_text(began.previous_build)
    earlier = [other.began.build for other in call.servings if other.began is not None and other.leg < began.leg]
    others = [build for build in earlier if build != began.build]
    return build_text(began.build), build_text(others[-1]) if others else None


def _between_builds(now: Round, before: Round) -> str:
    """Return a phrase that names the builds that asked the questions in two rounds; empty if it was the same build."""
    began, earlier = now.serving.began, before.serving.began
    if began is None or earlier is None or began.build == earlier.build:
        return ""
    return f" between build {build_text(earlier.build)} and build {build_text(began.build)}"


def _change_of(before: Recorded | None, now: Recorded | None) -> tuple[str, str] | None:
    """Return two recorded texts if both were revealed and they differ."""
    if isinstance(before, Revealed) and isinstance(now, Revealed) and before.value != now.value:
        return quoted(before.value), quoted(now.value)
    return None


def _field_changes(before: Recorded | None, now: Recorded | None) -> str | None:
    """Return a form's field changes if both forms were revealed."""
    if not (isinstance(before, Revealed) and isinstance(now, Revealed)):
        return None
    old, new = _fields_of(before.value), _fields_of(now.value)
    changes = [f"{quoted(name)} is new" for name in new if name not in old]
    changes += [f"{quoted(name)} is gone" for name in old if name not in new]
    changes += [f"{quoted(name)} changed" for name in new if name in old and old[name] != new[name]]
    return ", ".join(changes) or None


def _fields_of(schema: object) -> Mapping[str, Any]:
    return mapping_of(mapping_of(schema).get("properties"))
