"""Fork reports, as text for people and as JSON data for programs. A report shows the fork next to the recorded call."""

import json
from collections.abc import Iterator
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import JsonValue

from roundtrip.checking.forking import Fork, ForkedRound
from roundtrip.checking.recorded import NotReplayable, RecordedCall, RecordedRound, revealed
from roundtrip.checking.rehearsal import End
from roundtrip.checking.reports import question_data, quoted, words
from roundtrip.machine.journal import Action
from roundtrip.text import printable


def fork_text(fork: Fork) -> str:
    """Return a report as text. It shows the fork and the recorded call from the round at which the fork starts."""
    call = fork.recorded
    lines = [f"Call {printable(call.id)} of {printable(call.name)}, forked at round {fork.at}."]
    if fork.differs:
        lines.append(f"The call does not reach that round as recorded: {printable(fork.differs)}.")
    recorded = {round_.number: round_ for round_ in call.rounds}
    for round_ in fork.rounds:
        # A fork that is still waiting has not used the answers to its last round.
        is_open = fork.end is End.ASKS and round_ is fork.rounds[-1]
        lines += ["", f"round {round_.number}", *_round_lines(round_, recorded.get(round_.number), is_open=is_open)]
    if fork.unused:
        lines += ["", f"not asked: {', '.join(repr(printable(name)) for name in fork.unused)}"]
    return "\n".join([*lines, "", f"recorded: {_recorded_end(call)}", f"fork:     {_fork_end(fork)}"])


def fork_data(fork: Fork) -> dict[str, Any]:
    """Return a fork as JSON data."""
    recorded = {round_.number: round_ for round_ in fork.recorded.rounds}
    rounds = [
        {
            "round": round_.number,
            "questions": [question_data(question) for question in round_.questions],
            "answers": {key: _reply_data(round_, key) for key in round_.replies},
            "own": sorted(round_.own),
            "complaints": round_.complaints,
            "recorded": _recorded_data(recorded.get(round_.number)),
        }
        for round_ in fork.rounds
    ]
    result = fork.result.model_dump(mode="json", by_alias=True, exclude_none=True) if fork.result is not None else None
    return {
        "call": fork.recorded.id,
        "tool": fork.recorded.name,
        "at": fork.at,
        "differs": fork.differs or None,
        "not_asked": fork.unused,
        "rounds": rounds,
        "recorded": {"end": _recorded_end(fork.recorded)},
        "fork": {
            "end": fork.end.value,
            "step": fork.step or None,
            "reason": fork.reason or None,
            "result": result if fork.end in (End.COMPLETED, End.FAILED, End.DECLINED) else None,
        },
    }


def _recorded_data(round_: RecordedRound | None) -> dict[str, Any]:
    if round_ is None:
        return {}
    answers = {
        key: _answer_data(answer.action.word if answer.action is not None else "malformed", answer.data)
        for key, answer in round_.answers.items()
    }
    return answers | {key: _answer_data(each.outcome, each.reason) for key, each in round_.decisions.items()}


def _round_lines(round_: ForkedRound, recorded: RecordedRound | None, *, is_open: bool) -> Iterator[str]:
    before = _recorded_data(recorded)
    for question in round_.questions:
        yield f"  {printable(question.key)!r} {quoted(words(question))}"
        if question.key in before:
            yield f"    recorded: {_shown(before[question.key])}"
        if question.key in round_.complaints:
            yield f"    fork:     asked again: {printable(round_.complaints[question.key])}"
        is_own = question.key in round_.own
        if question.key not in round_.replies:
            yield "    fork:     open"
        elif is_open and not is_own:
            yield "    fork:     open (the recorded answer still fits)"
        else:
            yield f"    fork:     {_shown(_reply_data(round_, question.key))}{'' if is_own else ' (as recorded)'}"


def _recorded_end(call: RecordedCall) -> str:
    ended = call.ended
    if ended is None and call.is_stopped:
        return "it ended while it waited" if call.rounds else "it ended outside a leg"
    if ended is None:
        return "it waits" if call.rounds else "unknown"
    try:
        error = revealed(ended.error.text) if ended.error is not None else None
        result = revealed(ended.result)
    except NotReplayable:
        return f"{ended.state}, but its result is not revealed"
    if ended.state != "completed":
        reason = ended.decline or error
        return f"{ended.state}: {printable(str(reason))}" if reason else str(ended.state)
    content: JsonValue = result.get("content") if isinstance(result, dict) else None
    blocks = content if isinstance(content, list) else []
    texts = [str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block]
    return f"completed: {printable(' '.join(texts), keep_newlines=False)}"


def _fork_end(fork: Fork) -> str:
    match fork.end:
        case End.ASKS:
            return "it waits for answers to the last round; give them with --answer"
        case End.STEP:
            return f"it would now run the step {printable(fork.step)!r}, which has no result yet; use --run to run it"
        case End.BODY:
            return "it would now run the body; use --run to run it"
        case End.COMPLETED:
            result = fork.result
            blocks = result.content if isinstance(result, CallToolResult) else []
            return f"completed: {printable(' '.join(b.text for b in blocks if isinstance(b, TextContent)))}"
        case _:
            return f"{fork.end.value}: {printable(fork.reason)}"


def _reply_data(round_: ForkedRound, key: str) -> dict[str, Any]:
    reply = round_.replies[key]
    if any(question.key == key and question.kind == "approval" for question in round_.questions):
        if reply.decision is not None:
            return _answer_data(reply.decision.outcome, reply.decision.reason)
        return _answer_data("approved" if reply.action is Action.ACCEPT else "rejected", reply.data)
    return _answer_data(reply.action.word, reply.data)


def _answer_data(action: str, data: JsonValue) -> dict[str, Any]:
    return {"action": action} | ({"data": data} if data is not None else {})


def _shown(data: dict[str, Any]) -> str:
    if data["action"] in ("approved", "rejected") and data.get("data"):
        return f"{data['action']}: {printable(str(data['data']))}"
    if "data" in data and data["action"] == Action.ACCEPT.word:
        return printable(json.dumps(data["data"], ensure_ascii=False))
    return str(data["action"])
