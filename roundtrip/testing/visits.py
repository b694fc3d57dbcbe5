"""Visits of pages: the scripted user's browser, played by functions of the test."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.to_thread
import httpx2
from starlette.applications import Starlette

from roundtrip.questions.wire import TICKET
from roundtrip.server.server import Server
from roundtrip.testing.conversations import AskedQuestion
from roundtrip.testing.scripts import MatcherT, fits, is_sequence, matcher_text

__all__ = ["PageUnfinished", "Visit", "VisitFn", "Visits", "VisitsBy", "pay_visit"]

# A failing test shows where the test failed, and not the way through here.
__tracebackhide__ = True

_VISIT_TAKES: Final = 30.0
"""Seconds that one visit may take."""


class PageUnfinished(AssertionError):
    """The user agreed to go to a page, and the call does not go on: `done=` never found the page finished."""

    def __init__(self, question: AskedQuestion, *, visits: int, waited: str) -> None:
        page = f"{question} (at {TICKET.sub('<ticket>', question.url or '')})"
        if visits:
            was = f"was visited {'once' if visits == 1 else f'{visits} times'}"
            cure = (
                "look at what the visit got back (did the page refuse it?), and whether done= reads what the page "
                "writes, under the same ctx.call.id"
            )
        else:
            was = "was never visited"
            cure = (
                f"finish it as a person would, with User(..., visits={{{question.key or 'pattern'!r}: finish}}), or "
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
    """What the question said."""
    key: str | None
    """The name of the question, where it is known."""
    _server: object

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the link, such as the ticket."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    def browser(self, **options: Any) -> httpx2.AsyncClient:
        """Make a browser. Use it in an `async with`, with links in full, as `url` is.

        It opens the pages that a roundtrip server of this process has with `server.custom_route`, whatever the host in
        the link; in front of any other server it goes out to the network.

        Args:
            **options: Those of an `httpx2.AsyncClient`, such as `cookies=`.
        """
        server: object = self._server
        if isinstance(server, Server) and "transport" not in options:
            app = Starlette(routes=cast("Server[Any]", server).own_routes)
            options["transport"] = httpx2.ASGITransport(app=app)
        options.setdefault("follow_redirects", True)
        return httpx2.AsyncClient(**options)


VisitFn = Callable[[Visit], Awaitable[object]] | Callable[[Visit], object]
"""Plays the browser; may be plain, and then runs in a thread."""

VisitsBy: TypeAlias = Mapping[MatcherT, VisitFn | Sequence[VisitFn]]
"""What to do on pages, by a question's name, by a pattern of its message, or by a function; a list is used in order."""


class Visits:
    """The visits of one call, and what of them has not been made."""

    def __init__(self, visits: Mapping[Any, VisitFn | Sequence[VisitFn]]) -> None:
        self._entries: list[tuple[Any, list[VisitFn], bool]] = [
            (
                matcher,
                list(cast("Sequence[VisitFn]", one)) if is_sequence(one) else [cast("VisitFn", one)],
                is_sequence(one),
            )
            for matcher, one in visits.items()
        ]
        self._used: set[int] = set()

    def visit_for(self, question: AskedQuestion, *, again: bool) -> VisitFn | None:
        """The visit that is to be made now; a page that has been visited is visited again only if a list says so."""
        for place, (matcher, visits, in_order) in enumerate(self._entries):
            if visits and fits(matcher, question):
                if in_order:
                    visit = visits.pop(0)
                    if not visits:
                        self._used.add(place)
                    return visit
                self._used.add(place)
                return None if again else visits[0]
        return None

    @property
    def unused(self) -> list[str]:
        """The pages that nobody was sent to."""
        return [
            f"the page {matcher_text(matcher)}" + (f" ({len(visits)} visits left)" if in_order else "")
            for place, (matcher, visits, in_order) in enumerate(self._entries)
            if place not in self._used
        ]


async def pay_visit(visit: VisitFn, question: AskedQuestion, *, server: object) -> None:
    """Visit a page.

    Raises:
        AssertionError: It takes too long.
        Exception: What the visit raised.
    """
    seen = Visit(question.url or "", question.message, question.key, server)
    with anyio.move_on_after(_VISIT_TAKES) as patience:
        if inspect.iscoroutinefunction(visit) or inspect.iscoroutinefunction(getattr(visit, "__call__", None)):  # noqa: B004
            returned = visit(seen)
        else:
            # It may wait for what this very loop serves.
            returned = await anyio.to_thread.run_sync(visit, seen, abandon_on_cancel=True)
        if inspect.isawaitable(returned):
            await returned
        return
    if patience.cancelled_caught:
        raise AssertionError(f"the visit of the page of {question} did not end within {_VISIT_TAKES:g} s")
