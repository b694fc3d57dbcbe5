"""Serve the pages of `roundtrip ui` with data of the tests, by the contract between the pages and their server."""

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

__all__ = ["NAV", "Query", "Served", "serving_pages"]

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
