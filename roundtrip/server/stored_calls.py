"""Ask by page: store a call whose client cannot be asked by form, and go on with it as its user answers on a page.

The call becomes an entry in the store of tasks, and workers serve its further legs, as those of a task. Its client gets
the address of the page, as a question in URL mode or in a result, and the end of the call when it asks again.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import compact_json
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolResult,
    ClientCapabilities,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as WireTool

from roundtrip.engine.leg import Authored, Finished, HandedOver, Suspended
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.tasks import TaskEntry, change_task
from roundtrip.machine.journal import to_text
from roundtrip.machine.tasks import TaskState
from roundtrip.pages.calls import AskingPage, ClosedPage, EndedPage, PageState, WorkingPage
from roundtrip.pages.handler import QuestionPages
from roundtrip.revisions import FIRST_OF_RETRY_ERA, is_retry_era
from roundtrip.server.context import Context
from roundtrip.server.leg_runner import result_of
from roundtrip.server.limited_logs import LimitedLog
from roundtrip.server.pages import Pages
from roundtrip.server.requests import Incoming, RequestClient, RequestRecord
from roundtrip.server.tasks.book import TaskView
from roundtrip.server.tasks.claim import lease_seconds
from roundtrip.server.tasks.content import ContentUnreadable, Pause, TaskContent, split_id

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from roundtrip.server.functions import AskingFunction
    from roundtrip.server.leg_runner import LegRunner
    from roundtrip.server.local_pages import LocalPages
    from roundtrip.server.tasks.service import TaskService
    from roundtrip.server.tool_calls import ToolCalls
    from roundtrip.server.tool_server import ToolServer
    from roundtrip.server.tools.registered import RegisteredTool
    from roundtrip.server.tools.registry import ToolRegistry

__all__ = ["CONTINUE_TOOL", "StoredCalls"]

CONTINUE_TOOL: Final = "continue_call"
_Rung = Literal["url", "local", "link"]
_SECRET_BYTES: Final = 16
_HOLDER: Final = "its request"
_KEY: Final = "page"
_PAGE_CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
_CONTINUE_DESCRIPTION: Final = (
    "Get the result of a call that waited for its user. Call it with the handle from that call's result, after the "
    "user has answered on the page."
)
_LOG: Final = LimitedLog(logging.getLogger("roundtrip"))


class _PageClient(RequestClient):
    """Client whose user can be asked on a page, with forms and links."""

    __slots__ = ()

    def __init__(self, request: ServerRequestContext[Any, Any] | None) -> None:
        super().__init__(request)
        # Its questions are returned, whatever the revision of the client.
        self.protocol_version = FIRST_OF_RETRY_ERA

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the declared capabilities, and those of a page."""
        declared = super().capabilities
        known = declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {}
        return ClientCapabilities.model_validate({**known, **_PAGE_CAPABILITIES})


