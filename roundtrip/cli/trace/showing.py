"""`roundtrip trace show`: one call, round by round."""

import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Final

from roundtrip.cli.trace.calls import find_call
from roundtrip.cli.trace.sources import present, view
from roundtrip.cli.trace.terminal import MARK_STYLES, STATE_STYLES, Part, Screen
from roundtrip.machine.facts import Reason
from roundtrip.machine.table import State
from roundtrip.text import build_text
from roundtrip.trace.explaining.explanations import explain_rejection, explain_replay, explain_takeover
from roundtrip.trace.explaining.stories import outcome_of, story, until
from roundtrip.trace.explaining.wording import (
    action_text,
    approval_text,
    approvals_text,
    channel_text,
    clock_text,
    count_text,
    distance_text,
    duration_text,
    intent_text,
    omitted_text,
    quoted,
    recorded_text,
    size_text,
    stop_text,
    times_text,
    token_text,
    wait_text,
)
from roundtrip.trace.reading.calls import HappenedLine, Mark, Serving, TracedCall
from roundtrip.trace.writing.lines import (
    ActedLine,
    AnsweredLine,
    AskedLine,
    EndedLine,
    HandedLine,
    NodeRun,
    ReadAnswer,
    Recorded,
    RejectedLine,
    Revealed,
    ShownQuestion,
    StepRun,
    StoppedLine,
    TokenWritten,
)

_SLOW_RATIO: Final = 2
"""The slowest run is marked if it took more than this many times as long as all other runs together."""

_MAX_VALUE_CHARS: Final = 1000
"""Maximum number of characters to print per value. With `--json`, values are printed in full."""

_DIM: Final = "dim"
_HEAD: Final = "bold"
_BAD: Final = "bold red"
_WARN: Final = "yellow"


def show(call: TracedCall, screen: Screen, *, now: float) -> None:
    """Show one call: its head, each round, and either its end or its open questions."""
    _CallView(call, screen, now).draw()


