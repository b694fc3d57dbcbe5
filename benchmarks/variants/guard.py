"""The asking tools written by hand, as an author must where the framework only passes questions and answers through."""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, InputResponses
from pydantic import BaseModel

from benchmarks.workloads import CONSENT_MESSAGE, Consent, Word, said, word_message

_M = TypeVar("_M", bound=BaseModel)

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


class NotAccepted(ValueError):
    """The user did not accept a question, or the client did not answer it."""


def consent(name: str, responses: InputResponses | None, state: str | None) -> str | InputRequiredResult:
    """Ask once, then answer. The state only says that the question was asked, by this server and for this call."""
    if responses is None or state != "asked":
        return InputRequiredResult(input_requests={"consent": _CONSENT}, request_state="asked")
    return said(name, [str(_accepted(responses, "consent", Consent).ok)])


def word_rounds(
    name: str, rounds: Sequence[int], responses: InputResponses | None, state: str | None
) -> str | InputRequiredResult:
    """Ask round by round, keeping the answers so far as the state: a checkpoint, so nothing runs twice."""
    checkpoint: list[list[str]] = []
    if state is not None:
        checkpoint = json.loads(state)
        numbers = _numbers(rounds, done=len(checkpoint))
        checkpoint.append([_accepted(responses or {}, f"word_{number}", Word).text for number in numbers])
        if len(checkpoint) == len(rounds):
            return said(name, checkpoint[-1])
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


def _numbers(rounds: Sequence[int], *, done: int) -> range:
    """The numbers of the questions of round `done`."""
    first = sum(rounds[:done])
    return range(first, first + rounds[done])


def _accepted(responses: InputResponses, key: str, model: type[_M]) -> _M:
    answer = responses.get(key)
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        raise NotAccepted(key)
    return model.model_validate(answer.content)
