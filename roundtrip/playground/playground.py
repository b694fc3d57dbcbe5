"""Page state: the server's tools, the developer's calls, and the server's trace."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from mcp.client import Client
from mcp_types import Tool

from roundtrip.channels.stored_replies import CONTINUE_TOOL
from roundtrip.client.call import all_tools
from roundtrip.client.failures import innermost
from roundtrip.client.legs import Era, within
from roundtrip.client.targets import Target
from roundtrip.client.terminal import Terminal
from roundtrip.client.tools import find_tool
from roundtrip.playground.calls import CallSettings, PlayedCall
from roundtrip.playground.forms import ShownForm, argument_schema
from roundtrip.playground.inbox import PlayedInbox
from roundtrip.playground.tokens import call_id_in_token, token_page_data
from roundtrip.text import printable
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.page.data import Data, data_of
from roundtrip.trace.page.forms import json_text
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import Revealed

_LOOK_SECONDS: Final = 0.2
"""The interval at which the transcripts are checked while a page is open."""
_REFRESH_MS: Final = 100
"""The minimum interval between two requests from the page. A server that changes often must not overload the page."""
_POLL_SECONDS: Final = 10.0
"""How long a request may wait for a change."""
_CLOCK_SKEW_SECONDS: Final = 0.5
_MAX_OPEN_CALLS: Final = 20
_MAX_CALLS: Final = 50
_MAX_NOTICES: Final = 200
_LIST_SECONDS: Final = 30.0
_INBOX_SECONDS: Final = 1.0


class TooManyCalls(Exception):
    """The page already has too many open calls."""


@dataclass(slots=True)
class _ToolList:
    """The server's tools when they were last listed."""

    tools: list[Tool] = field(default_factory=list[Tool])
    data: list[Data] = field(default_factory=list[Data])
    server: str = ""
    failure: str = ""
    version: int = 0


