"""Apps: a host that shows MCP Apps lets the user answer a stored call's questions inside the conversation.

The tool's result is the one with a link. Its `_meta`, which hosts do not show to models, also has a ticket and the
questions. The app answers through a tool that only apps should call. Hosts hide this tool from models, but cannot be
relied on, so the ticket alone opens a call, and only for the user who made it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from roundtrip.channels.apps.app_messages import APP_META, DRESSED, ONLY_FOR_APPS
from roundtrip.channels.apps.payloads import payload_of
from roundtrip.channels.stored_pages import CallsOfSite
from roundtrip.legs.asking import AskingContext
from roundtrip.legs.boundary import Request
from roundtrip.limited_logs import LOG
from roundtrip.pages.calls import AskingPage, CallsUnavailable, ClosedPage
from roundtrip.pages.forms import PageForm, PostUnreadable, read_form
from roundtrip.pages.handler import ANSWERED, TICKET_PATTERN, QuestionPages
from roundtrip.tools.failures import store_down
from roundtrip.tools.options import tool
from roundtrip.tools.replies import text_result
from roundtrip.untrusted import is_texts

if TYPE_CHECKING:
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.pages.controls import Posted
    from roundtrip.stored.book import StoredView
    from roundtrip.stored.content import CallContent
    from roundtrip.stored.desk import ToolHost
    from roundtrip.stored.service import CallService

ANSWER_TOOL: Final = "answer_call"
LOOK_TOOL: Final = "look_at_call"
_VERSION: Final = 1
_CLOSED: Final = "There is no such question for you. It may have expired."
_UNREADABLE: Final = "Nothing was sent, because the answers do not fit the form. Reload the question."
_SHOWN: Final = "The app shows the state of the call."

# The tools check their arguments themselves, because the SDK's errors repeat what was sent.
_Ticket = Annotated[Any, Field(description="The ticket of the call.", json_schema_extra={"type": "string"})]
_Round = Annotated[Any, Field(description="The round that is answered.", json_schema_extra={"type": "string"})]
_Answers = Annotated[Any, Field(description="The texts of each control.", json_schema_extra={"type": "object"})]


class Apps:
    """The apps of one server.

    Args:
        service: Stores calls.
        look: The look of the server's pages, as JSON.
        link_of: Returns the address of a call's page; None if results have no links.
        takes_handles: True if a call's handle also opens the call.
    """

    def __init__(
        self,
        service: CallService,
        look: Mapping[str, Any],
        *,
        link_of: Callable[[StoredView], str] | None,
        takes_handles: bool,
    ) -> None:
        self._look = look
        self._takes_handles = takes_handles
        self._functions: dict[str, AskingFunction] = {}
        self._find_function: Callable[[str, str | None], AskingFunction]
        self._service = service
        self._link_of = link_of
        self._calls = CallsOfSite(service.book, knows_readers=True, secret_of=_app_secret)
        self._by_handle = CallsOfSite(service.book, knows_readers=True, secret_of=_handle_secret)

    def serve_on(self, host: ToolHost) -> None:
        """Add the tools of the app to a server."""

        async def answer_call(
            ctx: AskingContext[Any, Any],
            ticket: _Ticket = None,
            round: _Round = None,
            answers: _Answers = None,
        ) -> CallToolResult:
            return await self._answer(ticket, round, answers, ctx.request_context)

        async def look_at_call(ctx: AskingContext[Any, Any], ticket: _Ticket = None) -> CallToolResult:
            return await self._show(ticket, ctx.request_context)

        tools = (
            (answer_call, ANSWER_TOOL, "Answer a call", "Answer a call's questions in its app.", False),
            (look_at_call, LOOK_TOOL, "Look at a call", "Return the state of a call for its app.", True),
        )
        for function, tool_name, title, description, is_look in tools:
            host.server.add_tool(
                tool(consent=False)(function),
                name=tool_name,
                title=title,
                description=f"{description} Only an app can call this tool, with its ticket.",
                annotations=ToolAnnotations(read_only_hint=is_look, destructive_hint=False, open_world_hint=False),
                structured_output=False,
                meta=ONLY_FOR_APPS,
            )
            # Not traced, because its arguments have tickets.
            self._functions[tool_name] = host.find(tool_name, None)
            host.desk.untraced.add(self._functions[tool_name])
        self._find_function = host.find

    def _are_own(self) -> bool:
        """Return True unless the author has replaced a tool of the app, which would then get the tickets."""
        replaced = [name for name, own in self._functions.items() if self._find_function(name, None) is not own]
        if replaced:
            LOG.warning("apps are off, because this server has another tool named %s; rename that tool", replaced[0])
        return not replaced

    def dress(self, reply: dict[str, Any], view: StoredView, request: Request) -> dict[str, Any]:
        """Add a ticket and the call's state to the reply that the caller of a waiting call gets."""
        channel, dressed = view.content.channel, DRESSED.get()
        if view.entry.has_ended or view.content.asked.for_model or not channel.app_secret or dressed is None:
            return reply
        # A tool that calls other tools, such as FastMCP's search, may show its results in another app.
        if (request.params or {}).get("name") != view.entry.tool or not self._are_own():
            return reply
        ticket = self._calls.ticket_of(view)
        dressed.append(ticket)
        payload = {
            "version": _VERSION,
            "ticket": ticket,
            "tools": {"answer": ANSWER_TOOL, "look": LOOK_TOOL},
            "look": self._look,
            "link": self._link_of(view) if self._link_of is not None else None,
            "state": self._state(view),
        }
        return {**reply, "_meta": {**reply.get("_meta", {}), APP_META: payload}}

    async def _answer(self, ticket: Any, round_: Any, answers: Any, request: Request) -> CallToolResult:
        view = await self._find(ticket, request)
        if view is None:
            return _closed()
        state = self._calls.state_of(view)
        if not isinstance(state, AskingPage) or round_ != _name_of(state):
            return _result(self._state(view, notice=ANSWERED))
        try:
            form, read = read_form(state.questions, _posted(answers))
        except PostUnreadable:
            return text_result(_UNREADABLE, is_error=True)
        if read is None:
            return _result(self._state(view, form=form))
        with _reaching_calls():
            known = self._calls.ticket_of(view)
            is_taken = await self._calls.answer(known, self._user(request), state.round_id, read)
        view = await self._find(known, request)
        return _closed() if view is None else _result(self._state(view, notice=None if is_taken else ANSWERED))

    async def _show(self, ticket: Any, request: Request) -> CallToolResult:
        view = await self._find(ticket, request)
        return _closed() if view is None else _result(self._state(view))

    async def _find(self, ticket: Any, request: Request) -> StoredView | None:
        """Return the call that a ticket opens for the user of a request."""
        user = self._user(request)
        if user is None or not isinstance(ticket, str) or TICKET_PATTERN.fullmatch(ticket) is None:
            return None
        with _reaching_calls():
            view = await self._calls.view_for_reader(ticket, user)
            if view is None and self._takes_handles:
                view = await self._by_handle.view_for_reader(ticket, user)
        return view if view is not None and await self._service.is_visible(view, request) else None

    def _user(self, request: Request) -> str | None:
        return self._service.legs.parts.protection.user(request)

    def _state(self, view: StoredView, *, form: PageForm | None = None, notice: str | None = None) -> dict[str, Any]:
        state = self._calls.state_of(view)
        round_ = _name_of(state) if isinstance(state, AskingPage) else None
        return payload_of(state, round_, form=form, notice=notice)


