"""A call that a real client sends for the page. The developer answers all its questions on the page."""

import json
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, cast, get_args

import anyio
from mcp.client import Client
from mcp.client.extension import ClientExtension, advertise
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    LoggingMessageNotificationParams,
    TextResourceContents,
    ToolListChangedNotification,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from roundtrip.channels.server_channels import APP_MIME_TYPE, UI_EXTENSION
from roundtrip.client.call import all_tools
from roundtrip.client.failures import CallFailed, innermost
from roundtrip.client.legs import Era, LegRequest, LegResult, TaskRound, callbacks, drive, send, within
from roundtrip.client.link_client import LinkClient
from roundtrip.client.targets import Target
from roundtrip.client.tasks import RemoteTask, TaskCancelled, TaskRequests, TasksExtension, follow, question_name
from roundtrip.client.terminal import Terminal
from roundtrip.playground.questions import OpenQuestion
from roundtrip.playground.results import result_data
from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.testing.conversations import Message
from roundtrip.testing.networks.fleet import APP_SETTINGS
from roundtrip.testing.question_pages import waiting_call
from roundtrip.testing.tap import tapped
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.forms import json_text
from roundtrip.untrusted import list_of, mapping_of

ClientKind = Literal["forms", "links", "apps", "none"]
"""What the client declares that it can show: forms and links, only links, only MCP Apps, or nothing."""
PlayedState = Literal["executing", "awaiting_input", "completed", "failed", "declined", "cancelled"]
"""A call's state as the client sees it. Traces use the same names."""

_REVISIONS: Final = {Era.RETRY: FIRST_OF_RETRY_ERA, Era.LIVE: max(HANDSHAKE_PROTOCOL_VERSIONS)}
_MAX_ROUNDS: Final = 100
_MAX_EVENTS: Final = 500
_MAX_NOTE_CHARS: Final = 2000
_MAX_MESSAGES: Final = 300
_MAX_SHOWN_CHARS: Final = 100_000
_MAX_ALL_CHARS: Final = 1_000_000
"""Maximum total length of a call's messages. When it is exceeded, each new message is cut to `_MAX_LATE_CHARS`."""
_MAX_LATE_CHARS: Final = 500
_MAX_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class CallSettings:
    """A call to make, and its client settings."""

    tool: str
    arguments: Mapping[str, Any]
    era: Era = Era.RETRY
    client: ClientKind = "forms"
    has_tasks: bool = True
    """True if the client declares the Tasks extension."""

    @classmethod
    def read(cls, tool: str, arguments: Mapping[str, Any], request: Mapping[str, Any]) -> "CallSettings":
        """Read the client settings from a page request.

        Raises:
            ValueError: A setting has an unknown value.
        """
        eras = {revision: era for era, revision in _REVISIONS.items()}
        era, client = eras.get(str(request.get("era"))), request.get("client")
        if era is None:
            raise ValueError(f"era must be one of {', '.join(eras)}")
        if client not in get_args(ClientKind):
            raise ValueError(f"client must be one of {', '.join(get_args(ClientKind))}")
        return cls(tool, arguments, era, cast("ClientKind", client), request.get("tasks") is True)


@dataclass(frozen=True, slots=True)
class PlayedApp:
    """An app in the conversation."""

    document: str
    tools: frozenset[str]
    """The tools that the app may call."""


