"""Recorded calls as pytest source: a scripted user repeats a call, and expects the same questions and result."""

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, cast

from pydantic import JsonValue

from roundtrip.checking.literals import UsedName, assignment, invocation, is_short, literal
from roundtrip.checking.recorded import (
    Answer,
    NotReplayable,
    RecordedCall,
    RoundEnding,
    SeenQuestion,
    recorded_call,
    revealed,
)
from roundtrip.machine.journal import Action
from roundtrip.questions.wire import TICKET, TICKET_SHOWN, complaint_for_model, with_complaint
from roundtrip.trace.reading.calls import TracedCall

Era = Literal["retry", "live", "task"]

_SHOWN_ERRORS: Final = frozenset({"ToolError", "ResourceError", "MCPError"})
"""Errors whose text always reaches the client. The text of any other exception may be masked."""
_INDENT: Final = "    "
_PAGES: Final = "# The user agrees to visit pages, but does nothing there. If done= waits, pass visits= to User."
_CALLER: Final = '# Fill in the caller, as Server(principal=...) returns it.\nCALLER = "caller"'
_LOGIN: Final = "# Fill in the login{} for approval pages: the headers that Pages(authenticate=...) reads."
_BACKEND: Final = '''\
@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"'''


class ServerName:
    """Reference to a server, as `MODULE:SERVER`. The module is an import path.

    Raises:
        ValueError: A test cannot import the server from this text.
    """

    def __init__(self, text: str) -> None:
        self.module, _, self.attribute = text.rpartition(":")
        parts = [*self.module.split("."), self.attribute]
        importable = all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
        if not importable or self.module.endswith(".py"):
            raise ValueError(
                f"a test's server must be an import path, MODULE:SERVER, got {text!r}; for example shop.app:server"
            )

    @property
    def source(self) -> str:
        """Return the statement that imports the server as `server`."""
        name = self.attribute if self.attribute == "server" else f"{self.attribute} as server"
        line = f"from {self.module} import {name}"
        return line if is_short(line) else f"from {self.module} import (\n    {name},\n)"


def write_test_of(
    call: TracedCall, calls: Iterable[TracedCall], server: ServerName, *, both: bool = False, with_result: bool = True
) -> str:
    """Write the source of a test that repeats a call from a transcript.

    Args:
        call: The call.
        calls: All calls in the transcript.
        server: The server to import.
        both: True to repeat the call in both eras; False to repeat it only in the recorded era.
        with_result: True to expect the recorded result.

    Raises:
        NotReplayable: A scripted user cannot repeat the call.
    """
    within = [one for one in calls if one.began is not None and one.began.within == call.id]
    recorded = recorded_call(call, whole=True)
    eras: tuple[Era, ...] = ("task",) if recorded.is_task else ("retry", "live") if both else (recorded.era,)
    if "live" in eras and any(one.rounds for one in within):
        raise NotReplayable("the call ran a function that asked over the open connection; a test cannot repeat that")
    return write_test(recorded, server, eras=eras, with_result=with_result)


def write_test(call: RecordedCall, server: ServerName, *, eras: tuple[Era, ...], with_result: bool) -> str:
    """Write the source of a test that repeats one call.

    Args:
        call: The call, read with `whole=True`.
        server: The server to import.
        eras: The eras in which the test runs.
        with_result: True to expect the recorded result.

    Raises:
        NotReplayable: A scripted user cannot repeat the call.
    """
    if call.is_task and any(not round_.questions and round_.by == "body" for round_ in call.client_rounds):
        raise NotReplayable("its task slept or waited for a signal, which a test cannot repeat")
    if call.ending is RoundEnding.WAITS and not call.is_task:
        # In the live era, the second question is sent only after the user has answered the first.
        eras = ("retry",)
    _require_playable(call, eras)
    answers = list(_answers(call, eras))
    constants, statements = _call_source(call)
    if call.client_rounds:
        constants.append(assignment("ASKED: list[dict[str, Any]]", list(_asked(call, eras))))
        constants.append(assignment("ANSWERS: list[dict[str, Any]]", answers))
    ending, expected = _ending(call, with_result=with_result)
    constants += ending
    approvers = _approvers(call)
    constants += approvers or ([_CALLER] if call.has_intent else [])
    names = {"Approver"} if approvers else set[str]()
    names |= {str(value) for round_ in answers for value in round_.values() if isinstance(value, UsedName)}
    names |= {"User", "LegRequest"} if call.version else {"User"}
    head = [
        '"""A recorded call, to be repeated. Written by `roundtrip trace to-test`."""',
        *(["from typing import Any"] if any("Any" in constant.partition("=")[0] for constant in constants) else []),
        f"import pytest\nfrom roundtrip.testing import {', '.join(sorted(names))}",
        server.source,
        "\n".join([f"# The call {literal(call.id)}, as it was recorded.", *constants]),
    ]
    asked = f"assert call.shown == {'ASKED' if call.client_rounds else '[]'}"
    if approvers:
        statements.append(f'{_INDENT}assert sorted(one["message"] for one in call.approvals) == APPROVALS')
    test = _test(call, eras, [*statements, _INDENT + asked, _INDENT + expected])
    return "\n\n\n".join(["\n\n".join(head), _BACKEND, test]) + "\n"