class StoredCalls:
    """Calls of one server whose users answer on pages; also the calls behind the pages.

    Args:
        pages: The author's settings.
        name: The name of the server.
        legs: Serves legs.
        service: Stores calls, and runs their further legs.
    """

    def __init__(self, pages: Pages, *, name: str, legs: LegRunner, service: TaskService) -> None:
        self._pages = pages
        self._legs = legs
        self._service = service
        self._book = service.book
        shown: dict[str, Any] = {
            "keys": service.book.page_keys,
            "look": pages.look(name),
            "templates": pages.templates,
        }
        reader = self._reader if pages.authenticate is not None else None
        self._site: QuestionPages | None = None
        if pages.base_url is not None:
            self._site = QuestionPages(self, base_url=pages.base_url, authenticate=reader, **shown)
        self._local: LocalPages | None = None
        if pages.local:
            from roundtrip.server.local_pages import LocalPages  # few servers have pages for their own machine

            opener = pages.local if callable(pages.local) else None
            self._local = LocalPages(self, service.book, opener=opener, system=legs.parts.system, **shown)
            service.stops_first.append(self._local.stop)

    @classmethod
    def install(
        cls, pages: Pages, server: ToolServer[Any], legs: LegRunner, service: TaskService, tools: ToolRegistry
    ) -> None:
        """Give a server pages, and the tool with which models get the results of calls that waited."""
        calls = legs.stored_calls = cls(pages, name=server.name, legs=legs, service=service)
        tools.relist = calls._relist
        for route in calls._site.routes if calls._site is not None else ():
            server.custom_route(route.path, methods=["GET", "POST"], include_in_schema=False)(route.endpoint)

        async def continue_call(handle: str, ctx: Context) -> CallToolResult:
            return await calls.go_on(handle, ctx.request_context)

        continue_call.__annotations__ = {"handle": str, "ctx": Context, "return": CallToolResult}
        server.add_tool(
            continue_call,
            name=CONTINUE_TOOL,
            title="Continue a call",
            description=_CONTINUE_DESCRIPTION,
            # Destructive, so that a host which always allows other tools asks its user about this one.
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
            structured_output=False,
        )

    async def _reader(self, request: Request) -> str | Response | None:
        """Return the reader of a page, in the form of principals."""
        authenticate = self._pages.authenticate
        reader = await authenticate(request) if authenticate is not None else None
        return compact_json(principal_components(reader)) if isinstance(reader, AccessToken) else reader

    @property
    def gives_links(self) -> bool:
        """Return True if a result may carry the address of a page: only its user can open it."""
        return self._pages.authenticate is not None and self._site is not None

    def client_of(self, request: ServerRequestContext[Any, Any] | None) -> RequestClient:
        """Return the client of a request, whose user can be asked on a page."""
        return _PageClient(request)

    def _relist(self, tool: RegisteredTool, listing: WireTool) -> WireTool:
        """Return a tool as it must be listed: clients check results against its schema, and a link does not fit one."""
        function = tool.function
        may_ask = function.contexts or function.plan.nodes or function.confirmation is not None
        may_wait = self.gives_links or self._local is not None
        return listing.model_copy(update={"output_schema": None}) if may_wait and may_ask else listing

    def _rung(self, ctx: ServerRequestContext[Any, Any], record: RequestRecord) -> _Rung | None:
        """Return the way to the page that asks the questions of a request; None if its client asks them."""
        declared = ctx.session.client_capabilities
        elicitation = declared.elicitation if declared is not None else None
        by_result: _Rung | None = "link" if self.gives_links and self._knows_user(ctx) else None
        if self._local is not None and self._local.can_ask(ctx):
            by_result = "local"
        if elicitation is None:
            return by_result
        asked = record.journal.round if record.journal is not None else 0
        if elicitation.url is not None:
            by_page: _Rung | None = "url" if self._site is not None else None
            by_page = "local" if by_result == "local" else by_page
            return by_page if elicitation.form is None or asked >= self._pages.from_round else None
        # By form for as long as the client goes on: a page interrupts its user.
        return by_result if asked >= self._pages.last_round else None

    def _knows_user(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        return self._legs.parts.protection.user(ctx) is not None

    async def serve(
        self, calls: ToolCalls, name: str, arguments: dict[str, Any], record: RequestRecord, incoming: Incoming
    ) -> Finished | Suspended | Authored | HandedOver | dict[str, Any]:
        """Serve one leg of a client whose questions are returned; return the reply to it if the call is stored.

        Raises:
            MCPError: The tool raised a protocol error, its client cannot be asked, or the store cannot be used.
        """
        ctx = record.context
        if (reply := await self._reply(ctx, record)) is not None:
            return reply
        record.rung = self._rung(ctx, record)
        with self._explained(ctx):
            end = await calls.serve_caught(name, arguments, incoming)
        # A round without questions only gives its call a token.
        if record.rung is not None and isinstance(end, Suspended) and end.questions:
            return await self.store(calls.function_of(name, record), ctx, record, end)
        return end

    async def _reply(self, ctx: ServerRequestContext[Any, Any], record: RequestRecord) -> dict[str, Any] | None:
        """Return the reply to a request of a call that is stored already; None for all others.

        Raises:
            MCPError: The store cannot be used.
        """
        if record.journal is None:
            return await self._same_call(ctx)
        view = await self._view(record.journal.call_id)
        if view is None or not view.content.page_secret:
            return None
        record.claimed = True
        view = await self._changed(view)
        if view is None:
            return None
        if view.entry.has_ended:
            return _ended(view)
        journal = record.journal
        if view.content.is_local or not self._shows_links(ctx) or journal.round >= self._pages.last_round:
            return self._in_result(view)
        waited = replace(journal, leg=journal.leg + 1, round=journal.round + 1)
        record.packed = self._legs.parts.protection.write(waited)
        record.minted = f"{waited.call_id}/{waited.leg}"
        return self._by_url(view, record.minted)

    async def serve_old_client(
        self, calls: ToolCalls, name: str, arguments: dict[str, Any], incoming: Incoming
    ) -> CallToolResult | InputRequiredResult:
        """Serve a call of a client that is asked over its connection; if it cannot be, by a link in the result.

        Raises:
            ToolError: The tool is unknown, its arguments do not fit, or it failed on purpose.
            MCPError: The tool raised a protocol error, or its client cannot be asked.
        """
        record = incoming.record
        if (
            record is None
            or is_retry_era(record.context.protocol_version)
            or (rung := self._rung(record.context, record)) not in ("local", "link")
        ):
            with self._explained(record.context) if record is not None else nullcontext():
                return result_of(await calls.serve(name, arguments, incoming, None))
        ctx = record.context
        if (same := await self._same_call(ctx)) is not None:
            return CallToolResult.model_validate(same)
        record.rung = rung
        end = await calls.serve(name, arguments, incoming, None)
        if not isinstance(end, Suspended) or not end.questions:
            return result_of(end)
        return CallToolResult.model_validate(await self.store(calls.function_of(name, record), ctx, record, end))

    async def _same_call(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any] | None:
        """Return the reply to a request that repeats a call which waits: models do so, and must not begin another."""
        label = self._label(ctx)
        if label is None:
            return None
        try:
            waiting = await self._book.store.labelled(label, limit=1)
        except LedgerDown as error:
            raise _out_of_reach(error) from error
        view = await self._view(waiting[0].call_id) if waiting else None
        if view is None or view.entry.has_ended:
            return None
        return await self._locally(view, is_repeated=True) if view.content.is_local else self._in_result(view)

    def _label(self, ctx: ServerRequestContext[Any, Any]) -> str | None:
        """Return a word that equal calls of one user share, for clients that show no links; None for other clients."""
        is_local = self._local is not None and self._local.can_ask(ctx)
        user = self._local.label_key if self._local is not None and is_local else self._legs.parts.protection.user(ctx)
        if user is None or (self._shows_links(ctx) and not is_local):
            return None
        params = ctx.params or {}
        called = json.dumps([user, params.get("name"), params.get("arguments") or {}], sort_keys=True)
        return hmac.digest(self._book.page_keys[0], called.encode("utf-8", "surrogatepass"), "sha256").hex()

    async def store(
        self, function: AskingFunction, ctx: ServerRequestContext[Any, Any], record: RequestRecord, end: Suspended
    ) -> dict[str, Any]:
        """Store a call that asks, and return the reply to its client.

        Raises:
            MCPError: The store cannot be used, and the client may try again.
        """
        journal = record.handed
        if journal is None:
            raise RuntimeError("a call without a journal cannot be stored")
        content = self._service.content_of(function, ctx, journal)
        content.capabilities, content.protocol = _PAGE_CAPABILITIES, FIRST_OF_RETRY_ERA
        content.page_secret = self._legs.parts.system.new_id(_SECRET_BYTES)
        content.is_local = record.rung == "local"
        clock = self._legs.parts.system.time
        once = function.once
        try:
            entry = await self._book.entry(
                journal.call_id,
                function.name,
                content,
                ttl=max(1.0, journal.end - clock()),
                runs_once=once is not None and once.on_unknown == "fail",
            )
            entry.account = self._service.account_of(function, content)
            label = self._label(ctx)
            entry.labels = () if label is None else (label,)
            entry.claim(_HOLDER, entry.due, lease=lease_seconds())
            questions = {name: (waiting.sent(), waiting.asked.pin.hex()) for name, waiting in end.questions.items()}
            pause = Pause(to_text(self._book.journals.write(journal)), questions, None, ())
            content.pause(pause, entry, entry.updated, delivered=frozenset())
            entry.content = self._book.seal.write(content, journal.call_id)
            view = await self._book.add(entry, content)
        except (LedgerDown, ContentUnreadable) as error:
            _LOG.warning("a call of %s could not be stored for its page: %s", function.owner, error)
            raise MCPError(code=INTERNAL_ERROR, message="Calls cannot be stored now; try again later") from error
        if view is None:
            raise MCPError(code=INTERNAL_ERROR, message="This call has ended; begin it again")
        self._service.start()
        if content.is_local:
            return await self._first_locally(view, record)
        if self._shows_links(ctx):
            return self._by_url(view, end.state)
        return self._in_result(view)

    async def _first_locally(self, view: TaskView, record: RequestRecord) -> dict[str, Any]:
        """Return the reply to the request that began a call. Without it, no client has the handle of the call."""
        # The leg has ended, and others come before the reply.
        facts, record.facts = record.facts, None
        if facts is not None:
            facts.closed(None)
        try:
            return await self._locally(view)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), suppress(LedgerDown):
                await self._book.cancel(view.entry.call_id)
            raise

    async def _locally(self, view: TaskView, *, is_repeated: bool = False) -> dict[str, Any]:
        """Open the page of a call on this machine, and return its end, or after some seconds word that it waits."""
        entry, local = view.entry, self._local
        if local is not None and not entry.has_ended:
            ticket = _page_ticket(view)
            await local.show(ticket, call_id=entry.call_id, expires=entry.expires, is_repeated=is_repeated)
            view = await self._changed(view) or view
        if local is not None and local.has_failed(entry.call_id):
            return _written(
                "The page for the user could not be opened in a browser, so this call has ended.", is_error=True
            )
        return _ended(view) if view.entry.has_ended else self._in_result(view)

    async def go_on(self, handle: str, ctx: ServerRequestContext[Any, Any]) -> CallToolResult:
        """Return the result of a stored call, or word that it still waits; what `continue_call` does."""
        call_id, secret = split_id(handle)
        view = await self._view(call_id) if handle.isascii() else None
        if (
            view is None
            or not view.content.page_secret
            or not hmac.compare_digest(view.content.secret.encode(), secret.encode())
            or view.content.principal != self._legs.parts.protection.principal(ctx)
            or (view.content.is_local and not self._is_local(ctx))
        ):
            return _text("There is no such call, or it has expired. Begin it again.", is_error=True)
        if view.content.is_local:
            return CallToolResult.model_validate(await self._locally(view))
        changed = await self._changed(view)
        reply = self._in_result(changed or view) if changed is None or not changed.entry.has_ended else _ended(changed)
        return CallToolResult.model_validate(reply)

    async def _view(self, call_id: str) -> TaskView | None:
        try:
            return await self._book.view(call_id)
        except ContentUnreadable:
            _LOG.warning("a stored call cannot be read with the keys of this server; give all instances the same keys")
            return None
        except LedgerDown as error:
            raise _out_of_reach(error) from error

    async def _changed(self, view: TaskView) -> TaskView | None:
        """Wait for the end of a call for some seconds, and return it; None if it was forgotten."""
        call_id, changed = view.entry.call_id, anyio.Event()

        def note(other: str | None) -> None:
            if other in (None, call_id):
                changed.set()

        stop = self._book.store.listen(note)
        try:
            with anyio.move_on_after(self._pages.wait):
                while True:
                    current = await self._view(call_id)
                    if current is None or current.entry.has_ended:
                        return current
                    await changed.wait()
                    changed = anyio.Event()
            return await self._view(call_id)
        finally:
            stop()

    # Replies to clients.

    def _is_local(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        return self._local is not None and self._local.is_for(ctx)

    def _explained(self, ctx: ServerRequestContext[Any, Any]) -> AbstractContextManager[None]:
        return self._local.explained(ctx) if self._local is not None else nullcontext()

    def _shows_links(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if the client shows its user the address of a page, and there is one."""
        declared = ctx.session.client_capabilities
        elicitation = declared.elicitation if declared is not None else None
        return elicitation is not None and elicitation.url is not None and self._site is not None

    def _by_url(self, view: TaskView, state: str) -> dict[str, Any]:
        if self._site is None:
            raise RuntimeError("a server without base_url= has no addresses for clients")
        url = self._site.url(_page_ticket(view))
        params = {"mode": "url", "message": self._pages.message, "url": url}
        return {
            "inputRequests": {_KEY: {"method": "elicitation/create", "params": params}},
            "requestState": state,
            "resultType": "input_required",
        }

    def _in_result(self, view: TaskView) -> dict[str, Any]:
        handle = view.content.id_of(view.entry.call_id)
        waits = view.entry.state is TaskState.ASKING
        where = "a page in their browser" if view.content.is_local else "a page"
        what = f"This call waits for its user, who answers on {where}." if waits else "This call is still running."
        link = ""
        # The address of a page of this machine is a secret of its user, who has the page open.
        if waits and self.gives_links and self._site is not None and not view.content.is_local:
            link = f"Show the user this link: {self._site.url(_page_ticket(view))}\n"
        return _written(
            f"{what}\n{link}Then call {CONTINUE_TOOL} with handle={handle!r} to get the result. Only the user can "
            "answer."
        )

    # The calls behind the pages; see `PageCalls`.

    async def open(self, ticket: str, subject: str | None, *, is_local: bool = False) -> PageState:
        """Return the state of a call for the reader of its page."""
        view = await self._own(ticket, subject, is_local=is_local)
        if view is None:
            return ClosedPage()
        entry, content = view
        if entry.state is TaskState.ASKING:
            return AskingPage(_round_of(content), content.questions)
        if not entry.has_ended:
            return WorkingPage()
        return EndedPage(is_error=entry.state is not TaskState.COMPLETED)

    async def answer(
        self,
        ticket: str,
        subject: str | None,
        round_id: str,
        answers: Mapping[str, Mapping[str, Any]],
        *,
        is_local: bool = False,
    ) -> bool:
        """Give a round its answers, at most once."""
        view = await self._own(ticket, subject, is_local=is_local)
        if view is None:
            return False

        def answer(entry: TaskEntry, now: float) -> bool:
            content = self._book.seal.read(entry.content, entry.call_id)
            if entry.state is not TaskState.ASKING or _round_of(content) != round_id:
                return False
            return self._book.take_answers(entry, content, answers, now)

        return await change_task(self._book.store, view.entry.call_id, answer) or False

    async def _own(self, ticket: str, subject: str | None, *, is_local: bool) -> TaskView | None:
        """Return the call of a page for its reader; None if there is none, or if it is another user's."""
        call_id, secret = split_id(ticket)
        view = await self._view(call_id)
        if view is None or not view.content.page_secret or view.content.is_local != is_local:
            return None
        content = view.content
        if not hmac.compare_digest(content.page_secret.encode(), secret.encode("utf-8", "replace")):
            return None
        if self._pages.authenticate is not None and not is_local and (subject is None or subject != content.user):
            return None
        return view


def _out_of_reach(error: LedgerDown) -> MCPError:
    _LOG.warning("a stored call cannot be reached: %s", error)
    return MCPError(code=INTERNAL_ERROR, message="Calls cannot be reached now; try again later")


def _page_ticket(view: TaskView) -> str:
    return f"{view.entry.call_id}.{view.content.page_secret}"


def _round_of(content: TaskContent) -> str:
    """Return a text that differs between rounds: keys of questions are used once."""
    return "\n".join(sorted(content.questions))


def _ended(view: TaskView) -> dict[str, Any]:
    """Return the end of a call as the protocol writes it."""
    content = view.content
    if view.entry.state is TaskState.COMPLETED and content.result is not None:
        return {**content.result, "resultType": "complete"}
    error = content.error or {}
    told = error.get("message") or "This call was cancelled, or its time is over."
    return _written(told, is_error=True)


def _written(text: str, *, is_error: bool = False) -> dict[str, Any]:
    result = _text(text, is_error=is_error).model_dump(by_alias=True, mode="json", exclude_none=True)
    return {**result, "resultType": "complete"}


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
