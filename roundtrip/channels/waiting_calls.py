"""Waiting calls: client requests find stored calls, wait for them, and pass answers to them.

Models repeat a tool call while it waits, and hosts send equal calls at the same time. All equal calls share one handle.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal, get_args

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageRequestParams

from roundtrip.channels.stored_replies import awaited_groups
from roundtrip.errors import CapabilityMissing
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry, changes_of
from roundtrip.legs.asking import AskingContext
from roundtrip.legs.boundary import Request
from roundtrip.limited_logs import LOG
from roundtrip.questions.markers import ListRoots, Marker, SdkSample
from roundtrip.questions.wire import question_of
from roundtrip.stored.book import CallBook, StoredView
from roundtrip.stored.content import CallContent, ContentUnreadable
from roundtrip.stored.model_answers import AnswersRefused, read_answers
from roundtrip.stored.service import CallService
from roundtrip.tools.failures import store_down

Showing = Literal["", "forms", "page", "any"]
"""How a client shows questions: not at all, in forms, or on a page. "any" marks a call that waits only for an approval.
"""
SHOWINGS: Final[tuple[Showing, ...]] = get_args(Showing)
_MAX_EQUAL: Final = 1000
_MAX_ROUNDS: Final = 100


class EqualCalls:
    """Equal calls from one server's users.

    Equal calls by one user share a label. One of these calls is chosen, and stays chosen until it ends. The chosen call
    stores the choice itself, so one compare-and-set is enough to choose.

    Args:
        book: The stored calls.
    """

    def __init__(self, book: CallBook) -> None:
        self._book = book

    def labels(
        self, user: str, params: Mapping[str, Any], version: str | None, *, showing: Showing = ""
    ) -> tuple[str, ...]:
        """Return the labels of a user's tool call, one for each signing key.

        The first label uses the newest key, and is stored with the call. The other labels find calls from instances
        that use another key.

        Args:
            user: The user.
            params: The request's parameters.
            version: The tool's version.
            showing: How the client shows questions. Clients that show questions differently share a call only while it
                waits for an approval.
        """
        called: list[Any] = [user, params.get("name"), version, params.get("arguments") or {}]
        text = json.dumps([*called, *([showing] if showing else [])], sort_keys=True).encode("utf-8", "surrogatepass")
        return tuple(hmac.digest(key, text, "sha256").hex() for key in self._book.page_keys)

    async def _equal(self, labels: Iterable[str]) -> list[str]:
        """Return the ids of the calls that have any of these labels, oldest first."""
        store = self._book.store
        found = {(one.created, one.call_id) for each in labels for one in await store.labelled(each, limit=_MAX_EQUAL)}
        return [call_id for _, call_id in sorted(found)]

    async def chosen(self, labels: Iterable[str]) -> str | None:
        """Return the chosen call for these labels, if any.

        Raises:
            LedgerDown: The store cannot be used.
        """
        return await self._first(labels, lambda view: view.content.channel.is_chosen)

    async def awaiting(self, labels: Iterable[str]) -> str | None:
        """Return a call that has one of these labels and waits only for an approval; None if there is no such call.

        Raises:
            LedgerDown: The store cannot be used.
        """
        return await self._first(labels, awaited_groups)

    async def _first(self, labels: Iterable[str], fits: Callable[[StoredView], object]) -> str | None:
        for call_id in await self._equal(labels):
            view = await self._book.view(call_id)
            if view is not None and not view.entry.has_ended and fits(view):
                return call_id
        return None

    async def choose(self, labels: Iterable[str], call_id: str) -> str:
        """Return the chosen call for the labels of a call that was just stored. If another call is chosen, drop the
        stored call.

        If no call is chosen yet, the oldest call becomes the chosen one. First the other calls are dropped, then the
        oldest is marked as chosen. A marked call cannot be dropped, and a dropped call cannot be marked. If one of
        these writes fails, another process was faster, and the choice starts over. A process that later stores an equal
        call finds the marked call, or drops the call that was about to be marked.

        Raises:
            LedgerDown: The store cannot be used.
        """
        for _ in range(_MAX_ROUNDS):
            chosen = await self.chosen(labels)
            if chosen is not None:
                if chosen != call_id:
                    await self._book.change(call_id, self._drop, joins=chosen)
                return chosen
            equal = await self._equal(labels)
            if not equal:
                # The stored call has already ended.
                return call_id
            first, *others = equal
            dropped = [await self._book.change(other, self._drop, joins=first) is not False for other in others]
            if not all(dropped) or not await self._book.change(first, self._mark):
                continue
            if first != call_id and call_id not in others:
                await self._book.change(call_id, self._drop, joins=first)
            return first
        raise LedgerDown("too many equal calls are stored at once")

    def _drop(self, entry: CallEntry, now: float) -> bool:
        """Cancel a call. Return False if the call is chosen."""
        if entry.has_ended:
            return True
        if self._book.seal.read(entry.content, entry.call_id).channel.is_chosen:
            return False
        return entry.apply(StoredEvent.CANCEL, now)

    def _mark(self, entry: CallEntry, now: float) -> bool:
        """Mark a call as chosen. Return False if the call was dropped."""
        if entry.has_ended:
            # If a call completed before it was marked, its result answers all equal calls.
            return entry.state is not StoredState.CANCELLED
        content = self._book.seal.read(entry.content, entry.call_id)
        content.channel.is_chosen = True
        entry.content, entry.updated = self._book.seal.write(content, entry.call_id), now
        return True


class WaitingCalls:
    """Stored calls of one server, as its clients' requests see them.

    Args:
        service: Stores calls, and runs their later legs.
        wait: How many seconds a request waits.
    """

    def __init__(self, service: CallService, wait: float) -> None:
        self._service = service
        self._book = service.book
        self._wait = wait

    async def view(self, call_id: str) -> StoredView | None:
        """Return a stored call; None if the call is unknown, or if this server has no key that opens it.

        Raises:
            MCPError: The store cannot be used.
        """
        with reaching_call():
            return await self._book.find(call_id)

    async def changed(self, view: StoredView, request: Request, *, until_asking: bool = False) -> StoredView | None:
        """Wait until a call ends, or asks the model or client software, but not longer than the wait limit. Return the
        call; None if it is no longer stored.

        If a leg needs its client, the leg runs within the waiting request.

        Args:
            view: The call.
            request: The client's request.
            until_asking: True to also return when the call asks on a page.

        Raises:
            MCPError: The store cannot be used.
        """
        call_id = view.entry.call_id
        self._book.name(call_id)
        with (
            changes_of(self._book.store, call_id) as next_change,
            anyio.move_on_after(min(self._wait, self._service.legs.page_wait)),
        ):
            while True:
                current = await self.view(call_id)
                if current is None or current.entry.has_ended:
                    return current
                content = current.content
                is_news = until_asking or content.asked.for_model or content.client_questions
                if current.entry.state is StoredState.ASKING and is_news:
                    return current
                if current.entry.state is StoredState.WAITING and content.needs_client:
                    with reaching_call():
                        await self._service.run_with_client(call_id, request)
                await next_change()
        return await self.view(call_id)

    async def take_from_client(self, view: StoredView, responses: Mapping[str, Any]) -> None:
        """Pass the client's answers to those questions that only client software can answer.

        Raises:
            MCPError: The store cannot be used.
        """
        if view.content.client_questions:

            def choose(content: CallContent) -> dict[str, Any]:
                return {key: responses[key] for key in content.client_questions if key in responses}

            await self._take(view.entry.call_id, choose)

    async def take_from_model(self, call_id: str, answers: dict[str, Any]) -> None:
        """Pass a model's answers to a call.

        Raises:
            AnswersRefused: One of these questions is not for a model.
            AnswersInvalid: An answer is invalid.
            MCPError: The store cannot be used.
        """
        if not await self._take(call_id, partial(read_answers, answers=answers), by_model=True):
            raise AnswersRefused

    async def _take(
        self, call_id: str, choose: Callable[[CallContent], Mapping[str, Any]], *, by_model: bool = False
    ) -> bool | None:
        """Give a call the answers that `choose` returns for the call's content. Return True if the call accepted at
        least one answer.
        """

        def take(entry: CallEntry, now: float) -> bool:
            content = self._book.seal.read(entry.content, entry.call_id)
            if entry.has_ended:
                return False
            return self._book.take_answers(entry, content, choose(content), now, by_model=by_model)

        with reaching_call():
            return await self._book.change(call_id, take)


@contextmanager
def reaching_call() -> Generator[None]:
    """Turn store errors into the MCP error that tells a client that its call cannot be reached."""
    try:
        yield
    except (LedgerDown, ContentUnreadable) as error:
        raise out_of_reach(error) from error


def out_of_reach(error: Exception) -> MCPError:
    """Return the MCP error that tells a client that its call cannot be reached, and log the reason."""
    LOG.warning("a stored call cannot be reached: %s", error)
    return store_down("Calls cannot be reached now")


async def ask_client(ctx: AskingContext[Any, Any], questions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask the client, and return its answers in wire form by question key; None if the client cannot answer every
    question.

    Args:
        ctx: A request from the client.
        questions: The questions, as wire requests.
    """
    markers = {key: _marker_of(asked) for key, asked in questions.items()}
    try:
        for key, marker in markers.items():
            question_of(marker).require(key, ctx.client_capabilities)
    except CapabilityMissing:
        return None
    answers = await ctx.ask_all(markers)
    return {key: question_of(markers[key]).plain(answer) for key, answer in answers.items()}


def _marker_of(asked: Mapping[str, Any]) -> Marker:
    if asked["method"] == "roots/list":
        return ListRoots()
    params = CreateMessageRequestParams.model_validate(asked["params"], by_name=False)
    sample = SdkSample(params.messages, max_tokens=params.max_tokens)
    sample.params = params
    return sample