class _CallView:
    def __init__(self, call: TracedCall, screen: Screen, now: float) -> None:
        self._call = call
        self._screen = screen
        self._now = now
        self._first = {id(serving): first for serving, first in call.replays}
        self._takeovers = {id(serving): before for serving, before in call.takeovers}
        self._rounds = {id(round_.asked): round_ for round_ in call.rounds}

    def draw(self) -> None:
        self._head()
        for serving in self._call.servings:
            self._serving(serving)
        for line in self._call.rejections:
            self._rejection(line)
        self._outside([*self._call.actions, *self._call.stops])
        self._waiting()
        self._screen.flush()

    def _head(self) -> None:
        call, began = self._call, self._call.began
        state = call.state.value
        self._screen.line((call.id, _HEAD), "  ", (call.tool, _HEAD), "  ", (state, STATE_STYLES.get(state, "")))
        counts = (call.legs, "leg"), (len(call.instances), "instance"), (call.round_count, "round")
        parts = [f"began {clock_text(call.started_at)}", *(count_text(number, unit) for number, unit in counts)]
        self._fact("", " · ".join(parts))
        self._fact("", f"server {duration_text(call.server_ms)}{self._waited_text()} · {self._body_text()}")
        if call.omitted.requests:
            self._fact("", omitted_text(call))
        if began is None:
            self._fact("", "its first line is missing: it was rotated away, or is in a file that was not named")
            return
        protocol = f", protocol {began.protocol}" if began.protocol is not None else ""
        life = "task" if any(serving.is_handed for serving in call.servings) else f"{began.era} era"
        self._fact("", f"{began.method} · {life}{protocol} · build {build_text(began.build)}")
        within = f"call {began.within}" if began.within is not None else None
        arguments = _value(began.arguments) if began.arguments is not None else None
        facts = {"version": began.version, "principal": began.principal, "within": within, "arguments": arguments}
        for name, text in facts.items():
            if text is not None:
                self._fact(name, text)

    def _waited_text(self) -> str:
        call = self._call
        if not call.rounds:
            return ""
        ms, last = call.waited_ms, call.rounds[-1]
        if call.state is State.AWAITING_INPUT and last.waited_ms is None:
            ms += max(0.0, self._now - last.asked.at) * 1000
            return f", waiting {duration_text(ms)} so far"
        return f", waiting {duration_text(ms)}" if last.waited_ms is not None or ms else ""

    def _body_text(self) -> str:
        times = self._call.bodies
        if times:
            silent = self._call.silent_servings
            more = f", and {count_text(silent, 'worker')} that fell silent may have begun it" if silent else ""
            return f"the body ran {times_text(times)}{more}"
        # A killed process may have begun the body without recording its end.
        return "no end of the body is recorded" if self._call.may_have_run else "the body has not run"

    def _serving(self, serving: Serving) -> None:
        """Show one leg on one instance. Each round is one part, and the remaining lines are the last part."""
        done_ms = 0.0
        parts = _parts_of(serving.happened)
        for index, lines in enumerate(parts):
            waited = sum(line.waited for line in lines if isinstance(line, AnsweredLine))
            server_ms = max(0.0, lines[-1].ms - done_ms - waited)
            done_ms = lines[-1].ms
            self._heading(serving, lines[-1], server_ms, is_first=not index)
            for line in lines:
                self._line(line)
        if not parts:
            self._heading(serving, None, 0.0, is_first=True)
            why = "it is still running, or its instance ended"
            if any(before is serving for before in self._takeovers.values()):
                why = "its worker fell silent, and another took over"
            self._screen.line((f"nothing more is recorded: {why}", _WARN), indent=2)

    def _heading(self, serving: Serving, last: HappenedLine | None, server_ms: float, *, is_first: bool) -> None:
        began = serving.began
        leg = f"leg {serving.leg} on {serving.instance}"
        rounds = last.round if last is not None else began.round if began is not None else 0
        if rounds:
            title = f"{'' if isinstance(last, AskedLine) else 'after '}round {rounds}"
            details = f" · {leg}"
        else:
            title, details = leg, ""
        details += f" · server {duration_text(server_ms)}"
        if is_first:
            details += f" · {clock_text(serving.started_at)}"
            if began is not None and began.token_bytes is not None:
                details += f" · with a token of {size_text(began.token_bytes)}"
            if began is not None and began.previous_build is not None:
                details += f" · build {build_text(began.build)}, after {build_text(began.previous_build)}"
        self._screen.gap()
        self._screen.line((title, _HEAD), (details, _DIM))
        first = self._first.get(id(serving))
        if is_first and first is not None:
            self._screen.line(("replay: ", _WARN), explain_replay(self._call, serving, first), indent=2)
        if is_first and (found := intent_text(serving.intent)) is not None:
            self._screen.line((found, _WARN), indent=2)
        if is_first and id(serving) in self._takeovers:
            text = explain_takeover(serving, self._takeovers[id(serving)])
            self._screen.line(("takeover: ", _WARN), text, indent=2)

    def _line(self, line: HappenedLine) -> None:
        if isinstance(line, AnsweredLine):
            keys = ", ".join(map(quoted, line.keys))
            event = f"{keys} answered after" if keys else "the body stopped waiting for the answer after"
            self._screen.line((f"{event} {duration_text(line.waited)}", _DIM), indent=2)
        self._answers(line.answers, line.ignored)
        for decision in line.decisions:
            name, outcome = (decision.key, _HEAD), (decision.outcome, "" if decision.outcome == "approved" else _WARN)
            self._screen.line("approval ", name, ": ", outcome, f" {_value(decision.data)}", indent=2)
        self._runs(line.nodes, line.steps, line.bodies, uncovered=line.uncovered)
        if isinstance(line, AskedLine):
            self._asked(line)
        for key in line.reused:
            self._mark(Mark.REUSED, key, Mark.REUSED.value)
        if isinstance(line, AskedLine) and line.token is not None:
            self._token(line.token)
        if isinstance(line, EndedLine):
            self._end(line)
        if isinstance(line, HandedLine):
            self._screen.line(("the call became a task, and its client got the handle", _DIM), indent=2)

    def _asked(self, asked: AskedLine) -> None:
        round_ = self._rounds[id(asked)]
        waited = round_.waited_ms
        outcome = "answered" if round_.answered_at is not None else "given up"
        outcome = f"{outcome} after {duration_text(waited)}" if waited is not None else "not answered"
        by = {"resolvers": "resolvers", "body": "the body", "author": "its author, by hand"}[asked.by]
        if (asked.waits or asked.approvals) and not asked.questions:
            awaited = [approvals_text(asked.approvals)] if asked.approvals else []
            awaited += [wait_text(asked.waits)] if asked.waits else []
            event, outcome = f"waited {' or '.join(awaited)}", outcome.replace("answered", "continued", 1)
            if outcome == "not continued":
                outcome = "but the call ended first" if self._call.is_over else "and is still waiting"
        elif not asked.questions and (began := round_.serving.began) is not None and began.era == "task":
            event = "waited for a request from its client" + (" or its next try" if asked.by == "body" else "")
            outcome = outcome.replace("answered", "continued", 1)
        elif asked.questions or asked.by != "resolvers":
            event = f"asked by {by}{channel_text(asked)}"
        else:
            event = "a round without questions, because the tool runs exactly once"
        self._screen.line((f"{event}, {outcome}", _DIM), indent=2)
        pending = {question.key for question in self._call.pending} if round_ is self._call.rounds[-1] else set[str]()
        for approval in asked.approvals:
            self._screen.line((f"{approval.key} ", _HEAD), ("message ", _DIM), _value(approval.message), indent=4)
        for question in asked.questions:
            is_again = self._call.is_asked_again(round_, question)
            self._question(question, is_pending=question.key in pending, is_again=is_again)

    def _question(self, question: ShownQuestion, *, is_pending: bool, is_again: bool) -> None:
        mark = Mark.PENDING if is_pending else Mark.ASKED_AGAIN if is_again else Mark.ASKED
        status = f"{Mark.PENDING}, {Mark.ASKED_AGAIN}" if is_pending and is_again else mark.value
        if question.reason is not Reason.NEW:
            status += f": {question.reason.value}"
            status += f" ({' and '.join(question.changed)})" if question.changed else ""
            status += f", was {quoted(question.former)}" if question.former is not None else ""
            status += f", attempt {question.attempt}" if question.attempt > 1 else ""
        kind = "" if question.kind == "form" else f" ({question.kind})"
        self._mark(mark, question.key, status + kind)
        for name in ("message", "url", "complaint"):
            recorded = getattr(question, name)
            if recorded is not None:
                self._screen.line((f"{name} ", _DIM), _value(recorded), indent=8)

    def _mark(self, mark: Mark, key: str, status: str) -> None:
        style = MARK_STYLES[mark]
        self._screen.line((f"{self._screen.symbol(mark)} ", style), (key, _HEAD), "  ", (status, style), indent=4)

    def _answers(self, answers: Sequence[ReadAnswer], ignored: int) -> None:
        for answer in answers:
            outcome = outcome_of(answer)
            style = "" if outcome == "accepted" else _WARN
            data = f" {_value(answer.data)}" if answer.data is not None else ""
            lost = ", because the question was reworded" if answer.how == "lost" else ""
            self._screen.line("answer to ", (answer.key, _HEAD), ": ", (outcome + lost, style), data, indent=2)
        if ignored:
            self._screen.line(
                (f"{count_text(ignored, 'answer')} to questions that were not asked, ignored", _WARN), indent=2
            )

    def _runs(self, nodes: Sequence[NodeRun], steps: Sequence[StepRun], bodies: int, *, uncovered: bool) -> None:
        slowest_run = _slowest([*nodes, *steps])
        for kind, runs in (("node", nodes), ("step", steps)):
            for run in runs:
                value = f" {_value(run.value)}" if isinstance(run, StepRun) and run.value is not None else ""
                note: Part = ("  slowest", _WARN) if run is slowest_run else ""
                style = _BAD if run.how == "failed" else _DIM
                time_text = f"  {run.how} in {duration_text(run.ms)}"
                self._screen.line((f"{kind} ", _DIM), run.key, (time_text, style), value, note, indent=2)
        if bodies:
            self._screen.line((f"the body began{f' {times_text(bodies)}' if bodies > 1 else ''}", _DIM), indent=2)
        if uncovered:
            self._screen.line(("exactly_once does not cover it: the call had no token", _DIM), indent=2)

    def _token(self, token: TokenWritten) -> None:
        parts = [f"+ {part}" for part in token.added]
        parts += [f"- {part}" for part in token.dropped]
        parts += [f"~ {part}" for part in token.changed]
        changes = f": {', '.join(parts)}" if parts else ", nothing in it changed"
        self._screen.line((f"{token_text(token.bytes)}{changes}", _DIM), indent=4)

    def _end(self, line: EndedLine) -> None:
        style = STATE_STYLES.get(line.state, "")
        error = " with an error" if line.is_error else ""
        self._screen.line((f"{line.state}{error}", style), indent=2)
        if line.decline is not None:
            self._screen.line(("declined ", _DIM), line.decline, indent=4)
        if line.error is not None:
            self._screen.line((f"{line.error.type} ", _BAD), _text_of(line.error.text), indent=4)
        if line.result is not None:
            self._screen.line(("result ", _DIM), _value(line.result), indent=4)

    def _rejection(self, line: RejectedLine) -> None:
        self._screen.gap()
        self._screen.line(
            (f"token rejected: {line.reason.value}", _BAD),
            f" on {line.instance}",
            (f" · {clock_text(line.at)}", _DIM),
        )
        self._screen.line(explain_rejection(line, self._call), indent=2)

    def _outside(self, lines: Sequence[ActedLine | StoppedLine]) -> None:
        if lines:
            self._screen.gap()
        for line in sorted(lines, key=lambda line: line.at):
            text = action_text(line) if isinstance(line, ActedLine) else stop_text(line)
            self._screen.line((f"{clock_text(line.at)[11:]} ", _DIM), (text, _WARN))

    def _waiting(self) -> None:
        call = self._call
        if not call.pending and not call.awaited:
            return
        self._screen.gap()
        waiting = call.rounds[-1]
        awaited = [approval_text(approval, quoted) for approval in call.awaited]
        names = [*(quoted(question.key) for question in call.pending), *awaited]
        far = duration_text(max(0.0, self._now - waiting.asked.at) * 1000)
        parts: list[Part] = [("waiting for ", _HEAD), f"{', '.join(names)}, {far} so far"]
        if (deadline := until(call)) is not None:
            verb, style = ("is", "") if deadline > self._now else ("was", _BAD)
            when = f"{clock_text(deadline)}, {distance_text(deadline - self._now)}"
            parts.append((f"; the deadline {verb} {when}", style))
        self._screen.line(*parts)

    def _fact(self, name: str, text: str) -> None:
        self._screen.line((f"{name} " if name else "", _DIM), text, indent=2)


