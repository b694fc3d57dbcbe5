"""The messages between a call's client and the instances. They can also be drawn as a Mermaid sequence diagram."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roundtrip.trace.explaining.wording import (
    action_text,
    approval_text,
    channel_text,
    duration_text,
    intent_text,
    listed_text,
    omitted_text,
    size_text,
    stop_text,
    wait_text,
)
from roundtrip.trace.reading.calls import HappenedLine, Serving, TracedCall
from roundtrip.trace.writing.lines import (
    ActedLine,
    AnsweredLine,
    AskedLine,
    EndedLine,
    HandedLine,
    RejectedLine,
    StoppedLine,
)

CLIENT: Final = 0
"""The client's index among the participants."""

_MAX_LISTED_QUESTIONS: Final = 4
_MAX_NAME_CHARS: Final = 60


class MessageKind(StrEnum):
    """Message kind, which determines the arrow."""

    REQUEST = "request"
    RESPONSE = "response"
    REJECTION = "rejection"
    """A response that rejects a token."""
    NOTE = "note"
    """A note about the source, not a message."""


@dataclass(frozen=True, slots=True)
class SequenceMessage:
    """A message between two participants. `step` is the number of rounds before the message."""

    kind: MessageKind
    source: int
    target: int
    text: str
    step: int


@dataclass(frozen=True, slots=True)
class MessageSequence:
    """A call's messages, in order, and the participants. The client is the first participant."""

    participants: tuple[str, ...]
    messages: tuple[SequenceMessage, ...]


def exchange_of(call: TracedCall) -> MessageSequence:
    """Return a call's messages, including requests with rejected tokens."""
    instances = dict.fromkeys([*call.instances, *(rejection.instance for rejection in call.rejections)])
    places = {name: place for place, name in enumerate(instances, start=1)}
    messages: list[SequenceMessage] = []
    step = 0
    before: AskedLine | None = None
    for request in call.occurrences:
        if isinstance(request, ActedLine | StoppedLine):
            # Operators are not participants, so the note about an operator is placed above the client.
            text = _short(action_text(request)) if isinstance(request, ActedLine) else stop_text(request)
            messages.append(SequenceMessage(MessageKind.NOTE, CLIENT, CLIENT, text, step))
            continue
        place = places[request.instance]
        if isinstance(request, RejectedLine):
            messages += _rejected(request, place, step)
            continue
        # When a worker serves a leg, the client sends no request: it polls the task, or already has a response.
        kind, source = (MessageKind.NOTE, place) if request.is_of_worker else (MessageKind.REQUEST, CLIENT)
        kind = MessageKind.RESPONSE if request.continues_live else kind
        messages.append(SequenceMessage(kind, source, place, _request(call, request, before), step))
        if (found := intent_text(request.intent)) is not None:
            messages.append(SequenceMessage(MessageKind.NOTE, place, place, found, step))
        for line in request.happened:
            messages.append(_message_of(line, request, place, step))
            if isinstance(line, AskedLine):
                step += 1
                before = line
        if not request.is_over:
            messages.append(SequenceMessage(MessageKind.NOTE, place, place, "no recorded end", step))
    if call.omitted.requests:
        messages.append(SequenceMessage(MessageKind.NOTE, CLIENT, CLIENT, omitted_text(call), step))
    caller = "Caller" if call.began is not None and call.began.era == "direct" else "Client"
    return MessageSequence((caller, *places), tuple(messages))


def _is_live(serving: Serving) -> bool:
    if serving.began is not None:
        return serving.began.era not in ("retry", "task")
    return any(isinstance(line, AnsweredLine) for line in serving.lines)


def _request(call: TracedCall, serving: Serving, before: AskedLine | None) -> str:
    began = serving.began
    if began is None:
        return f"leg {serving.leg} (beginning not recorded)"
    if serving.leg == 1 or before is None:
        if serving.is_of_worker:
            return _worker_text(serving)
        is_first = call.servings[0] is serving
        return f"{began.method} {_short(began.tool)}" if is_first else f"leg {serving.leg} again"
    if serving.joins and began.token_bytes is None and not serving.continues_live:
        return f"{began.method} {_short(began.tool)} again"
    answers = [
        f"{_short(answer.key)}: {answer.action or 'malformed' if answer.how == 'taken' else answer.how}"
        for answer in serving.brought
    ]
    what = _worker_text(serving) if serving.is_of_worker else "answers" if serving.continues_live else "retry"
    parts = [f"{what} with {listed_text(answers, _MAX_LISTED_QUESTIONS)}" if answers else what]
    if began.token_bytes is not None:
        parts.append(f"token of {size_text(began.token_bytes)}")
    if before.leg < serving.leg and began.at >= before.at:
        parts.append(f"after {duration_text((began.at - before.at) * 1000)}")
    return ", ".join(parts)


