"""Asking tools written by hand, for frameworks that only pass questions and answers through."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from benchmarks.workloads import (
    CONSENT_MESSAGE,
    DRAFT_MESSAGE,
    Confirm,
    Consent,
    Draft,
    Word,
    Words,
    Workload,
    result_text,
    word_message,
)

_M = TypeVar("_M", bound=BaseModel)
Guard: TypeAlias = Callable[[str, InputResponses | None, str | None], str | InputRequiredResult]
"""An asking tool, from argument, answers and state to a result or to questions."""

_WORD_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}
_CONSENT: Final = ElicitRequest(
    params=ElicitRequestFormParams(
        message=CONSENT_MESSAGE,
        requested_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    )
)


def guard_of(workload: Workload) -> Guard:
    """Return the tool for an asking workload."""
    match workload:
        case Confirm():
            return consent
        case Words(rounds=rounds):
            return partial(word_rounds, rounds=rounds)
        case Draft(questions=questions):
            return partial(draft, questions=questions)
        case _:
            raise NotImplementedError(type(workload).__name__)


class NotAccepted(ValueError):
    """The user did not accept a question, or the client did not answer it."""


def consent(name: str, responses: InputResponses | None, state: str | None) -> str | InputRequiredResult:
    """Ask once, then answer. The state says only that this server asked the question in this call."""
    if responses is None or state != "asked":
        return InputRequiredResult(input_requests={"consent": _CONSENT}, request_state="asked")
    return result_text(name, [str(_accepted(responses, "consent", Consent).ok)])


def word_rounds(
    name: str, responses: InputResponses | None, state: str | None, *, rounds: Sequence[int]
) -> str | InputRequiredResult:
    """Ask round by round. The state holds the answers so far: a checkpoint, so nothing runs twice."""
    checkpoint: list[list[str]] = []
    if state is not None:
        checkpoint = json.loads(state)
        numbers = _numbers(rounds, done=len(checkpoint))
        checkpoint.append([_accepted(responses or {}, f"word_{number}", Word).text for number in numbers])
        if len(checkpoint) == len(rounds):
            return result_text(name, checkpoint[-1])
    latest = checkpoint[-1] if checkpoint else []
    return InputRequiredResult(
        input_requests={
            f"word_{number}": ElicitRequest(
                params=ElicitRequestFormParams(message=word_message(number, latest), requested_schema=_WORD_SCHEMA)
            )
            for number in _numbers(rounds, done=len(checkpoint))
        },
        request_state=json.dumps(checkpoint, separators=(",", ":")),
    )


def draft(
    name: str, responses: InputResponses | None, state: str | None, *, questions: int
) -> str | InputRequiredResult:
    """Request a text, then ask question after question. The state holds everything said so far."""
    said_so_far: list[str] = [] if state is None else json.loads(state)
    if state is None:
        message = SamplingMessage(role="user", content=TextContent(text=DRAFT_MESSAGE))
        asking = CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=6000))
        return InputRequiredResult(input_requests={"draft": asking}, request_state="[]")
    number = len(said_so_far)
    if number:
        said_so_far.append(_accepted(responses or {}, f"word_{number}", Word).text)
    else:
        said_so_far.append(_written(responses or {}))
    if number == questions:
        return result_text(name, [str(len(said_so_far[0])), said_so_far[-1]])
    message = word_message(number + 1, said_so_far[-1:])
    question = ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=_WORD_SCHEMA))
    return InputRequiredResult(
        input_requests={f"word_{number + 1}": question},
        request_state=json.dumps(said_so_far, separators=(",", ":")),
    )


def _written(responses: InputResponses) -> str:
    answer = responses.get("draft")
    if not isinstance(answer, CreateMessageResult) or not isinstance(answer.content, TextContent):
        raise NotAccepted("draft")
    return answer.content.text


def _numbers(rounds: Sequence[int], *, done: int) -> range:
    """Return the question numbers in round `done`."""
    first = sum(rounds[:done])
    return range(first, first + rounds[done])


def _accepted(responses: InputResponses, key: str, model: type[_M]) -> _M:
    answer = responses.get(key)
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        raise NotAccepted(key)
    return model.model_validate(answer.content)