def _app_secret(content: CallContent) -> str:
    return content.channel.app_secret


def _handle_secret(content: CallContent) -> str:
    return content.origin.secret if content.channel.app_secret else ""


@contextmanager
def _reaching_calls() -> Generator[None]:
    try:
        yield
    except CallsUnavailable as error:
        raise store_down("Calls cannot be reached now") from error


def _posted(answers: Any) -> Posted:
    """Return the texts of the controls, checked.

    Raises:
        PostUnreadable: They do not have the form of a posted form.
    """
    if not isinstance(answers, dict):
        raise PostUnreadable("the answers must be an object")
    posted = cast("dict[str, object]", answers)
    size = 0
    for texts in posted.values():
        if not is_texts(texts):
            raise PostUnreadable("each answer must be a list of texts")
        size += sum(map(len, texts))
    if size > QuestionPages.max_body_bytes:
        raise PostUnreadable("the answers are too long")
    return cast("Posted", posted)


def _name_of(state: AskingPage) -> str:
    """Return the name of a round that the app may see."""
    return hashlib.blake2b(state.round_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _closed() -> CallToolResult:
    return _result(payload_of(ClosedPage(), None), text=_CLOSED, is_error=True)


def _result(state: dict[str, Any], *, text: str = _SHOWN, is_error: bool = False) -> CallToolResult:
    shown = text_result(text, is_error=is_error)
    return shown.model_copy(update={"structured_content": {"state": state}})
