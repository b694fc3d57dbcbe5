"""Serve the pages of `roundtrip ui` with data of the tests, by the contract between the pages and their server."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from roundtrip.trace.page.document import UI_PAGES, page_of
from roundtrip.trace.page.loopback import Loopback, headers_for
from tests.browser.hosting import hosted_in_a_thread

__all__ = ["NAV", "Query", "Served", "listed", "serving_pages", "summary"]

Data = dict[str, Any]
Query = Mapping[str, Sequence[str]]
Source = Data | Callable[[Query], Data]

NAV: Final = {
    "": "Calls",
    "tasks": "Tasks",
    "approvals": "Approvals",
    "rejected": "Rejected tokens",
    "fleet": "Fleet",
    "actions": "Actions",
}
_REFRESH_MS: Final = 50
_PAGE_CALLS: Final = 100
_FILES: Final = {"": "calls.json"}
_POLICY: Final = "default-src 'none'"


class Served:
    """Pages on a port, with data that a test gives and changes."""

    def __init__(self, port: int) -> None:
        self.loopback = Loopback(port)
        self.posted: list[tuple[str, Data]] = []
        self.answers: dict[str, Data] = {}
        """The answers to POST requests, by their places."""
        self.user = "ana"
        self.server = "shop.app:server"
        self._sources: dict[str, Source] = {}
        self._version = 1

    @property
    def url(self) -> str:
        return self.loopback.url

    def give(self, place: str, source: Source) -> None:
        """Give the page at a place its data, or a function that makes them for a query."""
        self._sources[place] = source
        self._version += 1

    def _data(self, place: str, query: Query) -> Data:
        source = self._sources[place]
        data: Data = source(query) if callable(source) else source
        nav = [{"name": name, "href": href or "./", "current": href == place} for href, name in NAV.items()]
        file = _FILES.get(place, f"{place}.json")
        url = f"{file}?id={quote(query['id'][0], safe='')}" if place == "call" else file
        live = {"url": url, "version": self._version, "every": _REFRESH_MS}
        # A call has a `server` of its own, a duration; the page's comes last.
        return {**data, "nav": nav, "user": self.user, "server": self.server, "live": live}

    async def get(self, request: Request) -> Response:
        """Return a page or its data; nothing if the page has seen this version of them."""
        place = self.loopback.place_of(request.url.path)
        query = parse_qs(request.url.query, keep_blank_values=True)
        files = {_FILES.get(known, f"{known}.json"): known for known in list(self._sources)}
        if place in files:
            if query.get("seen") == [str(self._version)]:
                return Response(status_code=HTTPStatus.NO_CONTENT)
            return JSONResponse(self._data(files[place], query), headers=headers_for(_POLICY))
        if place not in self._sources:
            return PlainTextResponse("there is no such page\n", HTTPStatus.NOT_FOUND, headers_for(_POLICY))
        page = page_of(UI_PAGES[place], NAV.get(place, "A call"), self._data(place, query))
        return HTMLResponse(page.text, headers=headers_for(page.policy))

    async def post(self, request: Request) -> Response:
        place = self.loopback.place_of(request.url.path) or ""
        assert request.headers["Content-Type"] == "application/json"
        self.posted.append((place, await request.json()))
        return JSONResponse(self.answers[place], headers=headers_for(_POLICY))


@contextmanager
def serving_pages() -> Generator[Served]:
    app = Starlette()
    with hosted_in_a_thread(app) as url:
        served = Served(urlsplit(url).port or 0)
        app.router.routes += [
            Route("/{place:path}", served.get),
            Route("/{place:path}", served.post, methods=["POST"]),
        ]
        yield served


# The list of calls.


def summary(call: str, tool: str = "book", state: str = "completed", **more: Any) -> Data:
    """Return a call of the list."""
    symbols = {"completed": "✓", "failed": "✗", "awaiting_input": "…"}
    return {
        **{"call": call, "tool": tool, "state": state, "symbol": symbols.get(state, "▸"), "rounds": 2},
        **{"reasons": ["new"], "instances": ["ash"], "build": "b1", "started": "2026-11-26 10:15:02"},
        **{"server": "12 ms", "waiting": "3 s", "why": "", "waits": "", **more},
    }


def listed(calls: Sequence[Data]) -> Callable[[Query], Data]:
    """Return a function that filters calls as the server does."""
    one = {"tool": "tool", "state": "state", "build": "build"}
    many = {"reason": "reasons", "instance": "instances"}

    def fits(call: Data, query: Query) -> bool:
        starts = query.get("q", [""])[-1]
        return (
            call["call"].startswith(starts)
            and all(call[part] in query[name] for name, part in one.items() if query.get(name))
            and all(set(call[part]) & {*query[name]} for name, part in many.items() if query.get(name))
        )

    def made(query: Query) -> Data:
        error = ""
        for name in ("since", "before"):
            if query.get(name) and query[name][-1][-1:] not in ("m", "h", "d"):
                error = f"{name} must be an age such as 10m, got another text; write 10m, 1h or 1d"
        found = [call for call in calls if fits(call, query)] if not error else []
        ids = [call["call"] for call in found]
        after = query.get("after", [""])[-1]
        first = ids.index(after) + 1 if after in ids else 0
        shown = found[first : first + _PAGE_CALLS]
        choices: Data = {name: Counter(call[part] for call in calls) for name, part in one.items()}
        choices |= {name: Counter(value for call in calls for value in call[part]) for name, part in many.items()}
        return {
            "calls": shown,
            "chosen": {name: list(values) for name, values in query.items() if name not in ("after", "seen")},
            "choices": {name: counts.most_common() for name, counts in choices.items()}
            | {"principal": [], "failure": []},
            "found": len(found),
            "found_more": False,
            "total": len(calls),
            "next": shown[-1]["call"] if first + _PAGE_CALLS < len(found) else None,
            "error": error,
        }

    return made