def _require_playable(call: RecordedCall, eras: tuple[Era, ...]) -> None:
    if call.method != "tools/call":
        raise NotReplayable("so far, a test can repeat only tool calls")
    if call.ending is RoundEnding.UNKNOWN and (call.ended is None or call.ended.state != "rejected"):
        raise NotReplayable("a test cannot reproduce how the call ended")
    if any(round_.by == "author" for round_ in call.client_rounds):
        raise NotReplayable("its function builds its questions by hand, so the answers are not recorded")
    if call.rounds and call.rounds[-1].approvals and call.ending is RoundEnding.WAITS:
        state = "it ended before its approval was decided" if call.is_stopped else "it waits for an approval"
        raise NotReplayable(f"{state}; choose a call that ran to its end")
    approved = [place for place, round_ in enumerate(call.rounds) if round_.approvals]
    if approved and not call.is_task and any(round_.questions for round_ in call.rounds[approved[0] :]):
        raise NotReplayable("a page asked a question after an approval, and transcripts do not record such pages")
    answers = [answer for round_ in call.client_rounds for answer in round_.answers.values()]
    if any(answer.action is None for answer in answers):
        raise NotReplayable(
            "a scripted user cannot send one of the answers: it was malformed, or belonged to another kind of question"
        )
    if any(answer.how == "lost" for answer in answers):
        raise NotReplayable("an answer was lost between two builds, so one build cannot replay the call")
    if "live" in eras and any(not round_.answers for round_ in call.client_rounds):
        raise NotReplayable("its client left before it answered; choose a call that ran to its end")
    if len(eras) > 1 and call.has_intent:
        raise NotReplayable("its tool has once_per=, so the second era would get the first era's result; omit --both")
    if len(eras) > 1:
        for round_ in call.client_rounds:
            refused = any(answer.action is not Action.ACCEPT for answer in round_.answers.values())
            if round_.answers.keys() != round_.questions.keys() or (refused and len(round_.questions) > 1):
                raise NotReplayable(f"round {round_.number} differs in the other era; omit --both")


def _ending(call: RecordedCall, *, with_result: bool) -> tuple[list[str], str]:
    """Return the constants and the assertion for the call's end."""
    ended = call.ended
    if ended is None:
        return [], "assert call.left"
    if ended.state != "completed":
        reason: JsonValue = ended.decline
        if reason is None and ended.error is not None and ended.error.type in _SHOWN_ERRORS:
            reason = revealed(ended.error.text)
        if isinstance(reason, str) and reason:
            return [assignment("REASON", reason)], "assert REASON in call.failure"
        return [], "assert call.failure"
    if not with_result:
        return [], f"assert call.is_error is {ended.is_error}"
    shown = revealed(ended.result)
    if not isinstance(shown, dict):
        raise NotReplayable("its result is not in the transcript; pass --no-result")
    parts = {name: shown[name] for name in ("content", "structuredContent") if name in shown}
    result = {"content": [], **parts, "isError": ended.is_error}
    return [assignment("RETURNED: dict[str, Any]", cast("object", result))], "assert call.returned == RETURNED"


def _asked(call: RecordedCall, eras: Sequence[Era]) -> Iterator[dict[str, Any]]:
    """Return each round's expected questions. In the live era, include only the questions that were answered."""
    for round_ in call.client_rounds:
        yield {
            key: _shown(question)
            for key, question in round_.questions.items()
            if set(eras) != {"live"} or key in round_.answers
        }


def _shown(question: SeenQuestion) -> dict[str, Any]:
    """Return a question's visible content, like `AskedQuestion.shown`."""
    if question.kind == "roots":
        return {}
    if question.kind == "page":
        return {"message": question.message, "url": TICKET.sub(TICKET_SHOWN, question.url or "")}
    if question.kind == "form":
        form = question.form or {}
        filled = question.filled or {}
        fields = cast("dict[str, dict[str, JsonValue]]", form.get("properties", {}))
        return {
            "message": with_complaint(str(question.message), question.complaint),
            "fields": {
                name: {**shape, "default": filled[name]} if name in filled else shape for name, shape in fields.items()
            },
            "required": form.get("required", []),
        }
    params = dict(question.message) if isinstance(question.message, dict) else {}
    if question.complaint is not None:
        text = complaint_for_model(question.complaint)
        messages = cast("list[JsonValue]", params.get("messages") or [])
        params["messages"] = [*messages, {"role": "user", "content": {"type": "text", "text": text}}]
    return params


def _answers(call: RecordedCall, eras: Sequence[Era]) -> Iterator[dict[str, Any]]:
    """Return each round's answers, ordered like its questions."""
    for place, round_ in enumerate(call.client_rounds, 1):
        waits = call.ending is RoundEnding.WAITS and place == len(call.client_rounds)
        yield {
            key: UsedName("LEAVE") if waits else _answer_source(round_.answers.get(key))
            for key in round_.questions
            if set(eras) != {"live"} or key in round_.answers
        }


