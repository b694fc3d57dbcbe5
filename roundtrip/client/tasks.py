"""The client side of the Tasks extension, which follows calls that have become tasks.

A task continues like a retry-era call. Its open questions arrive as a round, and the answers are sent in the next leg.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, cast

import anyio
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequests, Request, RequestParams, Result
from pydantic import BaseModel, TypeAdapter

from roundtrip.client.legs import FinalResult, LegRequest, LegResult, TaskRound

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_REQUESTS: Final[TypeAdapter[InputRequests]] = TypeAdapter(InputRequests)
_MIN_POLL_SECONDS: Final = 0.05
_MAX_POLL_SECONDS: Final = 60.0

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
_ResultT = TypeVar("_ResultT", bound=BaseModel)


class TaskCancelled(Exception):
    """This client or an operator cancelled the task."""


class _Handle(Result):
    """A task handle in a `tools/call` result."""

    result_type: Literal["task"]
    task_id: str


class RemoteTask(Result):
    """A task in a `tasks/get` result."""

    task_id: str
    status: Status
    status_message: str | None = None
    poll_interval_ms: int | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def shown(self) -> str:
        """Return the status and its message as readable text."""
        message = f": {self.status_message}" if self.status_message else ""
        return f"{self.status.replace('_', ' ')}{message}"

    @property
    def pause(self) -> float:
        """Return how many seconds to wait between polls. The server chooses this interval."""
        seconds = (self.poll_interval_ms or 1000) / 1000
        return min(max(seconds, _MIN_POLL_SECONDS), _MAX_POLL_SECONDS)


class _EmptyResult(BaseModel):
    """An empty result, from `tasks/update` or `tasks/cancel`."""


class _TaskParams(RequestParams):
    task_id: str
    input_responses: Mapping[str, Any] | None = None


class _TaskRequest(Request[_TaskParams, str]):
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """The Tasks extension, for `Client(extensions=[TasksExtension()])`."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Accept task handles as `tools/call` results."""
        return [ResultClaim(result_type="task", model=_Handle, resolve=_resolve)]


async def _resolve(handle: Result, context: ClaimContext) -> CallToolResult:
    raise AssertionError("a call that may become a task must be sent by `follow`")


class TaskRequests:
    """Requests that one session sends to one task.

    Args:
        session: The session.
        task_id: The task's id.
    """

    def __init__(self, session: ClientSession, task_id: str) -> None:
        self._session = session
        self.task_id = task_id

    async def get(self) -> RemoteTask:
        """Return the task's current state."""
        return await self._send("tasks/get", RemoteTask)

    async def update(self, answers: Mapping[str, Any]) -> None:
        """Send answers to open questions."""
        await self._send("tasks/update", _EmptyResult, answers)

    async def cancel(self) -> None:
        """Cancel the task."""
        await self._send("tasks/cancel", _EmptyResult)

    async def _send(self, method: str, result: type[_ResultT], answers: Mapping[str, Any] | None = None) -> _ResultT:
        params = _TaskParams(task_id=self.task_id, input_responses=answers)
        return await self._session.send_request(_TaskRequest(method=method, params=params), cast("Any", result))


async def follow(
    session: ClientSession,
    leg: LegRequest,
    *,
    send: Callable[[LegRequest], Awaitable[LegResult | Result]],
    seen: Callable[[RemoteTask], None],
    pace: float | None = None,
) -> LegResult:
    """Send one leg. If the call is or becomes a task, poll the task until it asks questions or ends.

    Args:
        session: The session.
        leg: The leg. If it continues a task, its answers are sent to the task.
        send: A function that sends a leg that does not continue a task. It may return a task handle.
        seen: A function that receives the task's state after each poll.
        pace: Seconds between polls. The default is the server's poll interval.

    Returns:
        The result, or a `TaskRound` with the open questions.

    Raises:
        TaskCancelled: The task was cancelled.
        MCPError: The task failed, or the server answered with an error.
    """
    task_id = leg.task_id
    if task_id is None:
        first = await send(leg)
        if not isinstance(first, _Handle):
            return cast("LegResult", first)
        task_id = first.task_id
    requests = TaskRequests(session, task_id)
    if leg.task_id is not None and leg.answers:
        await requests.update(leg.answers)
    while True:
        task = await requests.get()
        seen(task)
        if (end := _result_of(task)) is not None:
            return end
        await anyio.sleep(task.pause if pace is None else pace)


def question_name(key: str, before: Container[str | None]) -> str:
    """Return the name of the question that has this key in a task. If a question is asked again, its key changes, for
    example to `seat#2`.
    """
    name, _, number = key.rpartition("#")
    return name if number.isdecimal() and name in before else key


def _result_of(task: RemoteTask) -> FinalResult | TaskRound | None:
    """Return a task's result, or its open questions. Return None while the task is working."""
    match task.status:
        case "completed":
            return CallToolResult.model_validate(task.result or {})
        case "failed":
            error = task.error or {}
            raise MCPError(code=error.get("code", 0), message=error.get("message", ""), data=error.get("data"))
        case "cancelled":
            raise TaskCancelled("the task was cancelled")
        case "input_required" if task.input_requests:
            return TaskRound(input_requests=_REQUESTS.validate_python(task.input_requests), task_id=task.task_id)
        case _:
            return None