def _parts_of(lines: Iterable[HappenedLine]) -> list[list[HappenedLine]]:
    """Split a leg's lines after each round."""
    parts: list[list[HappenedLine]] = [[]]
    for line in lines:
        parts[-1].append(line)
        if isinstance(line, AskedLine):
            parts.append([])
    return [part for part in parts if part]


def _slowest(runs: Sequence[NodeRun | StepRun]) -> NodeRun | StepRun | None:
    """Return the run that took most of the time; None if no run stands out."""
    if len(runs) < _SLOW_RATIO:
        return None
    slow = max(runs, key=lambda run: run.ms)
    return slow if slow.ms > _SLOW_RATIO * (sum(run.ms for run in runs) - slow.ms) and slow.ms >= 1 else None


def _value(recorded: Recorded) -> str:
    return recorded_text(recorded, longest=_MAX_VALUE_CHARS)


def _text_of(recorded: Recorded) -> str:
    return str(recorded.value) if isinstance(recorded, Revealed) else _value(recorded)


def _run(arguments: Namespace) -> int:
    call = find_call(arguments)
    present(arguments, lambda: story(call), lambda screen: show(call, screen, now=time.time()))
    return 0


COMMANDS: Final = {
    "show": view(
        "Show one call: each leg with its instance, runs and times; each round with its questions (asked, asked again, "
        "reused, pending), answers and token changes; and the call's end, or the answers that it waits for.",
        _run,
        call=True,
        json=True,
    )
}