def _worker_text(serving: Serving) -> str:
    return "a worker takes over from a silent worker" if serving.takes_over else "a worker continues"


def _message_of(line: HappenedLine, serving: Serving, place: int, step: int) -> SequenceMessage:
    if isinstance(line, AskedLine):
        asked = [
            _short(question.key) if question.reason == "new" else f"{_short(question.key)} ({question.reason})"
            for question in line.questions
        ]
        # If questions end a leg, their line has a token. Otherwise, they are requests over the open connection.
        asks_live = _is_live(serving) and (line.token is None or (serving.intent is not None and line.rung is None))
        kind = MessageKind.REQUEST if asks_live else MessageKind.RESPONSE
        target = CLIENT
        if serving.is_of_worker and (line.rung is not None or not line.questions):
            # A worker cannot respond to a client. Its questions are shown on a page, or the task waits for someone
            # else.
            kind, target = MessageKind.NOTE, place
        awaited = [approval_text(approval, _short) for approval in line.approvals]
        if awaited and not asked:
            text = f"waits for {listed_text(awaited, _MAX_LISTED_QUESTIONS)}"
        elif line.waits and not asked:
            text = f"waits {wait_text(line.waits)}"
        else:
            names = listed_text([*asked, *awaited], _MAX_LISTED_QUESTIONS) or "nothing"
            text = f"asks {names}{channel_text(line)}"
        return SequenceMessage(kind, place, target, text, step)
    if isinstance(line, EndedLine):
        return SequenceMessage(MessageKind.RESPONSE, place, CLIENT, _end(line), step)
    if isinstance(line, HandedLine):
        return SequenceMessage(MessageKind.RESPONSE, place, CLIENT, "the handle of a task", step)
    waited = f", after {duration_text(line.waited)}"
    if not line.keys:
        return SequenceMessage(MessageKind.NOTE, place, place, f"stops waiting{waited}", step)
    keys = listed_text([_short(key) for key in line.keys], _MAX_LISTED_QUESTIONS)
    return SequenceMessage(MessageKind.RESPONSE, CLIENT, place, f"answers {keys}{waited}", step)


def _end(line: EndedLine) -> str:
    if line.error is not None:
        return f"{line.state}: {_short(line.error.type)}"
    if line.decline is not None:
        return f"{line.state}: {_short(line.decline)}"
    return f"{line.state}, with an error as its result" if line.is_error else line.state


def _rejected(line: RejectedLine, place: int, step: int) -> Iterator[SequenceMessage]:
    leg = f" (leg {line.leg})" if line.leg is not None else ""
    size = f", token of {size_text(line.token_bytes)}" if line.token_bytes is not None else ""
    yield SequenceMessage(MessageKind.REQUEST, CLIENT, place, f"retry{leg}{size}", step)
    yield SequenceMessage(MessageKind.REJECTION, place, CLIENT, f"token rejected: {line.reason}", step)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_NAME_CHARS else f"{text[: _MAX_NAME_CHARS - 1]}…"


# Mermaid.

_ARROWS: Final = {MessageKind.REQUEST: "->>", MessageKind.RESPONSE: "-->>", MessageKind.REJECTION: "--x"}
_SPECIAL: Final = re.compile(r"[^A-Za-z0-9 .,_()/:'?+=!*…-]")
"""Characters that may have a meaning in Mermaid or in its HTML output."""


def mermaid(call: TracedCall) -> str:
    """Draw a call as a Mermaid sequence diagram, without a trailing newline."""
    exchange = exchange_of(call)
    lines = ["sequenceDiagram"]
    for place, name in enumerate(exchange.participants):
        role = "actor" if place == CLIENT else "participant"
        lines.append(f"    {role} p{place} as {_label(name)}")
    for message in exchange.messages:
        text = _escaped(message.text)
        if message.kind is MessageKind.NOTE:
            lines.append(f"    Note over p{message.source}: {text}")
        else:
            lines.append(f"    p{message.source}{_ARROWS[message.kind]}p{message.target}: {text}")
    return "\n".join(lines)


def _label(name: str) -> str:
    # Mermaid could read a word before a colon as a directive.
    return _escaped(_short(name)).replace(":", "#58;") or "?"


def _escaped(text: str) -> str:
    # Mermaid's escape is `#number;`. Surrogates and control characters become U+FFFD.
    def entity(found: re.Match[str]) -> str:
        return f"#{ord(found[0])};" if found[0].isprintable() else "#65533;"

    return _SPECIAL.sub(entity, text).strip()
