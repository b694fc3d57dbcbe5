"""Visit pages for scripted users: functions of the test play the browser."""

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

# A failing test shows its own frames only.
__tracebackhide__ = True

_VISIT_SECONDS: Final = 30.0


class PageUnfinished(AssertionError):
    """Error for a page that the user agreed to open, and that `done=` never reported as finished."""

    def __init__(self, question: AskedQuestion, *, visits: int, waited: str) -> None:
        page = f"{question} (at {TICKET.sub('<ticket>', question.url or '')})"
        if visits:
            was = f"was visited {'once' if visits == 1 else f'{visits} times'}"
            cure = (
                "check the page's response to the visit, and that done= reads what the page writes, under the same "
                "ctx.call.id"
            )
        else:
            was = "was never visited"
            cure = (
                f"finish it as a person would, with User(..., visits={{{question.name or 'pattern'!r}: finish}}), or "
                "decline it in answers="
            )
        super().__init__(f"the page of {page} {was}, and {waited}; {cure}. If it takes longer, raise patience=")
        self.question = question


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of a page: the link, and a browser."""

    url: str
    """The link, as the client showed it."""
    message: str
    """The message of the question."""
    name: str | None
    """The name of the question, if it is known."""
    _server: object

    @property
    def query(self) -> Mapping[str, str]:
        """Return the parameters of the link, such as the ticket."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    def browser(self, **options: Any) -> httpx2.AsyncClient:
        """Make a browser for an `async with`. It needs absolute URLs, like `url`.

        If the server is a roundtrip server in this process, it opens the pages of `server.custom_route`, under any
        host. Otherwise it uses the network.

        Args:
            **options: Options of `httpx2.AsyncClient`, such as `cookies=`.
        """
        options.setdefault("follow_redirects", True)
        ours = attached(self._server)
        return httpx2.AsyncClient(**options) if ours is None or "transport" in options else browser_on(ours, **options)


VisitFn = Callable[[Visit], Awaitable[object]] | Callable[[Visit], object]
"""Plays the browser. A plain function runs in a thread."""

VisitsBy: TypeAlias = Mapping[MatcherT, VisitFn | Sequence[VisitFn]]
"""Visits by a question's name, a pattern of its message, or a function; the visits of a list are used in order."""


async def pay_visit(visit: VisitFn, question: AskedQuestion, *, server: object) -> None:
    """Visit a page; raise AssertionError if that takes too long."""
    seen = Visit(question.url or "", question.message, question.name, server)
    with anyio.move_on_after(_VISIT_SECONDS):
        if is_async(visit):
            returned = visit(seen)
        else:
            # The function may wait for a response from this event loop.
            returned = await anyio.to_thread.run_sync(visit, seen, abandon_on_cancel=True)
        if inspect.isawaitable(returned):
            await returned
        return
    raise AssertionError(f"the visit of the page of {question} did not end within {_VISIT_SECONDS:g} s")
