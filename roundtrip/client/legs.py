"""The call driver, which sends legs in the retry era, and answers through callbacks in the live era.

`roundtrip call`, `check`, `demo`, `doctor` and the testing kit use this driver. They pass two functions: one sends a
leg, and the other answers questions.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import anyio
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    GetPromptResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    ReadResourceResult,
)

from roundtrip.revisions import FIRST_OF_RETRY_ERA

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

T = TypeVar("T")
ConnectionT = TypeVar("ConnectionT")
ResponseT = TypeVar("ResponseT")
ResultT = TypeVar("ResultT")

Method = Literal["tools/call", "prompts/get", "resources/read"]
"""The requests that may ask questions (S1)."""


class TaskRound(InputRequiredResult):
    """A task's open questions, in the form of a round."""

    task_id: str


FinalResult = CallToolResult | GetPromptResult | ReadResourceResult
LegResult = FinalResult | InputRequiredResult

Asking = ElicitRequestFormParams | ElicitRequestURLParams | CreateMessageRequestParams | None
"""A question's parameters on the wire; None for a question about roots, which has no parameters."""


class Era(Enum):
    """A protocol era, or a way to run a call in it."""

    RETRY = FIRST_OF_RETRY_ERA
    """The server returns questions, and the client repeats the request with the answers."""
    LIVE = "legacy"
    """The server asks over the open connection."""
    AUTO = "auto"
    """The newest era that the server speaks."""
    TASK = "task"
    """The retry era, with a client that supports tasks."""

    @property
    def mode(self) -> str:
        """Return the `mode` for the SDK's client."""
        return FIRST_OF_RETRY_ERA if self is Era.TASK else self.value


ERAS: Final = (Era.RETRY, Era.LIVE)
"""Both eras."""
LIVES: Final = (*ERAS, Era.TASK)
"""The three ways to run a call: in the retry era, in the live era, and as a task."""


@dataclass(frozen=True, slots=True)
class LegRequest:
    """One request in a call. A live call has one request. A retry-era call has one more request than it has rounds."""

    name: str
    """The name of the tool or prompt, or the URI of the resource."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Mapping[str, InputResponse] | None = None
    """Answers to the last round's questions, by name."""
    state: str | None = None
    """The request state that came with the last round's questions."""
    task_id: str | None = None
    """The id of the task that asked the questions. The answers are sent to this task, not to its tool."""
    method: Method = "tools/call"
    meta: Mapping[str, Any] | None = None

    @property
    def continues(self) -> bool:
        """Return True if the leg continues a call; False if it begins a call."""
        return self.state is not None or self.task_id is not None

    def follows(self, asked: InputRequiredResult) -> bool:
        """Return True if the leg answers this round."""
        return (self.state, self.task_id) == _continuation_of(asked)

    def answering(self, asked: InputRequiredResult, answers: Mapping[str, InputResponse] | None) -> "LegRequest":
        """Return the call's next leg, with the answers to a round."""
        state, task_id = _continuation_of(asked)
        return replace(self, answers=answers, state=state, task_id=task_id)


def _continuation_of(asked: InputRequiredResult) -> tuple[str | None, str | None]:
    return asked.request_state, asked.task_id if isinstance(asked, TaskRound) else None


async def send(session: ClientSession, leg: LegRequest, *, progress: ProgressFnT | None = None) -> LegResult:
    """Send one leg, and return its result. The result may be a round of questions.

    Raises:
        MCPError: The server answered with a protocol error, or the connection was lost.
    """
    arguments = dict(leg.arguments)
    answers = dict(leg.answers) if leg.answers is not None else None
    more: dict[str, Any] = {"input_responses": answers, "request_state": leg.state, "meta": leg.meta}
    if leg.method == "prompts/get":
        return await session.get_prompt(leg.name, arguments, allow_input_required=True, **more)
    if leg.method == "resources/read":
        return await session.read_resource(leg.name, allow_input_required=True, **more)
    result = await session.call_tool(
        leg.name, arguments, progress_callback=progress, allow_input_required=True, allow_claimed=True, **more
    )
    return cast("CallToolResult | InputRequiredResult", result)


def asking(request: InputRequest) -> Asking:
    """Return a question's parameters."""
    return request.params if isinstance(request, ElicitRequest | CreateMessageRequest) else None


