"""Play one whole call against a peer as a scripted client, and check each leg."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.asgi import Response
from benchmarks.wire import Asked, Question, Request, WrongReply, call, read
from benchmarks.workloads import Workload


class Poster(Protocol):
    """Object that sends requests."""

    async def post(self, body: bytes, *, headers: Mapping[str, str]) -> Response:
        """Send one request, and time the response."""
        ...


@dataclass(frozen=True, slots=True)
class Leg:
    """Measurements of one leg."""

    elapsed_ns: int
    state_bytes: int
    """The size of the returned request state."""
    bytes: int
    """The combined size of the request and response bodies."""


async def play(endpoint: Poster, workload: Workload) -> tuple[Leg, ...]:
    """Make the call, and answer as the workload says until it ends.

    Only the server is timed: requests are written and replies are checked between the legs. Every reply is checked,
    because a leg that fails quickly would look fast.

    Raises:
        WrongReply: A leg did not do what the workload demands.
    """
    legs: list[Leg] = []
    request = call()
    for messages in workload.messages:
        response = await endpoint.post(request.body, headers=request.headers)
        reply = read(response)
        if not isinstance(reply, Asked):
            raise WrongReply(f"leg {len(legs) + 1} said {reply.text!r} where it had to ask {len(messages)} questions")
        asked = tuple(question.message for question in reply.questions.values())
        if asked != messages:
            raise WrongReply(f"leg {len(legs) + 1} asked {asked} where it had to ask {messages}")
        legs.append(_leg(request, response, state_bytes=len(reply.state or "")))
        request = call(answers=_answers(reply.questions, workload=workload), state=reply.state)
    response = await endpoint.post(request.body, headers=request.headers)
    reply = read(response)
    if isinstance(reply, Asked):
        raise WrongReply(f"leg {len(legs) + 1} asked {list(reply.questions)} where it had to finish")
    if reply.text != workload.text:
        raise WrongReply(f"the call ended with {reply.text!r} instead of {workload.text!r}")
    return (*legs, _leg(request, response, state_bytes=0))


def _leg(request: Request, response: Response, *, state_bytes: int) -> Leg:
    return Leg(response.elapsed_ns, state_bytes, len(request.body) + len(response.body))


def _answers(questions: Mapping[str, Question], *, workload: Workload) -> dict[str, dict[str, str | bool] | str]:
    answers: dict[str, dict[str, str | bool] | str] = {}
    for key, question in questions.items():
        answer = workload.answers[int(question.message.partition(":")[0])]
        answers[key] = str(answer) if question.field is None else {question.field: answer}
    return answers