def _answer_source(answer: Answer | None) -> JsonValue:
    if answer is None:
        return UsedName("IGNORE")
    if answer.question.kind not in ("form", "page"):
        return answer.data
    if answer.action is Action.DECLINE or answer.action is Action.CANCEL:
        return UsedName(answer.action.name)
    return answer.data if isinstance(answer.data, dict) else UsedName("ACCEPT")


def _call_source(call: RecordedCall) -> tuple[list[str], list[str]]:
    """Return the constants and the statements that make the call."""
    user = ["server", *(["ANSWERS"] if call.client_rounds else [])]
    # Do not declare other capabilities, because the server might then ask more questions.
    kinds = {"elicitation": {"form", "page"}, "sampling": {"sample"}}
    missing = [literal(name) for name, asking in kinds.items() if not asking & call.kinds]
    user += [f"missing_capabilities={{{', '.join(missing)}}}"] if missing else []
    user += ["roots=[]"] if "roots" in call.kinds else []
    has_approvals = any(round_.approvals for round_ in call.rounds)
    user += ["principal=CALLER"] if has_approvals or call.has_intent else []
    user += ["approver=APPROVERS"] if has_approvals else []
    # The call may end with a protocol error.
    user += ["allow_error=True"] if call.ended and call.ended.state in ("failed", "rejected") else []
    user_source = f"User({', '.join(user)})"
    call_arguments = [literal(call.name), *(["ARGUMENTS"] if call.arguments else [])]
    meta = [] if call.version is None else [f"meta={literal({'roundtrip/version': call.version})}"]
    constants = [assignment("ARGUMENTS: dict[str, Any]", dict(call.arguments))] if call.arguments else []
    for needed, arguments in (([], [call_arguments[0], literal(dict(call.arguments))]), (constants, call_arguments)):
        leg = ", ".join([*arguments[: len(call_arguments)], *meta])
        line = f"{_INDENT}call = await {user_source}.{f'begin(LegRequest({leg}))' if meta else f'call({leg})'}"
        if is_short(line):
            return needed, [line]
    if meta:
        leg = invocation("leg = LegRequest", [*call_arguments, *meta], indent=_INDENT)
        return constants, [leg, f"{_INDENT}call = await {user_source}.begin(leg)"]
    call_line = invocation("call = await user.call", call_arguments, indent=_INDENT)
    return constants, [invocation("user = User", user, indent=_INDENT), call_line]


def _approvers(call: RecordedCall) -> list[str]:
    """Return the constants that approve a call. Transcripts do not contain logins, so comments in the generated test
    ask the developer to add them.

    Raises:
        NotReplayable: A scripted person cannot repeat the decisions.
    """
    by_person: dict[str | None, dict[str, JsonValue]] = {}
    verdicts: dict[str, JsonValue] = {}
    for round_ in call.rounds:
        for key, decision in round_.decisions.items():
            if decision.outcome == "expired":
                raise NotReplayable("an approval expired, and a test would have to wait until it expires")
            word = "approve" if decision.outcome == "approved" else "reject"
            verdict: JsonValue = word if decision.reason is None else [word, decision.reason]
            by = str(round_.approvals[key].by)
            if verdicts.setdefault(by, verdict) != verdict:
                raise NotReplayable(
                    f"the group {by!r} made different decisions; a single Approver(...) cannot repeat them"
                )
            if not any(by in decided for decided in by_person.values()):
                by_person.setdefault(decision.who, {})[by] = verdict
    if not by_person:
        return []
    constants = [_CALLER]
    approvers: list[str] = []
    for number, (who, decided) in enumerate(by_person.items(), 1):
        name = f" of {literal(who)}" if who is not None and is_short(literal(who) + _LOGIN) else ""
        constants.append(f"{_LOGIN.format(name)}\nLOGIN_{number}: dict[str, str] = {{}}")
        constants.append(assignment(f"VERDICTS_{number}: dict[str, Any]", decided))
        approvers.append(f"Approver(VERDICTS_{number}, headers=LOGIN_{number})")
    messages = sorted(str(round_.approvals[key].message) for round_ in call.rounds for key in round_.decisions)
    return [
        *constants,
        assignment("APPROVERS", [UsedName(one) for one in approvers]),
        assignment("APPROVALS: list[str]", messages),
    ]


def _test(call: RecordedCall, eras: Sequence[Era], statements: Sequence[str]) -> str:
    name = re.sub(r"\W+", "_", call.name, flags=re.ASCII).strip("_").lower() or "tool"
    lines = [
        *([_PAGES] if "page" in call.kinds else []),
        "@pytest.mark.anyio",
        f'@pytest.mark.roundtrip(eras="{eras[0] if len(eras) == 1 else "both"}")',
        f"async def test_{name[:40]}_goes_as_recorded() -> None:",
        *statements,
    ]
    return "\n".join(lines)
