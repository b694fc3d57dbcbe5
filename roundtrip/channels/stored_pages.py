"""Server pages for stored calls: they show a call's questions, and accept its user's answers."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

import anyio
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.request_state import compact_json
from starlette.requests import Request
from starlette.responses import Response

from roundtrip.approvals.persons import is_same
from roundtrip.approvals.rules import records_of, withdraw
from roundtrip.channels.access_log import hide_tickets
from roundtrip.channels.stored_replies import awaited_groups
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry, NextChange, changes_of
from roundtrip.pages import calls
from roundtrip.pages.calls import PageState, ShownDecision
from roundtrip.pages.handler import QuestionPages
from roundtrip.pages.responses import SiteOptions
from roundtrip.pages.settings import Pages
from roundtrip.stored.book import CallBook, StoredView, reaching_store
from roundtrip.stored.content import CallContent, split_id
from roundtrip.stored.desk import HostServer

_LOST: Final = (
    "The server stopped while it was working. We do not know whether the action was completed. "
    "Check before you try again."
)

_SETTLE_SECONDS: Final = 1.0
"""How many seconds the response to an answer waits for the next question. No thread is blocked."""
_NEW_SECONDS: Final = 3.0
"""For this many seconds after an answer, the page reloads every second."""


class CallsOfSite:
    """Stored calls that one site's pages show; see `PageCalls`. A site never opens another site's calls.

    Args:
        book: The stored calls.
        is_local: True for the site on the user's machine, False for the site that HTTP clients link to.
        knows_readers: True if the site identifies its readers, and opens a page only for the user who made the call.
        secret_of: Returns the secret with which this site opens a call; an empty text if it never opens the call.
    """

    def __init__(
        self,
        book: CallBook,
        *,
        is_local: bool = False,
        knows_readers: bool = False,
        secret_of: Callable[[CallContent], str] = lambda content: content.channel.page_secret,
    ) -> None:
        self._book = book
        self._is_local = is_local
        self._knows_readers = knows_readers
        self._secret_of = secret_of

    def ticket_of(self, view: StoredView) -> str:
        """Return the ticket of a call's page."""
        return f"{view.entry.call_id}.{self._secret_of(view.content)}"

    def changes(self, ticket: str) -> AbstractContextManager[NextChange]:
        """Listen for changes to a ticket's call."""
        return changes_of(self._book.store, split_id(ticket)[0])

    async def open(self, ticket: str, subject: str | None) -> PageState:
        """Return the call's state for the reader of its page."""
        view = await self.view_for_reader(ticket, subject)
        return calls.ClosedPage() if view is None else self.state_of(view)

    def state_of(self, view: StoredView) -> PageState:
        """Return a call's state for the reader of its page."""
        entry, content = view
        # Questions that only client software can answer do not appear on the page.
        if entry.state is StoredState.ASKING and (questions := content.user_questions):
            return calls.AskingPage(_round_of(content), questions)
        if groups := awaited_groups(view):
            return calls.AwaitingPage(tuple(groups))
        if not entry.has_ended:
            is_new = self._book.clock() - entry.updated < _NEW_SECONDS
            # The call asks only what client software can answer, or needs its client's request.
            needs_client = content.needs_client or entry.state is StoredState.ASKING
            return calls.WorkingPage(1 if is_new else 3, needs_client)
        decisions: tuple[ShownDecision, ...] = ()
        # Only the caller sees decisions, because the reason for a decision may be personal.
        if self._knows_readers:
            decisions = _shown_decisions(content)
        has_failed = entry.state is not StoredState.COMPLETED
        was_refused = any(one.outcome != "approved" for one in decisions)
        return calls.EndedPage(
            _LOST if entry.state is StoredState.LOST else None,
            is_error=has_failed or (was_refused and bool((content.result or {}).get("isError"))),
            decisions=decisions,
        )

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Answer a round, at most once. Return False if the round is no longer open."""
        view = await self.view_for_reader(ticket, subject)
        if view is None:
            return False

        def answer(entry: CallEntry, now: float) -> bool:
            content = self._book.seal.read(entry.content, entry.call_id)
            if entry.state is not StoredState.ASKING or _round_of(content) != round_id:
                return False
            return self._book.take_answers(entry, content, answers, now)

        with reaching_store():
            if not await self._book.change(view.entry.call_id, answer):
                return False
        await self._until_next(view.entry.call_id)
        return True

    async def _until_next(self, call_id: str) -> None:
        """Wait briefly for the next question or the end of the call, which usually come at once."""
        changes = changes_of(self._book.store, call_id)
        # The answer is already stored, so a store failure does no harm here.
        with changes as next_change, anyio.move_on_after(_SETTLE_SECONDS), suppress(LedgerDown):
            while True:
                view = await self._book.find(call_id)
                if view is None or view.entry.has_ended or awaited_groups(view):
                    return
                if view.entry.state is StoredState.ASKING or view.content.needs_client:
                    return
                await next_change()

    async def refuse(self, view: StoredView, action: str) -> None:
        """Decline or cancel a page's open questions, or the next ones if no question is open."""

        def refuse(entry: CallEntry, now: float) -> None:
            if entry.has_ended:
                return
            content = self._book.seal.read(entry.content, entry.call_id)
            refused = {key: {"action": action} for key in content.user_questions}
            if entry.state is StoredState.ASKING and self._book.take_answers(entry, content, refused, now):
                return
            if action != "decline" or not withdraw(content, entry, now):
                content.channel.refusal = action
            entry.content = self._book.seal.write(content, entry.call_id)

        await self._book.change(view.entry.call_id, refuse)

    async def view_for_reader(self, ticket: str, subject: str | None) -> StoredView | None:
        """Return the call that a ticket opens for this reader; None if the call is unknown, or belongs to another user
        or site.
        """
        call_id, secret = split_id(ticket)
        with reaching_store():
            view = await self._book.find(call_id)
        if view is None or view.content.channel.is_local != self._is_local:
            return None
        content, expected = view.content, self._secret_of(view.content)
        if not expected or not hmac.compare_digest(expected.encode(), secret.encode("utf-8", "replace")):
            return None
        if self._knows_readers and (
            subject is None
            or content.origin.user is None
            or not is_same(subject, content.origin.user, by_token=self._book.knows_users_by_token)
        ):
            return None
        self._book.name(call_id)
        return view


