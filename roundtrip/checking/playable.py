"""Recorded calls as tests: source for pytest that plays a call through a real client, and expects what was recorded."""

import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast

from pydantic import JsonValue

from roundtrip.asks.questions import TICKET
from roundtrip.checking.literals import WIDTH, assignment, literal
from roundtrip.checking.recorded import Answer, Ending, Kind, NotReplayable, Question, RecordedCall, revealed
from roundtrip.checking.sources import (
    ENDED,
    FAILURE,
    FORMS_TOLD,
    LIVE,
    MIXED_TOLD,
    NEVER,
    RESULT_SHOWN,
    RETRY,
)
from roundtrip.machine.journal import Action

__all__ = ["Era", "ServerName", "write_test"]

Era = Literal["retry", "live"]

_WORDS: Final = {Action.ACCEPT: "accept", Action.DECLINE: "decline", Action.CANCEL: "cancel"}
_TOLD: Final = frozenset({"ToolError", "ResourceError", "MCPError"})
"""Errors whose text a client is told, even where it is not told of crashes."""

_CALLBACKS: Final[Mapping[str, tuple[frozenset[Kind], str]]] = {
    "elicitation_callback": (frozenset({"form", "page"}), "ElicitResult"),
    "sampling_callback": (frozenset({"sample"}), "CreateMessageResult"),
    "list_roots_callback": (frozenset({"roots"}), "ListRootsResult"),
}


class ServerName:
    """`MODULE:SERVER`, where the module is named by its import path.

    Raises:
        ValueError: It is something else.
    """

    def __init__(self, text: str) -> None:
        self.module, _, self.attribute = text.rpartition(":")
        parts = [*self.module.split("."), self.attribute]
        importable = all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
        if not importable or self.module.endswith(".py"):
            raise ValueError(
                f"{text!r} cannot be imported by a test; write MODULE:SERVER by import path, such as shop.app:server"
            )

    @property
    def source(self) -> str:
        """The import of the server, as `server`."""
        name = self.attribute if self.attribute == "server" else f"{self.attribute} as server"
        line = f"from {self.module} import {name}"
        return line if len(line) <= WIDTH else f"from {self.module} import (\n    {name},\n)"


def write_test(call: RecordedCall, server: ServerName, *, eras: tuple[Era, ...], with_result: bool) -> str:
    """Source of a test of one call, which was recorded as a whole.

    Args:
        call: The call.
        server: Where the server is imported from.
        eras: In which eras it is played.
        with_result: Whether the result has to be the recorded one.

    Raises:
        NotReplayable: The call cannot be played by a client.
    """
    if call.ending is Ending.WAITS:
        # Who asks on an open connection and gets no answer waits for ever.
        eras = ("retry",)
    _require_playable(call, eras)
    ending = _Ending(call, with_result=with_result)
    values = "\n\n".join(
        [
            "\n".join(
                [
                    assignment("CALL", call.id),
                    assignment("TOOL", call.name),
                    assignment("ARGUMENTS", dict(call.arguments)),
                ]
            ),
            "# What was asked in each round, by the names of the questions.\n"
            + assignment("ROUNDS", _rounds(call, eras)),
            "# What was answered.\n" + assignment("ANSWERS", _answers(call)),
            *ending.values,
        ]
    )
    head = [
        '"""A recorded call, to be played again. Written by `roundtrip trace to-test`."""',
        "\n".join(_imports(call, eras, ending)),
        server.source,
        values,
    ]
    functions = [
        _BACKEND,
        _told(call),
        *([NEVER] if "retry" in eras and call.kinds else []),
        *(_player(call, era) for era in eras),
        *ending.functions,
        _test(call, eras, ending),
    ]
    return "\n\n\n".join(["\n\n".join(head), *functions]) + "\n"


