"""One call at the terminal: connect, list the tools or call a tool, answer its questions, and report the result."""

import json
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, cast, get_args

import anyio
import httpx2
from mcp.client import Client
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    REQUEST_TIMEOUT,
    CallToolResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Root,
    Tool,
)
from pydantic import ValidationError

from roundtrip.client.answers import DECLINED, Answerer, AnswerFile, kind_of_question
from roundtrip.client.failures import CallFailed, ExitCode, innermost, quiet
from roundtrip.client.legs import Era, LegRequest, LegResult, TaskRound, callbacks, drive, send, within
from roundtrip.client.targets import Target
from roundtrip.client.tasks import RemoteTask, TaskCancelled, TaskRequests, TasksExtension, follow, question_name
from roundtrip.client.terminal import Terminal
from roundtrip.client.tools import WAITING, arguments_of, find_tool, text_of_result
from roundtrip.text import printable
from roundtrip.untrusted import mapping_of

LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
"""Log levels, from least to most severe."""

_LOST_PREFIXES: Final = ("Connection closed", "SSE stream ", "Reconnection failed")
"""When the SDK's client loses a connection, its error message begins with one of these. The error code is not enough,
because servers may use the same code.
"""

_NOT_SENT_ERRORS: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_MAX_PAGES: Final = 100
_MAX_ROUNDS: Final = 100
_LOST_SECONDS: Final = 60.0
"""How long a task's server may be unreachable before the client gives up."""
_RECONNECT_SECONDS: Final = 1.0
_MAX_PAUSE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Options for one call."""

    target: Target
    answers: AnswerFile
    tool: str | None = None
    """The tool's name; None to list the tools."""
    arguments: Sequence[str] = ()
    era: Era = Era.AUTO
    step: bool = False
    timeout: float | None = None
    roots: Sequence[Root] = ()
    log_level: LoggingLevel = "info"
    has_tasks: bool = True
    """True to declare the Tasks extension."""
    task_id: str | None = None
    """The id of a task to continue; None to make a new call."""
    cancels: bool = False
    """True to cancel the task `task_id`."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call."""

    result: CallToolResult
    declined: bool
    """True if a question was declined or cancelled."""

    @property
    def ending(self) -> ExitCode:
        """Return the command's exit code."""
        if not self.result.is_error:
            return ExitCode.WAITING if WAITING.search(text_of_result(self.result)) else ExitCode.COMPLETED
        return ExitCode.DECLINED if self.declined else ExitCode.TOOL_FAILED


async def carry_out(plan: CallPlan, terminal: Terminal) -> list[Tool] | CallResult:
    """List the tools, or call a tool.

    Raises:
        CallFailed: The call has no result.
    """
    return await _Caller(plan, terminal).carry_out()


