"""The one driver of calls: leg by leg on the retry era, by callback on the live era.

`roundtrip call`, `check`, `demo`, `doctor` and the testing kit drive their calls with it. Each passes a function that
sends a leg and a function that answers questions.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar, cast

from mcp.client.session import ClientRequestContext, ElicitationFnT, ListRootsFnT, SamplingFnT
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
)

from roundtrip.client.legs import LegRequest

__all__ = ["AnswerLive", "AnswerRound", "ClientCallbacks", "SendLeg", "callbacks", "drive", "never_live", "within"]

# A failing test shows where the test failed, and no frame of this module.
__tracebackhide__ = True

T = TypeVar("T")
ConnectionT = TypeVar("ConnectionT")
ResponseT = TypeVar("ResponseT")

ResultT = TypeVar("ResultT")

SendLeg: TypeAlias = Callable[[LegRequest], Awaitable[ResultT | InputRequiredResult]]
AnswerRound = Callable[[InputRequiredResult], Awaitable[Mapping[str, InputResponse] | None]]
"""Answers the questions of a round by name; None leaves the call."""
AnswerLive = Callable[[InputRequest], Awaitable[InputResponse | ErrorData | None]]
"""Answers a question of the live era, where questions have no names; None is sent as an error."""

_UNANSWERED: Final = ErrorData(code=-32000, message="the client has no answer")


async def drive(
    leg: LegRequest, *, send: SendLeg[ResultT], answer: AnswerRound, max_rounds: int | None = None
) -> ResultT | InputRequiredResult:
    """Send legs until one returns the final result, the client leaves, or there are too many rounds.

    Args:
        leg: The first request of the call.
        send: Sends one leg.
        answer: Answers one round of questions.
        max_rounds: The number of rounds to answer.

    Returns:
        The final result; the last round of questions, if it was not answered.
    """
    rounds = 0
    while isinstance(result := await send(leg), InputRequiredResult) and rounds != max_rounds:
        answers = await answer(result)
        if answers is None:
            break
        rounds += 1
        leg = replace(leg, answers=answers if result.input_requests else None, state=result.request_state)
    return result


@dataclass(frozen=True, slots=True)
class ClientCallbacks:
    """The callbacks of an `mcp.Client`. A client declares that it can answer those that are not None."""

    elicit: ElicitationFnT | None = None
    sample: SamplingFnT | None = None
    list_roots: ListRootsFnT | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Return them as arguments of `mcp.Client`."""
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
        }


def callbacks(
    answer: AnswerLive, *, elicit: bool = True, sample: bool = True, list_roots: bool = True
) -> ClientCallbacks:
    """Make the callbacks of a client that answers the questions of the live era with one function.

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

    return ClientCallbacks(elicited if elicit else None, sampled if sample else None, listed if list_roots else None)


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