@dataclass(slots=True, eq=False)
class PlayedCall:
    """A call that is running or has ended."""

    id: str
    """The call's id on the page."""
    settings: CallSettings
    _target: Target
    _terminal: Terminal
    """Shows the standard error of a server that was started as a command."""
    _changed: Callable[[], None]
    """Called after every change to the call."""
    _tools_changed: Callable[[], None]
    """Called when the server reports that its tool list has changed."""
    state: PlayedState = "executing"
    has_ended: bool = False
    """True after the last leg. If the result is only a handle, the call's last state is `awaiting_input`."""
    began_at: float = field(default_factory=time.time)
    trace_id: str | None = None
    """The call's id in the trace; None while it is unknown."""
    tokens: list[str] = field(default_factory=list[str])
    result: CallToolResult | None = None
    _questions: list[OpenQuestion] = field(default_factory=list[OpenQuestion])
    _events: list[Data] = field(default_factory=list[Data])
    _messages: list[Data] = field(default_factory=list[Data])
    _omitted_messages: int = 0
    _failure: str = ""
    _task: RemoteTask | None = None
    """The task that the call became, as of the last poll."""
    app: PlayedApp | None = None
    """The app that the result opens."""
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def is_declined(self) -> bool:
        """Return True if a question was declined or cancelled."""
        return any(question.is_declined for question in self._questions)

    def summary(self) -> Data:
        """Return the call's entry in the page's list of calls."""
        return {"id": self.id, "tool": self.settings.tool, "state": self.state}

    def data(self) -> Data:
        """Return the call as page data."""
        return {
            **self.summary(),
            "over": self.has_ended,
            "arguments": json_text(self.settings.arguments, indent=2),
            "era": _REVISIONS[self.settings.era],
            "client": self.settings.client,
            "task": self._task.task_id if self._task is not None else None,
            "questions": [question.data() for question in self._questions],
            "happened": self._events,
            "result": result_data(self.result) if self.result is not None else None,
            "app": _as_json(self.result) if self.result is not None and self.app is not None else None,
            "failure": self._failure,
            "messages": self._messages,
            "leftOut": self._omitted_messages,
        }

    def question(self, id: str) -> OpenQuestion | None:
        """Return one of the call's questions; None for an unknown id."""
        return next((question for question in self._questions if question.id == id), None)

    async def stop(self) -> None:
        """Cancel the call. If the call is a task, also cancel the task on the server."""
        if not self.has_ended and (task := self._task) is not None:
            try:
                with anyio.move_on_after(5):
                    await within(self._connect(), lambda client: TaskRequests(client.session, task.task_id).cancel())
            except Exception as error:  # noqa: BLE001  # the call ends in any case
                self._note("note", f"the task could not be cancelled: {innermost(error)}")
        self._scope.cancel()

    async def run(self) -> None:
        """Run the call until it ends."""
        try:
            with self._scope:
                await self._run_legs()
        except Exception as error:  # noqa: BLE001  # a transport may raise anything, and the page shows it
            self._end("declined" if self.is_declined else "failed", self._failure_text(innermost(error)))
        finally:
            if not self.has_ended:
                self._end("cancelled", "You cancelled the call.")

    async def _run_legs(self) -> None:
        leg = LegRequest(self.settings.tool, self.settings.arguments)
        drive_call = partial(drive, leg, answer=self._answer_round, max_pause=_MAX_PAUSE_SECONDS)
        if self.settings.era is Era.RETRY and self._target.url is not None:
            # Open a new connection for each leg, because a reload may have replaced the process that served the
            # previous leg.
            async def send_leg(leg: LegRequest) -> LegResult:
                return await within(self._connect(), partial(self._send, leg=leg))

            result = await drive_call(send=send_leg)
        else:

            async def converse(client: Client) -> LegResult:
                return await drive_call(send=partial(self._send, client))

            result = await within(self._connect(), converse)
        self.result = cast("CallToolResult", result)
        if self.settings.client == "apps":
            await within(self._connect(), self._open_app)
        if not self.result.is_error:
            self._end("completed" if waiting_call(self.result) is None else "awaiting_input")
        else:
            self._end("declined" if self.is_declined else "failed")

    async def _open_app(self, client: Client) -> None:
        """Read the app document that the call's tool names."""
        uis = {tool.name: mapping_of((tool.meta or {}).get("ui")) for tool in await all_tools(client)}
        tools = frozenset(name for name, ui in uis.items() if "app" in list_of(ui.get("visibility", ["app"])))
        if isinstance(uri := uis.get(self.settings.tool, {}).get("resourceUri"), str):
            for content in (await client.read_resource(uri)).contents:
                if isinstance(content, TextResourceContents) and content.mime_type == APP_MIME_TYPE:
                    self.app = PlayedApp(content.text, tools)

    async def call_for_app(self, tool: str, arguments: Mapping[str, Any]) -> Data:
        """Call a tool for the app, and return its result.

        Raises:
            ValueError: The app must not call this tool.
        """
        if self.app is None or tool not in self.app.tools:
            raise ValueError(f"the app must not call the tool {tool!r}")
        return _as_json(await within(self._connect(), lambda client: client.call_tool(tool, dict(arguments))))

    async def _send(self, client: Client, leg: LegRequest) -> LegResult:
        send_leg = partial(send, client.session, progress=self._progress)
        result = await follow(client.session, leg, send=send_leg, seen=self._polled)
        if isinstance(result, InputRequiredResult) and result.request_state is not None:
            self.tokens.append(result.request_state)
            self._changed()
        return result

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        kind = LinkClient if self.settings.client == "links" else Client
        asks = self.settings.client in ("forms", "links")
        has_tasks = self.settings.has_tasks and self.settings.era is Era.RETRY
        extensions: list[ClientExtension] = [TasksExtension()] if has_tasks else []
        if self.settings.client == "apps":
            extensions.append(advertise(UI_EXTENSION, APP_SETTINGS["apps"]))
        async with kind(
            tapped(self._target.connect(self._terminal), self._record_message),
            mode=self.settings.era.mode,
            logging_callback=self._log,
            log_level="debug",
            message_handler=self._notice,
            cache=None,
            extensions=extensions,
            **callbacks(self._answer_live, elicit=asks, sample=asks, list_roots=asks),
        ) as client:
            yield client

    # Questions.

    async def _answer_round(self, asked: InputRequiredResult) -> Mapping[str, InputResponse]:
        round = self._next_round()
        questions: dict[str, OpenQuestion] = {}
        for key, request in (asked.input_requests or {}).items():
            before = [question.key for question in self._questions]
            name = question_name(key, before) if isinstance(asked, TaskRound) else key
            questions[key] = self._open(name, request, round)
        await self._wait_for(*questions.values())
        responses: dict[str, InputResponse] = {}
        for key, question in questions.items():
            if isinstance(question.response, ErrorData):
                raise CallFailed(
                    f"You declined the question {key!r}. For this kind of question, a client cannot report that, so "
                    "the call ends here."
                )
            if question.response is not None:
                responses[key] = question.response
        return responses

    async def _answer_live(self, request: InputRequest) -> InputResponse | ErrorData:
        question = self._open(None, request, self._next_round())
        await self._wait_for(question)
        return question.response or ErrorData(code=0, message="no answer")

    def _next_round(self) -> int:
        """Return the number of the next round."""
        number = self._questions[-1].round + 1 if self._questions else 1
        if number > _MAX_ROUNDS:
            raise CallFailed(f"The playground ended the call after {_MAX_ROUNDS} rounds.")
        return number

    def _open(self, key: str | None, request: InputRequest, round: int) -> OpenQuestion:
        question = OpenQuestion(f"q{len(self._questions) + 1}", key, request, round)
        self._questions.append(question)
        return question

    async def _wait_for(self, *questions: OpenQuestion) -> None:
        self.state = "awaiting_input"
        self._changed()
        for question in questions:
            await question.answered.wait()
        if all(question.answered.is_set() for question in self._questions):
            self.state = "executing"
        self._changed()

    # Progress and notifications.

    def _polled(self, task: RemoteTask) -> None:
        before, self._task = self._task, task
        if before is None or task.shown != before.shown:
            self._note("task", task.shown)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        part = progress / total if total else math.nan
        done = min(max(part, 0.0), 1.0) if math.isfinite(part) else None
        self._note("progress", f"{share}{f': {message}' if message else ''}", done=done)

    async def _log(self, params: LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else json_text(params.data)
        self._note("log", f"{params.level}{f' {params.logger}' if params.logger else ''}: {text}")

    async def _notice(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            self._note("note", "the server sent a message that is not MCP; the playground ignored it")
        elif isinstance(message, ToolListChangedNotification):
            self._note("note", "the server's tools have changed")
            self._tools_changed()

    def _note(self, kind: str, text: str, *, done: float | None = None) -> None:
        if len(self._events) < _MAX_EVENTS:
            self._events.append({"kind": kind, "text": text[:_MAX_NOTE_CHARS], "done": done})
            self._changed()

    def _record_message(self, message: Message) -> None:
        sender, sent = message
        if len(self._messages) >= _MAX_MESSAGES:
            self._omitted_messages += 1
        else:
            text = json.dumps(sent, ensure_ascii=False)
            # Limit the total length, because each change sends all messages to the page again.
            shown = sum(len(one["text"]) for one in self._messages)
            limit = _MAX_SHOWN_CHARS if shown < _MAX_ALL_CHARS else _MAX_LATE_CHARS
            if len(text) > limit:
                text = f"{text[:limit]} … ({len(text)} characters)"
            at = f"{time.time() - self.began_at:.2f} s"
            self._messages.append({"from": sender, "title": _title(sent), "at": at, "text": text})
        self._changed()

    # The end.

    def _end(self, state: PlayedState, failure: str = "") -> None:
        self.state = state
        self.has_ended = True
        self._failure = failure
        self._changed()

    def _failure_text(self, error: Exception) -> str:
        status = f" (HTTP status {self._target.status})" if self._target.status is not None else ""
        match error:
            case CallFailed():
                return str(error)
            case TaskCancelled():
                return "The task was cancelled."
            case MCPError():
                lost = " Its session ended with its process." if self.settings.era is Era.LIVE and status else ""
                return f"The server answered with an error: {error} [{error.code}]{status}{lost}"
            case _:
                return f"No answer came from the server: {error or type(error).__name__}{status}"


def _as_json(result: CallToolResult) -> Data:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _title(message: Mapping[str, Any]) -> str:
    if "method" in message:
        name = mapping_of(message.get("params")).get("name")
        return f"{message['method']}{f' {name}' if isinstance(name, str) else ''}"
    return "error" if "error" in message else "result"