SendLeg: TypeAlias = Callable[[LegRequest], Awaitable[ResultT | InputRequiredResult]]
AnswerRound = Callable[[InputRequiredResult], Awaitable[Mapping[str, InputResponse] | None]]
"""A function that returns the answers to a round's questions, by name. It returns None to leave the call waiting."""
AnswerLive = Callable[[InputRequest], Awaitable[InputResponse | ErrorData | None]]
"""A function that answers a live question, which has no name on the wire. If it returns None, the server receives an
error.
"""

_FIRST_PAUSE_SECONDS: Final = 0.05
_UNANSWERED: Final = ErrorData(code=-32000, message="the client has no answer")


async def drive(
    leg: LegRequest,
    *,
    send: SendLeg[ResultT],
    answer: AnswerRound,
    max_rounds: int | None = None,
    max_pause: float | None = None,
) -> ResultT | InputRequiredResult:
    """Send legs until the final result arrives, the client leaves the call, or there are too many rounds.

    Args:
        leg: The call's first request.
        send: A function that sends one leg.
        answer: A function that answers one round.
        max_rounds: The maximum number of rounds to answer.
        max_pause: The maximum pause before the next leg if a round has no questions. If it is None, a round without
            questions is treated like all other rounds.

    Returns:
        The final result, or the last round if it was not answered.
    """
    rounds, pause = 0, _FIRST_PAUSE_SECONDS
    while isinstance(result := await send(leg), InputRequiredResult) and rounds != max_rounds:
        if not result.input_requests and max_pause is not None:
            await anyio.sleep(pause)
            pause = min(pause * 2, max_pause)
            leg = leg.answering(result, None)
            continue
        pause = _FIRST_PAUSE_SECONDS
        answers = await answer(result)
        if answers is None:
            break
        rounds += 1
        leg = leg.answering(result, answers if result.input_requests else None)
    return result


def callbacks(
    answer: AnswerLive, *, elicit: bool = True, sample: bool = True, list_roots: bool = True
) -> dict[str, Any]:
    """Return callback arguments for `mcp.Client`. All callbacks answer live questions with the same function.

    The client declares a capability for each callback.

    Args:
        answer: A function that answers one question.
        elicit: True to answer forms and pages.
        sample: True to answer for a model.
        list_roots: True to answer with roots.
    """

    async def answer_elicitation(
        context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        return _check_kind(ElicitResult, await answer(ElicitRequest(params=params)))

    async def answer_sampling(
        context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        return _check_kind(CreateMessageResult, await answer(CreateMessageRequest(params=params)))

    async def answer_roots(context: ClientRequestContext) -> ListRootsResult | ErrorData:
        return _check_kind(ListRootsResult, await answer(ListRootsRequest()))

    return {
        "elicitation_callback": answer_elicitation if elicit else None,
        "sampling_callback": answer_sampling if sample else None,
        "list_roots_callback": answer_roots if list_roots else None,
    }


def _check_kind(kind: type[ResponseT], answer: InputResponse | ErrorData | None) -> ResponseT | ErrorData:
    return answer if isinstance(answer, kind | ErrorData) else _UNANSWERED


async def never_live(request: InputRequest) -> ErrorData:
    """Reject a live question. Clients in the retry era pass this callback only to declare capabilities."""
    raise AssertionError(
        f"in the retry era, the server must return its questions, but it sent {request.method} over the open connection"
    )


async def within(
    connection: AbstractAsyncContextManager[ConnectionT],
    work: Callable[[ConnectionT], Awaitable[T]],
    *,
    scope: AbstractContextManager[Any] | None = None,
) -> T:
    """Run a function inside a connection. If the function fails, raise its error without the exception groups that
    transports add.

    Args:
        connection: A context manager that connects and disconnects.
        work: The function.
        scope: A cancel scope around the connection and the function.

    Raises:
        TimeoutError: The scope was cancelled first.
    """
    results: list[T] = []
    failure: Exception | None = None
    try:
        with scope or nullcontext():
            async with connection as connected:
                try:
                    results.append(await work(connected))
                except Exception as error:  # noqa: BLE001  # raised inside the connection, it would become a group
                    failure = error
    except Exception as error:  # noqa: BLE001  # a transport may raise anything
        failure = failure or error
    if failure is not None:
        raise _unwrap(failure)
    if not results:
        raise TimeoutError
    return results[0]


def _unwrap(error: Exception) -> Exception:
    """Unwrap an exception group that contains one error. Keep a larger group, because every error is evidence."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return _unwrap(inner[0]) if len(inner) == 1 else cast("Exception", error)