def _require_playable(call: RecordedCall, eras: tuple[Era, ...]) -> None:
    if call.method != "tools/call":
        raise NotReplayable("only calls of tools can be played in a test so far")
    if call.ending is Ending.UNKNOWN and (call.ended is None or call.ended.state != "rejected"):
        raise NotReplayable("it did not come to an end that can be repeated")
    if any(round_.by == "author" for round_ in call.rounds):
        raise NotReplayable("its function asks by hand, and the answers to that are not recorded")
    answers = [answer for round_ in call.rounds for answer in round_.answers.values()]
    if any(answer.action is None for answer in answers):
        raise NotReplayable("an answer of it was malformed, which no client of the SDK's can send")
    if any(answer.how == "lost" for answer in answers):
        raise NotReplayable("an answer of it was lost between two builds, so it cannot be played on one")
    if "live" in eras and any(not round_.answers for round_ in call.rounds):
        raise NotReplayable("its client did not answer, and ended the call")
    if len(eras) > 1:
        for round_ in call.rounds:
            refused = any(answer.action is not Action.ACCEPT for answer in round_.answers.values())
            if round_.answers.keys() != round_.questions.keys() or (refused and len(round_.questions) > 1):
                raise NotReplayable(f"round {round_.number} of it goes differently in the other era; leave out --both")


class _Ending:
    """How the call has to end: what the source says of it."""

    def __init__(self, call: RecordedCall, *, with_result: bool) -> None:
        self.values: list[str] = []
        self.functions: list[str] = []
        self.expected: list[str] = []
        self.fails = False
        ended = call.ended
        if ended is None:
            self.expected = ["assert result is None"]
        elif ended.state == "completed" and with_result:
            shown = revealed(ended.result) if ended.result is not None else None
            if not isinstance(shown, dict):
                raise NotReplayable("its result is not in the transcript; --no-result leaves it out")
            parts = {name: shown[name] for name in ("content", "structuredContent") if name in shown}
            result = {"content": [], "isError": ended.is_error, **parts}
            self.values = ["# How it ended.\n" + assignment("RESULT", cast("object", result))]
            self.functions = [RESULT_SHOWN]
            self.expected = ["assert shown(result) == RESULT"]
        elif ended.state == "completed":
            self.functions = [ENDED]
            self.expected = [f"assert is_error(result) is {ended.is_error}"]
        else:
            self.fails = True
            reason: JsonValue = ended.refusal
            if reason is None and ended.error is not None and ended.error.type in _TOLD:
                reason = revealed(ended.error.text)
            self.functions = [FAILURE]
            if isinstance(reason, str):
                self.values = ["# Why it failed.\n" + assignment("REASON", reason)]
                self.expected = ["assert REASON in failure(result)"]
            else:
                self.expected = ["assert failure(result)"]

    @property
    def imports(self) -> list[str]:
        """What the functions need of `mcp_types`."""
        return ["CallToolResult"] if self.functions else []


