"""Drive calls: leg by leg in the retry era, and by callbacks in the live era.

`roundtrip call`, `check`, `demo`, `doctor` and the testing kit drive their calls with it. Each passes a function that
sends a leg and a function that answers questions.
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

# A failing test shows where the test failed, and no frame of this module.
__tracebackhide__ = True

T = TypeVar("T")
ConnectionT = TypeVar("ConnectionT")
ResponseT = TypeVar("ResponseT")
ResultT = TypeVar("ResultT")

Method = Literal["tools/call", "prompts/get", "resources/read"]
"""The requests that may ask questions (S1)."""


class TaskRound(InputRequiredResult):
    """Open questions of a task, as a round of its call."""

    task_id: str


FinalResult = CallToolResult | GetPromptResult | ReadResourceResult
LegResult = FinalResult | InputRequiredResult

Asking = ElicitRequestFormParams | ElicitRequestURLParams | CreateMessageRequestParams | None
"""The parameters of a question on the wire; None for a question for roots, which has none."""


class Era(Enum):
    """An era of the protocol, or a life of a call in it."""

    RETRY = FIRST_OF_RETRY_ERA
    """Questions are returned, and the client sends the request again with the answers."""
    LIVE = "legacy"
    """Questions come over the open connection."""
    AUTO = "auto"
    """The newest era that the server speaks."""
    TASK = "task"
    """The retry era, with a client that can have tasks."""

    @property
    def mode(self) -> str:
        """Return the `mode` of the SDK's client."""
        return FIRST_OF_RETRY_ERA if self is Era.TASK else self.value


ERAS: Final = (Era.RETRY, Era.LIVE)
"""Both eras."""
LIVES: Final = (*ERAS, Era.TASK)
"""The three lives of a call."""


@dataclass(frozen=True, slots=True)
class LegRequest:
    """One request of a call. The live era has one per call, the retry era one more than there are rounds."""

    name: str
    """The name of the tool or prompt, or the URI of the resource."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Mapping[str, InputResponse] | None = None
    """Answers to the questions of the last round, by their names."""
    state: str | None = None
    """The request state that came with those questions."""
    task_id: str | None = None
    """The task that asked those questions, which gets the answers in place of a request to its tool."""
    method: Method = "tools/call"
    meta: Mapping[str, Any] | None = None

    @property
    def continues(self) -> bool:
        """Return True if it goes on with a call."""
        return self.state is not None or self.task_id is not None

    def follows(self, asked: InputRequiredResult) -> bool:
        """Return True if it goes on from a round."""
        return (self.state, self.task_id) == _place_of(asked)

    def answering(self, asked: InputRequiredResult, answers: Mapping[str, InputResponse] | None) -> "LegRequest":
        """Return the next leg of the call, with the answers to a round."""
        state, task_id = _place_of(asked)
        return replace(self, answers=answers, state=state, task_id=task_id)


def _place_of(asked: InputRequiredResult) -> tuple[str | None, str | None]:
    return asked.request_state, asked.task_id if isinstance(asked, TaskRound) else None


async def send(session: ClientSession, leg: LegRequest, *, progress: ProgressFnT | None = None) -> LegResult:
    """Send one leg and return its result, which may be questions.

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
    """Return the parameters of a question."""
    return request.params if isinstance(request, ElicitRequest | CreateMessageRequest) else None


SendLeg: TypeAlias = Callable[[LegRequest], Awaitable[ResultT | InputRequiredResult]]
AnswerRound = Callable[[InputRequiredResult], Awaitable[Mapping[str, InputResponse] | None]]
"""Answers the questions of a round by name; None leaves the call."""
AnswerLive = Callable[[InputRequest], Awaitable[InputResponse | ErrorData | None]]
"""Answers a question of the live era, where questions have no names; None is sent as an error."""

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
    """Send legs until one returns the final result, the client leaves, or there are too many rounds.

    Args:
        leg: The first request of the call.
        send: Sends one leg.
        answer: Answers one round of questions.
        max_rounds: The number of rounds to answer.
        max_pause: The longest pause before a leg is sent again that was answered without a question; None to treat
            such an answer as any other round.

    Returns:
        The final result; the last round of questions, if it was not answered.
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
    """Make the callbacks of an `mcp.Client`, as arguments of it, which answer in the live era with one function.

    The client declares that it can answer whatever it has a callback for.

    Args:
        answer: Answers one question.
        elicit: Answer forms and pages.
        sample: Answer for a model.
        list_roots: Answer with roots.
    """

    async def elicited(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        return _of_kind(ElicitResult, await answer(ElicitRequest(params=params)))

    async def sampled(
        context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        return _of_kind(CreateMessageResult, await answer(CreateMessageRequest(params=params)))

    async def listed(context: ClientRequestContext) -> ListRootsResult | ErrorData:
        return _of_kind(ListRootsResult, await answer(ListRootsRequest()))

    return {
        "elicitation_callback": elicited if elicit else None,
        "sampling_callback": sampled if sample else None,
        "list_roots_callback": listed if list_roots else None,
    }


def _of_kind(kind: type[ResponseT], answer: InputResponse | ErrorData | None) -> ResponseT | ErrorData:
    return answer if isinstance(answer, kind | ErrorData) else _UNANSWERED


async def never_live(request: InputRequest) -> ErrorData:
    """Reject a question of the live era, for clients that declare capabilities and speak the retry era."""
    raise AssertionError(f"{request.method} came over the open connection; the retry era returns questions")


async def within(
    connection: AbstractAsyncContextManager[ConnectionT],
    work: Callable[[ConnectionT], Awaitable[T]],
    *,
    scope: AbstractContextManager[Any] | None = None,
) -> T:
    """Run some work inside a connection, and raise its error without the groups that transports put around it.

    Args:
        connection: Connects, and disconnects at the end.
        work: The work.
        scope: A cancel scope around both.

    Raises:
        TimeoutError: The scope was canceled first.
    """
    done: list[T] = []
    failure: Exception | None = None
    try:
        with scope or nullcontext():
            async with connection as connected:
                try:
                    done.append(await work(connected))
                except Exception as error:  # noqa: BLE001  # raised inside the connection it would become a group
                    failure = error
    except Exception as error:  # noqa: BLE001  # a transport may raise anything
        failure = failure or error
    if failure is not None:
        raise _alone(failure)
    if not done:
        raise TimeoutError
    return done[0]


def _alone(error: Exception) -> Exception:
    """Return the error in a group of one; a larger group stays, as each of its errors is evidence."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return _alone(inner[0]) if len(inner) == 1 else cast("Exception", error)
