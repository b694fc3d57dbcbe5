"""`roundtrip trace explain` and `diff`: explain a call's questions and failures, and compare two calls."""

import dataclasses
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.cli.trace.calls import open_calls, select_call
from roundtrip.cli.trace.sources import present, view
from roundtrip.cli.trace.terminal import STATE_STYLES, Screen
from roundtrip.trace.explaining.comparing import Difference, compare
from roundtrip.trace.explaining.explanations import ExplainedSubject, Explanation, explain
from roundtrip.trace.explaining.stories import summary
from roundtrip.trace.explaining.wording import clock_text, count_text, duration_text
from roundtrip.trace.reading.calls import TracedCall

_STYLES: Final = {
    ExplainedSubject.WAIT: "cyan",
    ExplainedSubject.REJECTION: "bold red",
    ExplainedSubject.FAILURE: "bold red",
}
"""Terminal styles for explanations, by subject. The default is yellow."""


_USUAL: Final = (ExplainedSubject.WAIT, ExplainedSubject.INTENT)


def _explain_options(parser: OptionsAnywhere) -> None:
    parser.add_switch("--all", "include questions that were asked for the first time")


def _explain(arguments: Namespace) -> int:
    calls = open_calls(arguments)
    call = select_call(calls, arguments.call)
    explanations = explain(call, now=time.time())
    shown = [explanation for explanation in explanations if arguments.all or not explanation.is_plain]

    def draw(screen: Screen) -> None:
        for explanation in shown:
            reason, subject = explanation.reason, explanation.subject
            title = reason.value if reason is not None else explanation.error or subject.value
            style = "cyan" if explanation.is_plain else _STYLES.get(subject, "yellow")
            screen.line((clock_text(explanation.at), "dim"), "  ", (title, style))
            screen.line(explanation.text, indent=4)
        if not shown:
            what = "no question was asked twice, no token was rejected, and no leg failed"
            screen.line(f"Nothing to explain in call {call.id}: {what}.")
            if strays := calls.stray_count():
                screen.line(f"Rejected tokens without a known call, perhaps its own: {strays} (trace ls --rejections)")

    present(arguments, lambda: [_explanation_data(explanation) for explanation in shown], draw)
    usual = [explanation.is_plain or explanation.subject in _USUAL for explanation in explanations]
    return 0 if all(usual) else 1


def _explanation_data(explanation: Explanation) -> dict[str, Any]:
    fields = dataclasses.asdict(explanation)
    del fields["is_plain"]
    return fields


def _diff_options(parser: OptionsAnywhere) -> None:
    parser.add_argument("a", metavar="A", help="a call, or FILE:ID")
    parser.add_argument("b", metavar="B", help="another call, or FILE:ID")


def _diff(arguments: Namespace) -> int:
    calls = {name: _find(getattr(arguments, name), arguments) for name in ("a", "b")}
    differences = compare(calls["a"], calls["b"])

    def draw(screen: Screen) -> None:
        for name, call in calls.items():
            _draw_head(screen, name, call)
        current_title = ""
        for difference in differences:
            title = f"round {difference.round}" if difference.round is not None else "the call"
            if title != current_title:
                screen.gap()
                screen.line((title, "bold"))
                current_title = title
            _draw_difference(screen, difference)
        if not differences:
            screen.gap()
            screen.line("No differences, except in times.")

    summaries = {name: summary(call) for name, call in calls.items()}
    present(arguments, lambda: {**summaries, "differences": [*map(dataclasses.asdict, differences)]}, draw)
    return 1 if differences else 0


def _find(name: str, arguments: Namespace) -> TracedCall:
    """Return a call by its name. The name is `FILE:ID`, or the id of a call in the command line's transcripts."""
    file, colon, id = name.rpartition(":")
    if colon and Path(file).exists():
        return select_call(open_calls(arguments, [file]), id)
    return select_call(open_calls(arguments), name)


def _draw_head(screen: Screen, name: str, call: TracedCall) -> None:
    state = call.state.value
    times = f"server {duration_text(call.server_ms)}"
    times += f", waiting {duration_text(call.waited_ms)}" if call.rounds else ""
    screen.line(
        (f"{name}  ", "bold"),
        f"{call.id}  {call.tool}  ",
        (state, STATE_STYLES.get(state, "")),
        (f"  {count_text(call.round_count, 'round')}, {count_text(call.legs, 'leg')}, {times}", "dim"),
    )


def _draw_difference(screen: Screen, difference: Difference) -> None:
    subject = difference.what if difference.key is None else f"{difference.key}: {difference.what}"
    if difference.a is None or difference.b is None:
        only, text = ("a", difference.a) if difference.b is None else ("b", difference.b)
        screen.line((subject, "yellow"), f" only in {only}: {text}", indent=2)
        return
    screen.line((subject, "yellow"), indent=2)
    screen.line(("a  ", "bold"), difference.a, indent=4)
    screen.line(("b  ", "bold"), difference.b, indent=4)


COMMANDS: Final = {
    "explain": view(
        "Explain what went wrong in a call, one sentence per event, with the subject, the reason and the fix. Events "
        "are repeated questions, rejected tokens, legs that failed, were served twice or were taken over from a silent "
        "worker, answers that came too late, and operator actions. "
        "The exit code is 0 if there are no such events, and 1 otherwise.",
        _explain,
        call=True,
        options=_explain_options,
        json=True,
    ),
    "diff": view(
        "Compare two calls, from one transcript or two (FILE:ID), by round and question. Report questions that only "
        "one call asked, and differences in wording, order, answers and states. Times are ignored. "
        "The exit code is 0 if the calls are the same, 1 if they differ.",
        _diff,
        options=_diff_options,
        json=True,
    ),
}