class Playground:
    """State and actions for one page.

    Args:
        target: The server.
        name: The server's name on the command line.
        folder: The transcript folder; None if this command did not start the server.
        keys: The server's known keys, newest first.
        inbox: Pending approvals; None if the server has no pages.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        *,
        folder: Path | None = None,
        keys: Sequence[bytes] = (),
        inbox: PlayedInbox | None = None,
    ) -> None:
        self.tasks: TaskGroup | None = None
        """Task group that runs the calls while the page is served."""
        self.version = 1
        """Number that increases with every change."""
        self._name = name
        self._target = target
        self._terminal = Terminal(listen=False)
        self._keys = keys
        self._inbox = inbox
        self._calls: dict[str, PlayedCall] = {}
        self._count = 0
        self._traces = CallIndex([folder], index_path([folder])) if folder is not None else None
        self._trace_version = 0
        self._tool_list = _ToolList()
        self._listing_due = anyio.Event()
        self._reload_failure = ""
        self._notices: deque[Data] = deque(maxlen=_MAX_NOTICES)
        self._change = anyio.Event()
        self._has_ended = False

    def end(self) -> None:
        """Wake all requests that wait for a change, and let them return."""
        self._has_ended = True
        self._change.set()

    def close(self) -> None:
        """Close the trace index."""
        if self._traces is not None:
            self._traces.close()

    # Changes.

    def mark_changed(self) -> None:
        """Increase the version and wake the requests that wait for a change."""
        self.version += 1
        self._change.set()
        self._change = anyio.Event()

    def note(self, level: str, text: str) -> None:
        """Show a line from the server log on the page."""
        self._notices.append({"level": level, "text": printable(text, keep_newlines=True)})
        self.mark_changed()

    async def wait_for_change(self, seen: int) -> None:
        """Wait until the version differs from the page's version, but not longer than `_POLL_SECONDS`."""
        with anyio.move_on_after(_POLL_SECONDS):
            while True:
                self._refresh_traces()
                if self.version != seen or self._has_ended:
                    return
                with anyio.move_on_after(_LOOK_SECONDS):
                    await self._change.wait()

    def _refresh_traces(self) -> None:
        if self._traces is not None:
            self._traces.refresh()
            if self._traces.version != self._trace_version:
                self._trace_version = self._traces.version
                self.mark_changed()

    # The server.

    async def list_tools(self) -> None:
        """Fetch the server's tool list."""

        async def converse(client: Client) -> None:
            info = client.server_info
            # The author's tools come first, then the tool that roundtrip adds.
            self._tool_list.tools = sorted(await all_tools(client), key=lambda tool: tool.name == CONTINUE_TOOL)
            if info is not None:
                self._tool_list.server = " ".join(filter(None, [info.title or info.name, info.version]))

        self._target.status = None
        try:
            with anyio.fail_after(_LIST_SECONDS):
                connection = Client(self._target.connection(self._terminal), mode=Era.AUTO.mode, cache=None)
                await within(connection, converse)
            self._tool_list.failure = ""
            self._tool_list.data = [_tool_data(tool) for tool in self._tool_list.tools]
        except Exception as error:  # noqa: BLE001  # a transport may raise anything, and the page shows it
            inner = innermost(error)
            self._tool_list.failure = (
                f"The tools cannot be listed: {inner or type(inner).__name__}{self._target.status_text}"
            )
        self._tool_list.version += 1
        self.mark_changed()

    def show_reload(self) -> None:
        """Remove the reload failure from the page, and list the new code's tools."""
        self._reload_failure = ""
        if self._inbox is not None:
            self._inbox.exists = True
        self.list_again()

    def show_reload_failure(self, reason: str) -> None:
        """Show the reason why the new code does not start."""
        self._reload_failure = printable(reason, keep_newlines=True)
        self.mark_changed()

    def list_again(self) -> None:
        """Request another tool listing. Several requests before the listing starts lead to only one listing."""
        self._listing_due.set()

    async def watch_tools(self) -> None:
        """List the tools now and after each change, until this asyncio task is cancelled."""
        while True:
            self._listing_due = anyio.Event()
            await self.list_tools()
            await self._listing_due.wait()

    # Approvals.

    async def watch_inbox(self) -> None:
        """Poll the inbox for pending approvals, until this asyncio task is cancelled."""
        while self._inbox is not None:
            if self._inbox.exists and await self._inbox.refresh():
                self.mark_changed()
            await anyio.sleep(_INBOX_SECONDS)

    async def decide(self, approval: str, decision: str, reason: str) -> None:
        """Decide an approval.

        Raises:
            ValueError: The server rejected the decision.
        """
        if self._inbox is None:
            raise ValueError("this server has no inbox")
        await self._inbox.decide(approval, decision, reason)
        if await self._inbox.refresh():
            self.mark_changed()

    # Calls.

    def tool(self, name: str) -> Tool:
        """Return the server's tool with this name.

        Raises:
            CallFailed: The server has no such tool.
        """
        return find_tool(self._tool_list.tools, name)

    def begin(self, settings: CallSettings) -> PlayedCall:
        """Start a call.

        Raises:
            TooManyCalls: Too many calls are open.
        """
        if self.tasks is None:
            raise RuntimeError("the playground page must be served before a call starts")
        if sum(not call.has_ended for call in self._calls.values()) >= _MAX_OPEN_CALLS:
            raise TooManyCalls(f"{_MAX_OPEN_CALLS} calls are open; stop some of them")
        self._count += 1
        call = PlayedCall(f"c{self._count}", settings, self._target, self._terminal, self.mark_changed, self.list_again)
        self._calls[call.id] = call
        over = [id for id, one in self._calls.items() if one.has_ended]
        for id in over[: max(0, len(self._calls) - _MAX_CALLS)]:
            del self._calls[id]
        self.tasks.start_soon(call.run)
        self.mark_changed()
        return call

    def call(self, id: str) -> PlayedCall | None:
        """Return a call; None if the id is unknown."""
        return self._calls.get(id)

    # Data.

    def data(self, call_id: str) -> Data:
        """Return the page data with the details of one call. If `call_id` is unknown, they are the details of the
        newest call.
        """
        self._refresh_traces()
        call = self._calls.get(call_id) or next(reversed(self._calls.values()), None)
        return {
            "server": {
                "target": self._name,
                "name": self._tool_list.server,
                "failure": self._reload_failure or self._tool_list.failure,
                "traced": self._traces is not None,
            },
            "tools": self._tool_list.data,
            "toolsVersion": self._tool_list.version,
            "calls": [one.summary() for one in reversed(self._calls.values())],
            "call": self._call_data(call) if call is not None else None,
            "approvals": self._inbox.data if self._inbox is not None else {"pending": [], "note": ""},
            "notices": list(self._notices),
            "live": {"url": "state.json", "version": self.version, "every": _REFRESH_MS},
        }

    def _call_data(self, call: PlayedCall) -> Data:
        found = self.get_trace(call)
        return {
            **call.data(),
            "tokens": [token_page_data(token, self._keys) for token in call.tokens],
            "trace": data_of(found) if found is not None else None,
        }

    def get_trace(self, call: PlayedCall) -> TracedCall | None:
        """Return what the trace has recorded about a call so far; None if it has recorded nothing."""
        if self._traces is None:
            return None
        if call.trace_id is None:
            self._match_traces()
        return self._traces.find(call.trace_id) if call.trace_id is not None else None

    def find_trace(self, id: str) -> tuple[TracedCall, int] | None:
        """Return a traced call and the trace's version; None if the trace id is unknown."""
        if self._traces is None:
            return None
        self._refresh_traces()
        found = self._traces.find(id)
        return (found, self._trace_version) if found is not None else None

    def traces(self, *, without: Collection[str | None] = ()) -> list[TracedCall]:
        """Return the traced calls, newest first, except the calls with the ids in `without`."""
        if self._traces is None:
            return []
        ids = [row["call"] for row in self._traces.rows(CallFilter())]
        return [call for id in ids if id not in without and (call := self._traces.find(id)) is not None]

    def _match_traces(self) -> None:
        """Find the traced call for each of the page's calls: by the call id in its token, then by its arguments, and
        last by the order of the calls.
        """
        unmatched: list[PlayedCall] = []
        for call in self._calls.values():
            if call.trace_id is None and call.tokens:
                call.trace_id = call_id_in_token(call.tokens[0])
            if call.trace_id is None:
                unmatched.append(call)
        matched_ids = {call.trace_id for call in self._calls.values()}
        candidates = self.traces(without=matched_ids)[::-1]
        for matches in (_has_same_arguments, _may_match):
            for call in unmatched:
                traced = next((one for one in candidates if matches(one, call)), None)
                if call.trace_id is None and traced is not None:
                    call.trace_id = traced.id
                    candidates.remove(traced)


