"""Stored calls: calls that cannot ask in a form, and that continue when their user or a model answers on another
channel.

The call becomes an entry in the task store, and workers run its later legs, as they do for a task. The client receives
a page address, either in a URL mode question or in a result. For a model, the result contains the questions themselves.
For a local page, the server opens the browser itself, and the client receives only a handle. When the client asks
again, it receives the call's result.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolResult, ToolAnnotations
from mcp_types import Tool as WireTool
from pydantic import Field
from typing_extensions import override

from roundtrip.approvals import rules
from roundtrip.channels import server_channels, waiting_calls
from roundtrip.channels import stored_replies as replies
from roundtrip.channels.server_channels import AskInApp, ChannelClient, ChannelName, ServerChannels
from roundtrip.channels.stored_replies import CONTINUE_TOOL, awaited_groups
from roundtrip.channels.waiting_calls import EqualCalls, Showing, WaitingCalls
from roundtrip.engine.leg import Leg, Suspended
from roundtrip.engine.ports import Channels
from roundtrip.errors import AnsweredOtherwise
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.lease import lease_seconds
from roundtrip.legs.asking import AskingContext
from roundtrip.legs.boundary import Request, RequestBoundary
from roundtrip.legs.extensions import LegExtension, LegPart, OpenLeg
from roundtrip.legs.requests import RequestRecord
from roundtrip.limited_logs import LOG
from roundtrip.machine.journal import Journal, to_text
from roundtrip.on_demand import load_on_use
from roundtrip.pages.settings import DEFAULT_WAIT_SECONDS, PageLook, Pages
from roundtrip.revisions import FIRST_OF_RETRY_ERA, is_retry_era
from roundtrip.stored.book import StoredView
from roundtrip.stored.content import CallContent, ContentUnreadable, Pause, split_id
from roundtrip.stored.model_answers import AnswersInvalid, AnswersRefused, names_for_model
from roundtrip.stored.service import CallService
from roundtrip.switches import PROBE_TOOL
from roundtrip.tools.failures import store_down
from roundtrip.tools.options import tool
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.replies import text_result, written

if TYPE_CHECKING:
    from roundtrip.approvals.inbox import Inbox
    from roundtrip.channels import stored_pages
    from roundtrip.channels.apps import app_calls, app_messages
    from roundtrip.channels.local import local_pages
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.runner import LegRunner, ServedEnd
    from roundtrip.stored.desk import ClientCall, Proceed, ToolHost
    from roundtrip.stored.storage import Storage
    from roundtrip.tools.registered import RegisteredTool

load_on_use(
    globals(),
    "roundtrip.channels.apps.app_calls",
    "roundtrip.channels.apps.app_messages",
    "roundtrip.channels.local.local_pages",
    "roundtrip.channels.stored_pages",
)

_SECRET_BYTES: Final = 16
_HOLDER: Final = "its request"
_KEY: Final = "page"
_DESCRIPTION: Final = (
    "Get the result of a call that waited for its user. Pass the handle from that call's result, after the user has "
    "answered on the page."
)
_DESCRIPTION_WITH_ANSWERS: Final = (
    "Continue a waiting call. Pass the handle from that call's result, after the user has answered on the page. If "
    "that result has questions, pass the answers as well."
)
_ANSWERS_DESCRIPTION: Final = (
    "The answer to each question, in the form that the call's result shows. Null declines a question."
)
_Answers = Annotated[dict[str, Any] | None, Field(description=_ANSWERS_DESCRIPTION)]
_UNKNOWN: Final = "There is no such call, or it has expired. Start the call again."
_REFUSED: Final = (
    "No answer was accepted. You may answer only the questions that this call asks you now. To see its state, call "
    "continue_call with only the handle."
)
_NEEDS_CLIENT: Final = (
    "This call has a question for the client's software, which this client cannot answer. Call continue_call with "
    "handle={handle!r} again from the client that made the call."
)
_USER_UNKNOWN: Final = (
    "a page cannot ask either, because the server does not know the user of this call; send an access token that names "
    "the user, or let the server's principal= name the user"
)


class _ChannelPart(LegPart):
    """Leg part that adapts the client's capabilities to the channels."""

    def __init__(self, served: OpenLeg, channels: ServerChannels, in_app: AskInApp | None) -> None:
        self._served = served
        self._channels = channels
        self._in_app = in_app

    @override
    def complete(self, leg: Leg) -> None:
        channels = self._served.channels or Channels()
        leg.client = ChannelClient(self._served.request, self._channels, channels, in_app=self._in_app)


