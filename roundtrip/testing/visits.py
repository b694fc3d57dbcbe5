"""Page visits by scripted users. In each visit, one of the test's functions acts as the browser."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.to_thread
import httpx2

from roundtrip.adapters.finding import attached
from roundtrip.questions.wire import TICKET
from roundtrip.resolvers.signatures import is_async
from roundtrip.testing.conversations import AskedQuestion
from roundtrip.testing.question_pages import browser_on
from roundtrip.testing.scripts import MatcherT

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_VISIT_SECONDS: Final = 30.0


class PageUnfinished(AssertionError):
    """The user agreed to open a page, but `done=` never reported it as finished."""

    def __init__(self, question: AskedQuestion, *, visits: int, waited: str) -> None:
        page = f"{question} (at {TICKET.sub('<ticket>', question.url or '')})"
        if visits:
            history = f"was visited {'once' if visits == 1 else f'{visits} times'}"
            advice = (
                "check the page's response to the visit, and check that done= reads what the page writes under the "
                "same ctx.call.id"
            )
        else:
            history = "was never visited"
            advice = (
                f"visit the page with User(..., visits={{{question.name or 'pattern'!r}: finish}}), or decline the "
                "question in answers="
            )
        super().__init__(
            f"the page of {page} {history}, and {waited}; {advice}. If the page takes longer, raise patience="
        )
        self.question = question


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to a page, with the page's link and a browser."""

    url: str
    """The link that the client showed."""
    message: str
    """The question's message."""
    name: str | None
    """The question's name, if it is known."""
    _server: object

    @property
    def query(self) -> Mapping[str, str]:
        """Return the link's query parameters, such as the ticket."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    def browser(self, **options: Any) -> httpx2.AsyncClient:
        """Make a browser, to be used with `async with`. It accepts only absolute URLs, such as `url`.

        If the roundtrip server is in this process, the browser ignores host names and opens the pages that the server's
        `custom_route` serves. Otherwise, the browser uses the network.

        Args:
            **options: Arguments for `httpx2.AsyncClient`, such as `cookies=`.
        """
        options.setdefault("follow_redirects", True)
        ours = attached(self._server)
        return httpx2.AsyncClient(**options) if ours is None or "transport" in options else browser_on(ours, **options)


VisitFn = Callable[[Visit], Awaitable[object]] | Callable[[Visit], object]
"""A function that acts as the browser. If it is not asynchronous, it runs in a thread."""

VisitsBy: TypeAlias = Mapping[MatcherT, VisitFn | Sequence[VisitFn]]
"""Visits by question name, message pattern or function. The visits in a list are used in order."""


async def pay_visit(visit_fn: VisitFn, question: AskedQuestion, *, server: object) -> None:
    """Visit a page. Raise AssertionError if the visit takes too long."""
    visit = Visit(question.url or "", question.message, question.name, server)
    with anyio.move_on_after(_VISIT_SECONDS):
        if is_async(visit_fn):
            returned = visit_fn(visit)
        else:
            # Run the function in a thread, because it may wait for a response from this event loop.
            returned = await anyio.to_thread.run_sync(visit_fn, visit, abandon_on_cancel=True)
        if inspect.isawaitable(returned):
            await returned
        return
    raise AssertionError(f"the visit to the page of {question} did not end within {_VISIT_SECONDS:g} s")