class _Caller:
    """The state of one call while its plan is carried out."""

    def __init__(self, plan: CallPlan, terminal: Terminal) -> None:
        self._plan = plan
        self._terminal = terminal
        self._answerer = Answerer(terminal, plan.answers, plan.roots, plan.tool)
        self._time_limit = _TimeLimit(plan.timeout)
        self._failure: CallFailed | None = None
        """A failure in a callback. The callback must not raise the failure, because the server would receive an error
        response.
        """
        self._question_count = 0
        self._names = set[str]()
        """The names of all questions that the server has asked so far."""
        self._task_leg: LegRequest | None = None
        """The leg that continues the task, if the call is a task."""
        self._lost_at: float | None = None
        """The time at which the task's server became unreachable."""
        self._status: str | None = None
        """The task status that was last shown."""
        self._was_sent = False
        """True once a request for the call has been sent."""
        self._began_at = 0.0

    async def carry_out(self) -> list[Tool] | CallResult:
        while True:
            try:
                with quiet():
                    return await within(self._client(), self._converse, scope=self._time_limit.limit())
            except Exception as error:
                inner = innermost(error)
                if self._failure is not None or not self._may_reconnect(inner):
                    raise self._failure or self._describe_failure(inner) from error
            await anyio.sleep(_RECONNECT_SECONDS)

    def _may_reconnect(self, error: Exception) -> bool:
        """Return True if the connection failed and the call is a task, which outlives its connection."""
        has_task = self._task_leg is not None and self._plan.target.url is not None
        if not has_task or self._time_limit.has_passed or not (_is_connection_error(error) or _is_store_error(error)):
            return False
        now = anyio.current_time()
        if self._lost_at is None:
            self._lost_at = now
            self._terminal.say("cannot reach the server; trying again", style="yellow")
        return now - self._lost_at < _LOST_SECONDS

    def _client(self) -> Client:
        return Client(
            self._plan.target.connection(self._terminal),
            mode=self._plan.era.mode,
            logging_callback=self._log,
            log_level=self._plan.log_level,
            message_handler=self._report_invalid_message,
            cache=None,
            extensions=[TasksExtension()] if self._plan.has_tasks else None,
            **callbacks(self._answer_live, list_roots=bool(self._plan.roots)),
        )

    async def _converse(self, client: Client) -> list[Tool] | CallResult:
        plan, session = self._plan, client.session
        if (leg := self._task_leg) is None and plan.task_id is not None:
            leg = LegRequest("", task_id=plan.task_id)
            if plan.cancels:
                await TaskRequests(session, plan.task_id).cancel()
        if leg is None:
            tools = await all_tools(client)
            if plan.tool is None:
                return tools
            leg = LegRequest(plan.tool, arguments_of(find_tool(tools, plan.tool), plan.arguments))
        self._began_at = self._began_at or anyio.current_time()
        send_tool_leg = partial(send, session, progress=self._progress)

        async def send_leg(leg: LegRequest) -> LegResult:
            if leg.task_id is not None:
                self._task_leg = leg
            self._was_sent = True
            return await follow(session, leg, send=send_tool_leg, seen=self._show_task)

        result = await drive(leg, send=send_leg, answer=self._answer_round, max_pause=_MAX_PAUSE_SECONDS)
        return CallResult(cast("CallToolResult", result), self._answerer.declined)

    def _show_task(self, task: RemoteTask) -> None:
        """Restart the time limit, and show the task's status if it has changed."""
        self._time_limit.restart(task.pause)
        self._lost_at = None
        if self._task_leg is None:
            self._task_leg = LegRequest("", task_id=task.task_id)
        if self._status is None:
            self._terminal.say(f"task {printable(task.task_id)}; use --task to continue it later", style="dim")
        if task.shown != self._status:
            self._status = task.shown
            self._terminal.say(f"... {printable(task.shown)}", style="dim")

    async def _answer_round(self, round_: InputRequiredResult) -> Mapping[str, InputResponse]:
        requests = round_.input_requests or {}
        self._count("rounds")
        responses: dict[str, InputResponse] = {}
        with self._time_limit.paused():
            if self._plan.step:
                asks = ", ".join(f"{printable(key)} ({kind_of_question(one)})" for key, one in requests.items())
                size = "none" if round_.request_state is None else f"{len(round_.request_state.encode())} bytes"
                await self._wait_for_enter(f"Round {self._question_count}: asks {asks}; request state: {size}")
            for key, request in requests.items():
                name = question_name(key, self._names) if isinstance(round_, TaskRound) else key
                self._names.add(name)
                response = await self._answerer.answer(request, key=name)
                if isinstance(response, ErrorData):
                    raise CallFailed(
                        f"the question {key!r} was declined; the call ends here, because a client cannot decline a "
                        "question that a model answers",
                        ExitCode.DECLINED,
                    )
                responses[key] = response
        return responses

    async def _answer_live(self, request: InputRequest) -> InputResponse | ErrorData:
        try:
            self._count("questions")
            with self._time_limit.paused():
                if self._plan.step:
                    kind = kind_of_question(request)
                    await self._wait_for_enter(f"Question {self._question_count} ({kind}); the request stays open")
                return await self._answerer.answer(request)
        except CallFailed as failure:
            # End the call. If this callback raised the failure, the server would receive an error response.
            self._failure = self._failure or failure
            self._time_limit.end()
            return DECLINED

    def _count(self, unit: str) -> None:
        self._question_count += 1
        if self._question_count > _MAX_ROUNDS:
            raise CallFailed(
                f"the client gave up after {_MAX_ROUNDS} {unit}; a server asks forever if a page is never finished, or "
                "if a question changes each time",
                ExitCode.SERVER_ERROR,
            )

    async def _wait_for_enter(self, state: str) -> None:
        self._terminal.say()
        self._terminal.say(f"{state}; {anyio.current_time() - self._began_at:.1f} s so far", style="cyan")
        if await self._terminal.ask("Press Enter to continue:") is None:
            raise CallFailed("stopped between two rounds", ExitCode.DECLINED)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._terminal.say(f"... {share}{f': {printable(message)}' if message else ''}", style="dim")

    async def _log(self, params: LoggingMessageNotificationParams) -> None:
        if LEVELS.index(params.level) < LEVELS.index(self._plan.log_level):
            return
        source = f" {printable(params.logger)}" if params.logger else ""
        text = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False)
        self._terminal.say(f"[{params.level}]{source}: {printable(text)}", style="dim")

    async def _report_invalid_message(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            self._terminal.say("(ignored an invalid MCP message from the server)", style="yellow")

    def _describe_failure(self, error: Exception) -> CallFailed:
        """Convert an error to a failure, which has a message for the user and an exit code."""
        status = self._plan.target.status_text
        ending = ExitCode.NO_CONNECTION
        was_connected = not isinstance(error, _NOT_SENT_ERRORS)
        match error:
            case CallFailed():
                return error
            case TaskCancelled():
                # If this client did not cancel the task, an operator did.
                ending = ExitCode.COMPLETED if self._plan.cancels else ExitCode.SERVER_ERROR
                return CallFailed("the task was cancelled", ending)
            case TimeoutError() if self._time_limit.has_passed:
                text = f"the server did not answer within {self._plan.timeout:g} seconds{self._advice}; see --timeout"
                return CallFailed(text, ending)
            case MCPError() | httpx2.TransportError() if was_connected and _is_connection_error(error):
                text = f"the connection was lost: {_error_text(error).rstrip('.')}{self._advice}"
            case MCPError():
                text = f"the server answered with an error: {error} [{error.code}]"
                if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and not self._plan.has_tasks:
                    text += "; remove --no-tasks"
                ending = ExitCode.DECLINED if self._answerer.declined else ExitCode.SERVER_ERROR
            case ValidationError() | RuntimeError():
                text, ending = f"the server broke the protocol: {_error_text(error)}", ExitCode.SERVER_ERROR
            case _:
                text = f"cannot reach the server: {_error_text(error)}; is it running, and is the address right?"
        return CallFailed(text + status, ending)

    @property
    def _advice(self) -> str:
        """Return advice about the unfinished call, to append to an error message."""
        if self._task_leg is not None:
            return "; use --task to continue the task"
        return "; the call may have run, so check its effects before you repeat it" if self._was_sent else ""


class _TimeLimit:
    """A time limit for the server's responses. The time that the user takes to answer does not count."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._scope = anyio.CancelScope()
        self._pauses = 0

    @property
    def has_passed(self) -> bool:
        return self._scope.cancelled_caught

    def limit(self) -> anyio.CancelScope:
        """Return a scope that is cancelled when the time limit has passed."""
        self._scope = anyio.CancelScope()
        self.restart()
        return self._scope

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the time limit until the `with` block ends. After the last pause, the full time is available again."""
        self._pauses += 1
        self._scope.deadline = math.inf
        try:
            yield
        finally:
            self._pauses -= 1
            self.restart()

    def end(self) -> None:
        self._scope.cancel()

    def restart(self, pause: float = 0.0) -> None:
        """Restart the time limit, extended by `pause` seconds. Do nothing while the limit is paused."""
        if not self._pauses:
            self._scope.deadline = anyio.current_time() + pause + self._seconds


async def all_tools(client: Client) -> list[Tool]:
    """Return all of a server's tools. Request them page by page.

    Raises:
        CallFailed: The tool list has too many pages.
    """
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools
    raise CallFailed(f"the server's tool list must end within {_MAX_PAGES} pages", ExitCode.SERVER_ERROR)


def _is_connection_error(error: Exception) -> bool:
    """Return True if the connection failed; False if the server reported an error."""
    if not isinstance(error, MCPError):
        return isinstance(error, OSError | httpx2.TransportError)
    is_from_client = error.error.data is None and error.error.message.startswith(_LOST_PREFIXES)
    return error.code == REQUEST_TIMEOUT or (error.code == CONNECTION_CLOSED and is_from_client)


def _is_store_error(error: Exception) -> bool:
    """Return True if the server currently cannot reach its task store."""
    return isinstance(error, MCPError) and mapping_of(error.error.data).get("reason") == "ledger_unavailable"


def _error_text(error: Exception) -> str:
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        return f"{where}: {problem['msg']}" if where else problem["msg"]
    return f"{error}" or type(error).__name__