class StoredCalls(LegExtension):
    """Stored calls of one server. They wait for a user on a page, or for a model.

    Args:
        channels: The server's channels.
        pages: The author's page settings, if any.
        name: The server's name.
        legs: Runs legs.
        service: Stores calls, and runs their later legs.
    """

    def __init__(
        self, channels: ServerChannels, pages: Pages | None, *, name: str, legs: LegRunner, service: CallService
    ) -> None:
        self._channels = channels
        self._message = "" if pages is None else pages.message
        self._legs = legs
        self._service = service
        self._book = service.book
        self._equal = EqualCalls(service.book)
        self._waiting = WaitingCalls(service, DEFAULT_WAIT_SECONDS if pages is None else pages.wait)
        service.book.reply = self._in_result
        self.continuing: AskingFunction | None = None
        """The function of the tool `continue_call`, which continues calls."""
        self.own: frozenset[AskingFunction] = frozenset()
        """The functions of all tools that the channels add."""
        self.inbox: Inbox | None = None
        """The approval inbox, if the server has one."""
        self.site: stored_pages.StoredPages | None = None
        self._local: local_pages.LocalPages | None = None
        if pages is not None and pages.base_url is not None:
            self.site = stored_pages.StoredPages(pages, pages.base_url, name=name, book=service.book)
        self._apps: app_calls.Apps | None = None
        self._listed_meta: Callable[[str, AskingFunction], Awaitable[Mapping[str, Any]]] | None = None
        self._messages: app_messages.AppMessages | None = None
        if "app" in channels.names or (pages is not None and pages.app):
            look = PageLook(name) if pages is None else pages.look(name)
            self._messages = app_messages.AppMessages(
                look, lists_tools="app" in channels.names, lists_always=channels.takes_any_for_app
            )
        if pages is not None and "local" in channels.names:
            self._local = local_pages.LocalPages(pages, name=name, book=service.book, system=legs.parts.system)
            service.stops_first.append(self._local.stop)

    @classmethod
    def install(
        cls, given: Iterable[ChannelName] | None, pages: Pages | None, host: ToolHost, storage: Storage
    ) -> StoredCalls | None:
        """Give a server stored calls, pages, and the tool that continues waiting calls.

        Raises:
            TypeError: The channels are not a list of names, or `pages` is not a `Pages`.
            ValueError: The option has an unknown channel, or a channel that the server cannot serve.
        """
        if pages is not None and not isinstance(pages, Pages):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"pages must be Pages(base_url=...), got {type(pages).__name__}")
        legs, server = host.legs, host.server
        channels = ServerChannels.of(given, pages, knows_users=legs.parts.protection.policy.bind_principal is not None)
        if pages is None and not channels.continues:
            return None
        service = storage.require(host, "channels=" if pages is None else "pages=")
        stored = cls(channels, pages, name=host.low_level.name, legs=legs, service=service)
        legs.extensions.append(stored)
        host.desk.features.append(stored)
        service.prepare = stored.prepare_task
        if stored.site is not None:
            stored.site.serve_on(server)
        if stored._messages is not None:
            # Outside the author's middlewares, so that it sees the results as the client does.
            middleware = host.low_level.middleware
            place = next(i for i, entry in enumerate(middleware) if isinstance(entry, RequestBoundary))
            middleware.insert(place, stored._messages)
        if not channels.continues:
            return stored

        async def continue_call(handle: str, ctx: AskingContext[Any, Any], answers: _Answers = None) -> CallToolResult:
            return await stored.resume_call(handle, answers, ctx)

        async def continue_without_answers(handle: str, ctx: AskingContext[Any, Any]) -> CallToolResult:
            return await continue_call(handle, ctx)

        takes_answers = "model" in channels.names
        server.add_tool(
            # The call that it continues has asked for consent.
            tool(consent=False)(continue_call if takes_answers else continue_without_answers),
            name=CONTINUE_TOOL,
            title="Continue a call",
            description=_DESCRIPTION_WITH_ANSWERS if takes_answers else _DESCRIPTION,
            # Marked as destructive, so that hosts ask the user before each use, even if the user always allows other
            # tools.
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
            structured_output=False,
            meta={"ui": {"visibility": ["model"]}} if "app" in channels.names else None,
        )
        # Not traced, because its arguments and results contain handles and page addresses.
        stored.continuing = host.find(CONTINUE_TOOL, None)
        host.desk.untraced.add(stored.continuing)
        if stored._messages is not None and "app" in channels.names:
            link_of = stored.site.url_of if stored.site is not None and stored.gives_links else None
            takes_handles = pages is not None and pages.app == "handle"
            look = stored._messages.look
            stored._apps = app_calls.Apps(service, look, link_of=link_of, takes_handles=takes_handles)
            stored._apps.serve_on(host)
            stored._listed_meta = host.listed_meta
        stored.own = frozenset(host.desk.untraced)
        return stored

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Return the names of the server's channels, sorted."""
        return tuple(sorted(self._channels.names))

    @property
    def gives_links(self) -> bool:
        """Return True if a result may contain the address of a page that only the call's user can open."""
        return "link" in self._channels.names

    @override
    def join(self, leg: OpenLeg) -> LegPart | None:
        # A leg that serves no client request cannot ask a client.
        is_asked_for = leg.stored is None and leg.record is not None
        in_app = self._messages.ask if self._messages is not None else None
        return _ChannelPart(leg, self._channels, in_app) if is_asked_for else None

    def relist(self, tool: RegisteredTool, listing: WireTool) -> WireTool:
        """Return a tool's listing. If a result may be a link, the listing has no output schema, because clients would
        reject the link.
        """
        if not self.may_replace_result(tool.function):
            return listing
        return listing.model_copy(update={"output_schema": None, "meta": self.meta_of(tool.function, listing.meta)})

    def meta_of(self, function: AskingFunction, meta: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the `_meta` of a listed tool that may ask. If an app may show its questions, it names the app."""
        return meta if self._apps is None or function in self.own else app_messages.marked(meta)

    def may_replace_result(self, function: AskingFunction) -> bool:
        """Return True if a client may receive a message that the call is waiting, instead of the function's result."""
        return self._channels.has_results and _may_ask(function)

    async def _channels_for(self, call: ClientCall) -> Channels:
        """Return the channels, other than forms, on which a call's questions may be asked."""
        channels = self._channels_of(call.record)
        if "app" in (channels.page, channels.for_links) and await self._has_own_app(call):
            return self._channels_of(call.record, may_show_app=False)
        return channels

    async def _has_own_app(self, call: ClientCall) -> bool:
        """Return True if the host would give a ticket to the tool's own app."""
        try:
            function = call.find()
        except ToolError:
            return False  # an unknown tool
        return self._listed_meta is not None and app_messages.has_own_app(await self._listed_meta(call.name, function))

    def _channels_of(self, record: RequestRecord, *, may_show_app: bool = True) -> Channels:
        ctx = record.context
        asked = record.journal.own_rounds if record.journal is not None else 0
        return self._channels.channels(
            ctx.session.client_capabilities,
            asked=asked,
            knows_user=self._knows_user(ctx),
            is_live=not is_retry_era(ctx.protocol_version),
            can_open_locally=self._can_open_locally(ctx),
            may_show_app=may_show_app,
        )

    def _can_open_locally(self, ctx: Request) -> bool:
        return self._local is not None and self._local.can_ask(ctx)

    def _knows_user(self, ctx: Request) -> bool:
        return self._legs.parts.protection.user(ctx) is not None

    @contextmanager
    def _explaining(self, ctx: Request) -> Generator[None]:
        """If a client cannot be asked, add to the error why a page cannot ask its user either."""
        try:
            yield
        except MCPError as error:
            if error.error.code != MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise
            reasons: list[str] = []
            if self.gives_links and not self._knows_user(ctx):
                reasons.append(_USER_UNKNOWN)
            if self._local is not None and (obstacle := self._local.obstacle_for(ctx)) is not None:
                reasons.append(obstacle)
            if not reasons:
                raise
            message = "; ".join([error.error.message, *reasons])
            raise MCPError(code=error.error.code, message=message, data=error.error.data) from error

    async def serve(self, call: ClientCall, proceed: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one client request. If the call is stored, return the reply to its client; otherwise, return the leg's
        end.

        Raises:
            MCPError: The tool raised a protocol error, the client cannot be asked, or the store cannot be used.
        """
        record = call.record
        if self._legs.parts.effects.dry_run is not None:
            # A dry run must not touch the store, because the call that it rehearses may be stored there.
            return await proceed()
        is_retry = is_retry_era(record.context.protocol_version)
        journal = record.journal if is_retry else None
        if journal is not None and (reply := await self._reply(record, journal)) is not None:
            return reply
        channels = await self._channels_for(call)
        # Live clients are asked over their connection. `roundtrip doctor` tests this with live calls to its probe, so
        # do not store them.
        may_store = is_retry or (call.name != PROBE_TOOL and (channels.may_store or self.inbox is not None))
        if may_store:
            if journal is None and (reply := await self._same_call(call)) is not None:
                return reply
            record.channels = channels
        with self._explaining(record.context):
            end = await proceed()
        if not may_store or not isinstance(end, Suspended):
            return end
        # A round without questions only issues a token.
        return await self._store(call, end) if end.is_for_others else end

    async def _reply(self, record: RequestRecord, journal: Journal) -> dict[str, Any] | None:
        """Return the reply to a request that resumes a stored call; None if the call is not stored.

        Raises:
            MCPError: The store cannot be used.
        """
        ctx = record.context
        sent: Mapping[str, Mapping[str, Any]] = (ctx.params or {}).get("inputResponses") or {}
        self._book.name(journal.call_id)
        try:
            view = await self._book.find(journal.call_id)
        except LedgerDown as error:
            # A call whose questions the client answers in forms is not stored, so it does not need the store.
            if not sent or not journal.asked.keys() >= sent.keys():
                raise waiting_calls.out_of_reach(error) from error
            return None
        if view is None or not view.content.is_continued:
            return None
        record.is_taken = True
        if journal.chain and (journal.asked.keys() & sent.keys()) - view.content.client_questions.keys():
            # Another request of the same intent has taken the call to a page, so this answer did not reach the call.
            rejected = text_result(str(AnsweredOtherwise(f"tool {view.entry.tool!r}")), is_error=True)
            return written(rejected, ctx.protocol_version)
        if not await self._service.is_visible(view, ctx):
            return replies.unknown_tool(view)
        if view.content.channel.is_local:
            return await self._reply_locally(view, ctx)
        await self._waiting.take_from_client(view, sent)
        view = await self._take_refusal(view, ctx, sent)
        if view is None:
            return None
        if view.entry.has_ended or not self._shows_links(ctx) or journal.own_rounds >= server_channels.LAST_ROUND:
            return self._reply_to_caller(view, ctx)
        return self._waits_by_url(view, record, replace(journal, leg=journal.leg + 1, round=journal.round + 1))

    def _waits_by_url(self, view: StoredView, record: RequestRecord, journal: Journal) -> dict[str, Any]:
        """Return the URL mode question that shows a call's page, and issue the token for the client's next request."""
        record.packed = self._legs.parts.protection.write(journal)
        record.minted = f"{journal.call_id}/{journal.leg}"
        return self._by_url(view, record.minted)

    def _first_by_url(self, view: StoredView, record: RequestRecord) -> dict[str, Any]:
        """Return the URL mode question for a first request whose call is already stored."""
        stored = self._book.read_journal(view.content)
        first = Journal(
            stored.call_id, stored.born, stored.deadline, stored.end, 1, 1, stored.fingerprint, stored.build
        )
        return self._waits_by_url(view, record, replace(first, version=stored.version, written=stored.written))

    async def _same_call(self, call: ClientCall) -> dict[str, Any] | None:
        """Return the reply to a request that repeats a waiting call; None if the request starts a new call.

        Models repeat calls, and a repeated call must not start again. Clients that show links are an exception: if they
        repeat a call, it asks again on a new page. But a call that only waits for an approval is resumed for every
        client. Otherwise, people would have to approve the call again whenever a client times out and repeats it.
        """
        try:
            function = call.find()
        except ToolError:
            return None  # an unknown tool
        record, ctx = call.record, call.record.context
        labels = self._labels(function, ctx, is_local=self._can_open_locally(ctx)) if _may_ask(function) else ()
        if not labels:
            return None
        shows_links = self._shows_links(ctx)
        try:
            call_id = await (self._equal.awaiting(labels) if shows_links else self._equal.chosen(labels))
            if call_id is None and self.inbox is not None:
                labels_of_all = [
                    self._labels(function, ctx, is_local=False, showing=each) for each in waiting_calls.SHOWINGS
                ]
                call_id = await self._equal.awaiting(chain.from_iterable(labels_of_all))
        except (LedgerDown, ContentUnreadable) as error:
            # Continue without the store, because a call that asks nothing does not need it.
            LOG.warning("waiting calls cannot be looked up, so a repeated call starts a new call: %s", error)
            return None
        view = await self._waiting.view(call_id) if call_id is not None else None
        if view is None or view.entry.has_ended or not await self._service.is_visible(view, ctx):
            return None
        return await self.reply_to_repeated(view, record)

    async def reply_to_repeated(self, view: StoredView, record: RequestRecord) -> dict[str, Any]:
        """Return the reply to a request that repeats a waiting call."""
        if view.content.channel.is_local:
            return await self._reply_locally(view, record.context, is_repeated=True)
        ctx = record.context
        return self._first_by_url(view, record) if self._shows_links(ctx) else self._reply_to_caller(view, ctx)

    def _labels(
        self, function: AskingFunction, ctx: Request, *, is_local: bool, showing: Showing | None = None
    ) -> tuple[str, ...]:
        """Return the labels that a call shares with equal calls; none if no other request may resume the call.

        Calls by unknown users have no labels. Only the handle protects such a call, and with labels, another caller
        could receive the handle by making an equal call. A local page is an exception, because a stdio process has only
        one client. On a server without approvals, calls by clients that show links have no labels either. A client that
        shows forms gets different labels, so it does not resume a call that another client left waiting on a page.
        """
        params, protection = ctx.params or {}, self._legs.parts.protection
        once = function.policy(OncePolicy)
        if function in self.own or (once is not None and once.intent is not None):
            return ()
        if is_local and self._local is not None:
            return self._equal.labels(self._local.caller(protection.principal(ctx)), params, function.version)
        user = protection.user(ctx)
        if user is None or (self.inbox is None and self._shows_links(ctx)):
            return ()
        if showing is None:
            showing = "forms" if self._channels.shows_forms(ctx.session.client_capabilities) else ""
        return self._equal.labels(user, params, function.version, showing=showing)

    def _shows_links(self, ctx: Request) -> bool:
        return self._channels.shows_links(
            ctx.session.client_capabilities,
            knows_user=self._knows_user(ctx),
            is_live=not is_retry_era(ctx.protocol_version),
        )

    async def _store(self, call: ClientCall, end: Suspended) -> dict[str, Any]:
        """Store a call that asks questions, and return the reply to its client.

        Raises:
            MCPError: The store cannot be used. The client may try again.
        """
        function, record = call.find(), call.record
        ctx, journal, channels = record.context, record.journal_to_store, record.channels or Channels()
        if journal is None:
            raise RuntimeError("a call without a journal cannot be stored")
        content = self._service.content_of(function, ctx, journal)
        # The client's forms cannot show later questions, which come after the client's request has ended.
        page = channels.page or channels.for_links
        if page is None and end.external and self._knows_user(ctx) and not self._shows_links(ctx):
            # The reply to a client that shows links in questions alone is a result, too.
            is_free = not await self._has_own_app(call)
            page = self._channels.in_result(ctx.session.client_capabilities, may_show_app=is_free)
        has_page = bool(page or end.external)
        content.origin.capabilities = _capabilities(ctx, has_page=has_page)
        content.origin.protocol = FIRST_OF_RETRY_ERA
        content.channel.page_secret = self._legs.parts.system.new_id(_SECRET_BYTES) if has_page else ""
        content.channel.app_secret = self._legs.parts.system.new_id(_SECRET_BYTES) if page == "app" else ""
        content.channel.asks_model, content.channel.is_local = channels.model, page == "local"
        # If the client shows links, equal calls each have their own page. They share this call once it waits for
        # approval.
        on_page = bool(end.questions) and not content.channel.is_local and self._shows_links(ctx)
        labels = self._labels(function, ctx, is_local=content.channel.is_local, showing="page" if on_page else None)
        # A call that is not shared is chosen at once, so that an equal call cannot replace it.
        content.channel.is_chosen = not labels or on_page
        # Equal calls from any kind of client share a pending approval.
        shared: tuple[str, ...] = ()
        if end.external and not end.questions and not content.channel.is_local:
            shared = self._labels(function, ctx, is_local=False, showing="any")
        grace = rules.GRACE_SECONDS if self.inbox is not None and end.external else 0.0
        ttl = max(1.0, journal.end - self._legs.parts.system.time()) + grace
        try:
            entry = await self._service.entry_of(function, call.name, journal, content, ttl=ttl)
            entry.labels = labels[:1]
            entry.claim(_HOLDER, entry.due, lease=lease_seconds())
            questions = {name: (waiting.sent(), waiting.asked.pin.hex()) for name, waiting in end.questions.items()}
            pause = Pause(
                to_text(self._book.journals.write(journal)), questions, None, (), for_model=names_for_model(end)
            )
            pause = self._book.prepare(pause, end, content, journal.call_id)
            pause = pause._replace(shared_label=shared[0] if shared else None)
            content.pause(pause, entry, entry.updated, delivered=frozenset())
            entry.content = self._book.seal.write(content, journal.call_id)
            view = await self._book.add(entry, content)
            if view is not None and labels and not on_page:
                view = await self._book.view(await self._equal.choose((*labels, *shared), journal.call_id))
        except (LedgerDown, ContentUnreadable) as error:
            LOG.warning(
                "a call of %s cannot wait for answers, because it could not be stored: %s", function.owner, error
            )
            self._book.tell_unstored(journal.call_id, call.name)
            raise store_down("Calls cannot be stored now") from error
        if view is None:
            raise MCPError(code=INTERNAL_ERROR, message="This call has ended; start it again")
        self._service.start()
        if content.channel.is_local:
            # The leg has ended without a token. Report this now, because other legs may run before this request's
            # reply.
            report_size, record.report_size = record.report_size, None
            if report_size is not None:
                report_size(None)
            return await self._reply_locally(view, ctx, is_first=view.entry.call_id == journal.call_id)
        if view.entry.has_ended or not self._shows_links(ctx):
            return self._reply_to_caller(view, ctx)
        if view.entry.call_id != journal.call_id:
            # An equal call was stored first, so the client needs a token for that call instead of this one.
            return self._first_by_url(view, record)
        return self._by_url(view, end.state)

    def prepare_task(self, content: CallContent, ctx: Request) -> None:
        """Prepare a task for a question that its client cannot show. For this client, the task then ends with a handle
        or a link.
        """
        declared = ctx.session.client_capabilities
        channels = self._channels.channels_of_task(declared, knows_user=self._knows_user(ctx))
        if not channels.may_store:
            return
        content.channel.leaves_at = "question" if channels.replaces_client else "link"
        content.channel.asks_model = channels.model
        if channels.page or channels.for_links:
            content.channel.page_secret = self._legs.parts.system.new_id(_SECRET_BYTES)
        if channels.page:
            content.origin.capabilities = _capabilities(ctx, has_page=True)

    async def _reply_locally(
        self, view: StoredView, ctx: Request, *, is_first: bool = False, is_repeated: bool = False
    ) -> dict[str, Any]:
        """Open the call's page on this machine, and return the call's result. If the call does not end within the wait
        limit, return a reply that says that it is still waiting.
        """
        local = self._local
        if local is None or not local.is_for(ctx):
            return self._reply_to(view)
        async with local.awaited(view, is_first=is_first):
            await local.show(view, is_repeated=is_repeated)
            return self._reply_to(await self._waiting.changed(view, ctx) or view)

    async def resume_call(
        self, handle: str, answers: dict[str, Any] | None, ctx: AskingContext[Any, Any]
    ) -> CallToolResult:
        """Return a stored call's result, or a message saying that the call is still waiting. This is the body of
        `continue_call`.

        Args:
            handle: The call's handle.
            answers: A model's answers to the call's questions.
            ctx: The client's request. It also carries the questions that only client software can answer.
        """
        principal = self._legs.parts.protection.principal(ctx.request_context)
        call_id, secret = split_id(handle)
        view = await self._waiting.view(call_id) if handle.isascii() else None
        if (
            view is None
            or not view.content.takes_handle
            or not hmac.compare_digest(view.content.origin.secret.encode(), secret.encode())
            or view.content.origin.principal != principal
            or (view.content.channel.is_local and (self._local is None or not self._local.is_for(ctx.request_context)))
        ):
            return text_result(_UNKNOWN, is_error=True)
        if not await self._service.is_visible(view, ctx.request_context):
            return CallToolResult.model_validate(replies.unknown_tool(view))
        # If this is a later leg, the first leg already took the answers.
        if answers and ctx.call.leg == 1:
            try:
                await self._waiting.take_from_model(call_id, answers)
            except AnswersRefused:
                return text_result(_REFUSED, is_error=True)
            except AnswersInvalid as error:
                return text_result(f"No answer was accepted: {error}. Call {CONTINUE_TOOL} again.", is_error=True)
        request = ctx.request_context
        if view.content.channel.is_local and self._local is not None:
            await self._local.show(view)
        changed = await self._waiting.changed(view, request, until_asking=bool(answers))
        while changed is not None and not changed.entry.has_ended and (questions := changed.content.client_questions):
            client_answers = await waiting_calls.ask_client(ctx, questions)
            if client_answers is None:
                return text_result(_NEEDS_CLIENT.format(handle=handle), is_error=True)
            await self._waiting.take_from_client(changed, client_answers)
            changed = await self._waiting.changed(changed, request, until_asking=bool(answers))
        return CallToolResult.model_validate(self._reply_to(changed or view))

    async def _take_refusal(
        self, view: StoredView, request: Request, responses: Mapping[str, Mapping[str, Any]]
    ) -> StoredView | None:
        """If the client declined the link, decline the page's questions. Then wait like `WaitingCalls.changed`."""
        action = responses.get(_page_key(view), {}).get("action")
        if self.site is None or action not in ("decline", "cancel"):
            return await self._waiting.changed(view, request)
        with waiting_calls.reaching_call():
            await self.site.calls.refuse(view, action)
        # If the call asks again, send its client to the page again.
        return await self._waiting.changed(view, request, until_asking=True)

    def _by_url(self, view: StoredView, state: str) -> dict[str, Any]:
        """Return the URL mode question that shows a call's page."""
        if self.site is None:
            raise RuntimeError("a call without pages has no address")
        requests = view.content.client_questions
        if view.content.user_questions or not requests:
            message = self._message
            if groups := awaited_groups(view):
                message = f"This waits for an approval by {rules.listed_groups(groups)}."
            params = {"mode": "url", "message": message, "url": self.site.url_of(view)}
            requests[_page_key(view)] = {"method": "elicitation/create", "params": params}
        return {"inputRequests": requests, "requestState": state, "resultType": "input_required"}

    def _reply_to(self, view: StoredView) -> dict[str, Any]:
        """Return the result of an ended call, or the reply for a call that has not ended."""
        if self._local is not None and self._local.has_failed(view.entry.call_id):
            return replies.unopened()
        return replies.ended(view) if view.entry.has_ended else self._in_result(view)

    def _reply_to_caller(self, view: StoredView, ctx: Request) -> dict[str, Any]:
        """Return the reply to the tool's own caller. Only this reply has the ticket, and only for a host with apps."""
        reply = self._reply_to(view)
        if self._apps is None or self._channels.in_result(ctx.session.client_capabilities) != "app":
            return reply
        return self._apps.dress(reply, view, ctx)

    def _in_result(self, view: StoredView) -> dict[str, Any]:
        """Return the result that tells a client that its call is still running or waiting."""
        if view.content.asked.for_model:
            return replies.for_model(view)
        has_link = view.content.channel.page_secret and not view.content.channel.is_local and self.gives_links
        return replies.for_user(view, self.site.url_of(view) if has_link and self.site is not None else None)


def _may_ask(function: AskingFunction) -> bool:
    return bool(function.contexts or function.planned.plan.nodes or function.confirm is not None)


def _capabilities(ctx: Request, *, has_page: bool) -> dict[str, Any]:
    """Return the client capabilities that a stored call continues with. If there is a page, it replaces the client's
    forms.
    """
    elicitation = server_channels.PAGE_ELICITATION if has_page else None
    known = server_channels.with_elicitation(ctx.session.client_capabilities, elicitation)
    return known.model_dump(by_alias=True, mode="json", exclude_none=True)


def _page_key(view: StoredView) -> str:
    """Return the key of the question that shows a call's page."""
    key = _KEY
    while key in view.content.client_questions:
        # The author may have given this name to a question.
        key += "_"
    return key