class StoredPages(QuestionPages):
    """Pages of one server, for browsers that reach it over HTTP.

    Args:
        pages: The author's settings.
        base_url: The address at which browsers reach the server.
        name: The server's name.
        book: The stored calls.
    """

    def __init__(self, pages: Pages, base_url: str, *, name: str, book: CallBook) -> None:
        self._settings = pages
        knows_readers = pages.authenticate is not None
        self.calls = CallsOfSite(book, knows_readers=knows_readers)
        reader, look = self._reader if knows_readers else None, pages.look(name)
        site: SiteOptions = {"base_url": base_url, "keys": book.page_keys, "look": look, "templates": pages.folder}
        super().__init__(self.calls, authenticate=reader, **site)

    def serve_on(self, server: HostServer) -> None:
        """Add the pages to a server's application."""
        hide_tickets()
        for route in self.routes:
            server.custom_route(route.path, methods=["GET", "POST"], include_in_schema=False)(self.respond)

    async def _reader(self, request: Request) -> str | Response | None:
        """Return the page's reader, in the form of a principal."""
        authenticate = self._settings.authenticate
        reader = await authenticate(request) if authenticate is not None else None
        return compact_json(principal_components(reader)) if isinstance(reader, AccessToken) else reader

    def url_of(self, view: StoredView) -> str:
        """Return the address of a call's page.

        Raises:
            ValueError: The page is on the user's machine, and its address is never sent to clients.
        """
        if view.content.channel.is_local:
            raise ValueError("a local page has no address for clients")
        return self.url(self.calls.ticket_of(view))


def _shown_decisions(content: CallContent) -> tuple[ShownDecision, ...]:
    """Return the latest decision for each approval of a call. The caller sees the group, but not the person who
    decided.
    """
    latest = {record["name"]: record for record in records_of(content) if record["decision"] is not None}
    return tuple(
        ShownDecision(record["message"], record["by"], record["decision"]["outcome"], record["decision"]["reason"])
        for record in latest.values()
    )


def _round_of(content: CallContent) -> str:
    """Return a text that identifies a round. It differs for each round, because a question key is used only once."""
    return "\n".join(sorted(content.user_questions))
