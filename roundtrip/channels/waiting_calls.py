"""Wait for stored calls on behalf of their clients, and give them the answers that came with requests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageRequestParams

from roundtrip.errors import CapabilityMissing
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry, changes_of
from roundtrip.legs.asking import AskingContext
from roundtrip.legs.boundary import Request
from roundtrip.limited_logs import LOG
from roundtrip.questions.markers import ListRoots, Marker, SdkSample
from roundtrip.questions.wire import question_of
from roundtrip.stored.book import StoredView
from roundtrip.stored.content import CallContent, ContentUnreadable
from roundtrip.stored.model_answers import AnswersRefused, read_answers
from roundtrip.stored.service import CallService
from roundtrip.tools.failures import store_down


class WaitingCalls:
    """Stored calls of one server, for requests of their clients.

    Args:
        service: Stores calls, and runs their further legs.
        wait: Seconds for which a request waits.
    """

    def __init__(self, service: CallService, wait: float) -> None:
        self._service = service
        self._book = service.book
        self._wait = wait

    async def view(self, call_id: str) -> StoredView | None:
        """Return a stored call; None if there is none, or no key of this server opens it.

        Raises:
            MCPError: The store cannot be used.
        """
        with reaching_call():
            return await self._book.find(call_id)

    async def changed(self, view: StoredView, request: Request, *, until_asking: bool = False) -> StoredView | None:
        """Wait for some seconds until a call has ended or asks the model, and return it; None if it was forgotten.

        A leg that needs its client runs with the request that waits.

        Args:
            view: The call.
            request: The request of the client.
            until_asking: True to return a call that asks on a page, too.

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
        """Give a call the client's answers to questions that only its software answers, and no others.

        Raises:
            MCPError: The store cannot be used.
        """
        if view.content.client_questions:

            def choose(content: CallContent) -> dict[str, Any]:
                return {key: responses[key] for key in content.client_questions if key in responses}

            await self._take(view.entry.call_id, choose)

    async def take_from_model(self, call_id: str, answers: dict[str, Any]) -> None:
        """Give a call the answers of a model.

        Raises:
            AnswersRefused: The call does not ask a model one of the questions.
            AnswersInvalid: An answer does not fit.
            MCPError: The store cannot be used.
        """
        if not await self._take(call_id, partial(read_answers, answers=answers), by_model=True):
            raise AnswersRefused

    async def _take(
        self, call_id: str, choose: Callable[[CallContent], Mapping[str, Any]], *, by_model: bool = False
    ) -> bool | None:
        """Give a call the answers that fit its content. Return True if there were any."""

        def take(entry: CallEntry, now: float) -> bool:
            content = self._book.seal.read(entry.content, entry.call_id)
            if entry.has_ended:
                return False
            return self._book.take_answers(entry, content, choose(content), now, by_model=by_model)

        with reaching_call():
            return await self._book.change(call_id, take)


@contextmanager
def reaching_call() -> Generator[None]:
    """Raise the error for a client whose call cannot be reached, in place of that of a store that cannot be used."""
    try:
        yield
    except (LedgerDown, ContentUnreadable) as error:
        raise out_of_reach(error) from error


def out_of_reach(error: Exception) -> MCPError:
    """Return the error for a client whose call cannot be reached, and log the reason."""
    LOG.warning("a stored call cannot be reached: %s", error)
    return store_down("Calls cannot be reached now")


async def ask_client(ctx: AskingContext[Any, Any], questions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the client's answers as on the wire, by the keys of their questions; None if it cannot answer all.

    Args:
        ctx: A request of the client.
        questions: The requests as on the wire.
    """
    markers = {key: _marker_of(asked) for key, asked in questions.items()}
    try:
        for key, marker in markers.items():
            question_of(marker).require(key, ctx.client_capabilities)
    except CapabilityMissing:
        return None
    said = await ctx.ask_all(markers)
    return {key: question_of(markers[key]).plain(answer) for key, answer in said.items()}


def _marker_of(asked: Mapping[str, Any]) -> Marker:
    if asked["method"] == "roots/list":
        return ListRoots()
    params = CreateMessageRequestParams.model_validate(asked["params"], by_name=False)
    sample = SdkSample(params.messages, max_tokens=params.max_tokens)
    sample.params = params
    return sample