def _imports(call: RecordedCall, eras: tuple[Era, ...], ending: _Ending) -> Iterator[str]:
    types = list(ending.imports)
    if "retry" in eras:
        types.append("InputRequiredResult")
    if "live" in eras:
        types += [result for kinds, result in _CALLBACKS.values() if kinds & call.kinds]
    yield "from typing import Any"
    yield ""
    yield "import pytest"
    yield "from mcp.client import Client"
    yield "from mcp.shared.exceptions import MCPError"
    if types:
        line = f"from mcp_types import {', '.join(sorted(types))}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield "from mcp_types import ("
            yield from (f"    {name}," for name in sorted(types))
            yield ")"


def _rounds(call: RecordedCall, eras: tuple[Era, ...]) -> list[dict[str, Any]]:
    """What has to be asked; on an open connection nothing is known of what was not answered."""
    bare = _bare_urls(call)
    return [
        {
            key: _shown(question, bare=bare)
            for key, question in round_.questions.items()
            if "retry" in eras or key in round_.answers
        }
        for round_ in call.rounds
    ]


def _shown(question: Question, *, bare: bool) -> dict[str, Any]:
    """What a client sees of a question, as the source's `told` tells it."""
    if question.kind == "roots":
        return {}
    if question.kind == "page":
        return {"message": question.message} | ({} if bare else {"url": question.url})
    if question.kind == "form":
        form = question.form or {}
        again = f"\n\n(The last answer was not valid: {question.complaint})" if question.complaint is not None else ""
        return {
            "message": f"{question.message}{again}",
            "fields": form.get("properties", {}),
            "required": form.get("required", []),
        }
    params = dict(question.message) if isinstance(question.message, dict) else {}
    if question.complaint is not None:
        text = f"The last answer was not valid: {question.complaint}. Answer again."
        messages = cast("list[JsonValue]", params.get("messages") or [])
        params["messages"] = [*messages, {"role": "user", "content": {"type": "text", "text": text}}]
    return params


def _bare_urls(call: RecordedCall) -> bool:
    """Whether an URL holds a ticket, which is another one for each call."""
    urls = [question.url or "" for round_ in call.rounds for question in round_.questions.values()]
    return any(TICKET.search(url) for url in urls)


def _answers(call: RecordedCall) -> list[dict[str, Any]]:
    """What was answered in each round, in the order of the questions; nothing to a round that still waits."""
    rounds = call.rounds[:-1] if call.ending is Ending.WAITS else call.rounds
    return [{key: _said(round_.answers[key]) for key in round_.questions if key in round_.answers} for round_ in rounds]


def _said(answer: Answer) -> JsonValue:
    if answer.question.kind not in ("form", "page"):
        return answer.data
    said: dict[str, JsonValue] = {"action": _WORDS[answer.action or Action.ACCEPT]}
    return said if answer.data is None else {**said, "content": answer.data}


def _told(call: RecordedCall) -> str:
    if call.kinds <= {"form"}:
        return FORMS_TOLD
    left_out = ["_meta", "elicitationId", "mode", *(["url"] if _bare_urls(call) else [])]
    return MIXED_TOLD.replace("#LEFT_OUT#", literal(left_out, indent="    ", used=11))


def _player(call: RecordedCall, era: Era) -> str:
    asked = {name: result for name, (kinds, result) in _CALLBACKS.items() if kinds & call.kinds}
    if era == "retry":
        options = [f"{name}=never" for name in asked]
        source, mode = RETRY, 'mode="2026-07-28"'
    else:
        options = [f"{name}=answering({result})" for name, result in asked.items()]
        source, mode = LIVE, 'mode="legacy"'
    meta = [] if call.version is None else [f"meta={literal({'roundtrip/version': call.version})}"]
    given = {"CLIENT": ["server", mode, *options], "META": meta, "CALL": ["TOOL", "ARGUMENTS", *meta]}
    return _filled(source, given)


def _filled(source: str, arguments: Mapping[str, list[str]]) -> str:
    """A source with some arguments put in where it has a line `#NAME#`, one on each line if they are too many."""
    for name, given in arguments.items():
        lines: list[str] = []
        for line in source.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            if f"#{name}#" not in line:
                lines.append(line)
            elif line.strip() == f"#{name}#,":
                lines += [f"{indent}{argument}," for argument in given]
            elif len(full := line.replace(f"#{name}#", ", ".join(given))) <= WIDTH:
                lines.append(full)
            else:
                before, after = line.split(f"#{name}#")
                inner = f"{indent}    {', '.join(given)}"
                spread = [inner] if len(inner) <= WIDTH else [f"{indent}    {argument}," for argument in given]
                lines += [before, *spread, f"{indent}{after}"]
        source = "\n".join(lines)
    return source


def _test(call: RecordedCall, eras: tuple[Era, ...], ending: _Ending) -> str:
    name = re.sub(r"\W+", "_", call.name, flags=re.ASCII).strip("_").lower() or "tool"
    players = [f"play_{era}" for era in eras]
    several = len(players) > 1
    lines = ["@pytest.mark.anyio"]
    if several:
        lines.append(f'@pytest.mark.parametrize("play", [{", ".join(players)}])')
    lines += [
        f"async def test_{name[:40]}_goes_as_recorded({'play: Any' if several else ''}) -> None:",
        f"    asked, result = await {'play' if several else players[0]}()",
        "    assert asked == ROUNDS",
        *(f"    {line}" for line in ending.expected),
    ]
    return "\n".join(lines)


_BACKEND: Final = '''\
@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"'''
