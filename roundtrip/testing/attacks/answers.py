"""Attacks with answers: invalid answers, another user's answers, and an answer to a question that no server asks."""

from collections.abc import Iterator, Mapping
from typing import Final

from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
)

from roundtrip.client.legs import asking
from roundtrip.testing.forms import invalid_answers, other_valid_answer, valid_answer

NOT_ASKED: Final = "roundtrip.testing: nobody asked"
"""Name of a question that no server asks."""

UNASKED_ANSWER: Final = ElicitResult(action="accept", content={"value": NOT_ASKED})


def invalid_responses(request: InputRequest) -> Iterator[tuple[str, InputResponse]]:
    """Yield invalid answers to a question, each with a description."""
    if isinstance(request, ListRootsRequest):
        yield "the form of another question", UNASKED_ANSWER
    else:
        yield "the list of roots of another question", ListRootsResult(roots=[])
    params = asking(request)
    if not isinstance(request, ElicitRequest) or not isinstance(params, ElicitRequestFormParams):
        return
    schema = params.requested_schema
    if schema.get("required"):
        yield "accepted without any content", ElicitResult(action="accept")
    for content in invalid_answers(schema):
        yield f"the form filled in as {content!r}", ElicitResult.model_construct(action="accept", content=content)


def other_answers(
    requests: Mapping[str, InputRequest], answers: Mapping[str, InputResponse]
) -> dict[str, InputResponse]:
    """Return the answers that another user could give. They have the same actions as the given answers."""
    others: dict[str, InputResponse] = {}
    for key, request in requests.items():
        params, answer = asking(request), answers.get(key)
        if answer is None:
            continue
        if isinstance(answer, ElicitResult) and answer.content and isinstance(params, ElicitRequestFormParams):
            contents = (valid_answer(params.requested_schema), other_valid_answer(params.requested_schema))
            other = next((one for one in contents if one != answer.content), None)
            answer = answer if other is None else ElicitResult(action="accept", content=other)
        others[key] = answer
    return others