def _may_match(traced: TracedCall, call: PlayedCall) -> bool:
    began = traced.began
    is_same_tool = began is not None and began.within is None and traced.tool == call.settings.tool
    return is_same_tool and traced.started_at >= call.began_at - _CLOCK_SKEW_SECONDS


def _has_same_arguments(traced: TracedCall, call: PlayedCall) -> bool:
    shown = traced.began.arguments if traced.began is not None else None
    return _may_match(traced, call) and isinstance(shown, Revealed) and shown.value == call.settings.arguments


def argument_form(tool: Tool) -> ShownForm:
    """Return a form for a tool's arguments."""
    return ShownForm(tool.name, argument_schema(tool.input_schema))


def _tool_data(tool: Tool) -> Data:
    annotations = tool.annotations
    hints: Mapping[str, Any] = {} if annotations is None else annotations.model_dump(exclude_none=True)
    marks = {"read_only_hint": "reads only", "destructive_hint": "may destroy", "idempotent_hint": "idempotent"}
    shown: Data = {
        "name": tool.name,
        "title": tool.title or tool.name,
        "about": tool.description or "",
        "marks": [text for name, text in marks.items() if hints.get(name) is True],
        "fields": [],
        "schema": json_text(tool.input_schema, indent=2),
    }
    # A server may send any schema. If a schema nests too deeply, the page has no fields, and accepts the arguments as
    # JSON.
    with suppress(RecursionError):
        shown["fields"] = argument_form(tool).data()
    return shown
