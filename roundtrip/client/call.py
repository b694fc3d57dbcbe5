"""One call at the terminal: connect, list the tools, call one, answer what it asks, and tell how it ended."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

import anyio
from mcp.client import Client
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
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
    LoggingLevel,
    LoggingMessageNotificationParams,
    Root,
    Tool,
)
from pydantic import ValidationError

from roundtrip.client.answering import DECLINED, Answering, kind_of_question
from roundtrip.client.answers import AnswerFile
from roundtrip.client.arguments import arguments_of, find_tool
from roundtrip.client.endings import CallFailed, ExitCode
from roundtrip.client.legs import Era, LegRequest, send
from roundtrip.client.patience import Patience
from roundtrip.client.targets import Target
from roundtrip.client.terminal import Terminal
from roundtrip.client.trouble import innermost, quiet
from roundtrip.safe_text import printable

__all__ = ["LEVELS", "CallPlan", "Called", "Listed", "carry_out"]

LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
"""From the chattiest to the gravest."""

_LOST: Final = ("Connection closed", "SSE stream ", "Reconnection failed")
"""How errors begin that the SDK's client makes up itself. Servers have their own use for the same number."""

_PAGES: Final = 100
_ROUNDS: Final = 100
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What to call, and how."""

    target: Target
    answers: AnswerFile
    tool: str | None = None
    """None lists the tools."""
    arguments: Sequence[str] = ()
    era: Era = Era.AUTO
    step: bool = False
    timeout: float | None = None
    roots: Sequence[Root] = ()
    log_level: LoggingLevel = "info"


@dataclass(frozen=True, slots=True)
class Listed:
    """The tools of a server."""

    tools: list[Tool]


@dataclass(frozen=True, slots=True)
class Called:
    """A result, and whether somebody declined on the way to it."""

    result: CallToolResult
    refused: bool

    @property
    def ending(self) -> ExitCode:
        """How the call ended."""
        if not self.result.is_error:
            return ExitCode.COMPLETED
        return ExitCode.REFUSED if self.refused else ExitCode.TOOL_FAILED


async def carry_out(plan: CallPlan, terminal: Terminal) -> Listed | Called:
    """The tools, or the result of the call.

    Raises:
        CallFailed: There is none.
    """
    return await _Caller(plan, terminal).carry_out()


class _Caller:
    """Carries out one plan."""

    def __init__(self, plan: CallPlan, terminal: Terminal) -> None:
        self._plan = plan
        self._terminal = terminal
        self._answering = Answering(terminal, plan.answers, plan.roots)
        self._patience = Patience(plan.timeout)
        self._failure: Exception | None = None
        self._asked = 0
        self._began = 0.0

    async def carry_out(self) -> Listed | Called:
        done: Listed | Called | None = None
        try:
            with quiet(), self._patience:
                async with self._connected() as client:
                    try:
                        done = await self._converse(client)
                    except Exception as error:  # noqa: BLE001  # raised in here it would come out inside a group
                        self._failure = self._failure or error
        except Exception as error:  # noqa: BLE001  # whatever a transport raises is told, never traced
            self._failure = self._failure or innermost(error)
        if self._failure is not None:
            raise self._told(self._failure)
        if done is None:
            raise CallFailed(
                f"the server did not answer within {self._plan.timeout:g} seconds; see --timeout",
                ExitCode.NO_CONNECTION,
            )
        return done

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        async with Client(
            self._plan.target.connect(self._terminal),
            mode=self._plan.era.value,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
            list_roots_callback=self._list_roots if self._plan.roots else None,
            logging_callback=self._log,
            log_level=self._plan.log_level,
            message_handler=self._notice,
            cache=None,
        ) as client:
            yield client

    async def _converse(self, client: Client) -> Listed | Called:
        tools = await _all_tools(client)
        if self._plan.tool is None:
            return Listed(tools)
        arguments = arguments_of(find_tool(tools, self._plan.tool), self._plan.arguments)
        self._began = anyio.current_time()
        return Called(await self._call(client, self._plan.tool, arguments), self._answering.refused)

    async def _call(self, client: Client, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        responses: dict[str, InputResponse] | None = None
        state: str | None = None
        pause = _FIRST_PAUSE
        while True:
            leg = LegRequest(tool, arguments, answers=responses, state=state)
            result = await send(client.session, leg, progress=self._progress)
            if not isinstance(result, InputRequiredResult):
                return cast("CallToolResult", result)
            state = result.request_state
            if result.input_requests:
                responses = await self._round(result.input_requests, state)
                pause = _FIRST_PAUSE
            else:
                responses = None
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _round(self, requests: dict[str, InputRequest], state: str | None) -> dict[str, InputResponse]:
        self._asked += 1
        if self._asked > _ROUNDS:
            raise CallFailed(f"the server asked for more than {_ROUNDS} rounds", ExitCode.SERVER_ERROR)
        with self._patience.waiting_for_the_person():
            if self._plan.step:
                asks = ", ".join(f"{printable(key)} ({kind_of_question(asked)})" for key, asked in requests.items())
                size = "none" if state is None else f"{len(state.encode())} bytes"
                await self._hold(f"Round {self._asked}: asks {asks}; request state: {size}")
            responses: dict[str, InputResponse] = {}
            for key, request in requests.items():
                response = await self._answering.answer(request, key=key)
                if isinstance(response, ErrorData):
                    raise CallFailed(
                        f"the question {key!r} was declined, which this kind of question has no answer for; "
                        "the call is given up",
                        ExitCode.REFUSED,
                    )
                responses[key] = response
        return responses

    async def _hold(self, state: str) -> None:
        self._terminal.say()
        self._terminal.say(f"{state}; {anyio.current_time() - self._began:.1f} s so far", style="cyan")
        if await self._terminal.ask("Enter to go on:") is None:
            raise CallFailed("stopped between two rounds", ExitCode.REFUSED)

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        del context
        return cast("ElicitResult | ErrorData", await self._live(ElicitRequest(params=params)))

    async def _sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        del context
        return cast("CreateMessageResult | ErrorData", await self._live(CreateMessageRequest(params=params)))

    async def _list_roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        del context
        return cast("ListRootsResult | ErrorData", await self._live(ListRootsRequest()))

    async def _live(self, request: InputRequest) -> InputResponse | ErrorData:
        """Answer a question that came on the open connection."""
        self._asked += 1
        try:
            if self._asked > _ROUNDS:
                raise CallFailed(f"the server asked more than {_ROUNDS} questions", ExitCode.SERVER_ERROR)
            with self._patience.waiting_for_the_person():
                if self._plan.step:
                    kind = kind_of_question(request)
                    await self._hold(f"Question {self._asked} ({kind}); the request is held open meanwhile")
                return await self._answering.answer(request)
        except CallFailed as failure:
            # An error here would only tell the server. It is the call that ends.
            self._failure = self._failure or failure
            self._patience.give_up()
            return DECLINED

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._terminal.say(f"... {share}{f': {printable(message)}' if message else ''}", style="dim")

    async def _log(self, params: LoggingMessageNotificationParams) -> None:
        if LEVELS.index(params.level) < LEVELS.index(self._plan.log_level):
            return
        source = f" {printable(params.logger)}" if params.logger else ""
        text = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False)
        self._terminal.say(f"[{params.level}]{source}: {printable(text)}", style="dim")

    async def _notice(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            self._terminal.say("(the server sent something that is not MCP; it is ignored)", style="yellow")

    def _told(self, error: Exception) -> CallFailed:
        """An error as the person should read it, with the exit code it means."""
        status = f" (HTTP status {self._plan.target.status})" if self._plan.target.status is not None else ""
        if self._plan.target.status in (401, 403):
            status = f"{status[:-1]}; give credentials with --header)"
        match error:
            case CallFailed():
                return error
            case MCPError(code=code) if code == REQUEST_TIMEOUT or (code == CONNECTION_CLOSED and _is_made_up(error)):
                return CallFailed(f"the connection was lost: {error}{status}", ExitCode.NO_CONNECTION)
            case MCPError():
                text = f"the server answered with an error: {error} [{error.code}]{status}"
                return CallFailed(text, ExitCode.REFUSED if self._answering.refused else ExitCode.SERVER_ERROR)
            case ValidationError() | RuntimeError():
                return CallFailed(f"the server broke the protocol: {_in_short(error)}{status}", ExitCode.SERVER_ERROR)
            case _:
                return CallFailed(f"cannot reach the server: {_in_short(error)}{status}", ExitCode.NO_CONNECTION)


async def _all_tools(client: Client) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools
    raise CallFailed(f"the server's list of tools does not end after {_PAGES} pages", ExitCode.SERVER_ERROR)


def _in_short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        return f"{where}: {problem['msg']}" if where else problem["msg"]
    return f"{error}" or type(error).__name__


def _is_made_up(error: MCPError) -> bool:
    """Whether the client says that its connection is lost, and not the server something else."""
    return error.error.data is None and error.error.message.startswith(_LOST)
