"""Serve the pages of `roundtrip ui` with data of the tests, by the contract between the pages and their server."""

import json
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from roundtrip.trace.page.document import UI_PAGES, page_of
from roundtrip.trace.page.loopback import HOST, Loopback, headers_for

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

    def page_at(self, place: str, query: Query) -> tuple[str, str] | None:
        if place not in self._sources:
            return None
        page = page_of(UI_PAGES[place], NAV.get(place, "A call"), self._data(place, query))
        return page.text, page.policy

    def data_at(self, file: str, query: Query) -> Data | None:
        """Return the data of a file; empty if the client has seen this version of them."""
        places = [place for place in self._sources if _FILES.get(place, f"{place}.json") == file]
        if not places:
            return None
        return {} if list(query.get("seen", [])) == [str(self._version)] else self._data(places[0], query)

    def _data(self, place: str, query: Query) -> Data:
        source = self._sources[place]
        data: Data = source(query) if callable(source) else source
        nav = [{"name": name, "href": href or "./", "current": href == place} for href, name in NAV.items()]
        file = _FILES.get(place, f"{place}.json")
        url = f"{file}?id={quote(query['id'][0], safe='')}" if place == "call" else file
        live = {"url": url, "version": self._version, "every": _REFRESH_MS}
        # A call has a `server` of its own, a duration; the page's comes last.
        return {**data, "nav": nav, "user": self.user, "server": self.server, "live": live}


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        place = self.served.loopback.place_of(address.path)
        query = parse_qs(address.query, keep_blank_values=True)
        if place is not None and place.endswith(".json"):
            data = self.served.data_at(place, query)
            if data is not None:
                self._send(HTTPStatus.OK if data else HTTPStatus.NO_CONTENT, json.dumps(data), "application/json")
                return
        page = self.served.page_at(place, query) if place is not None else None
        if page is None:
            self._send(HTTPStatus.NOT_FOUND, "there is no such page\n", "text/plain")
            return
        self._send(HTTPStatus.OK, page[0], "text/html; charset=utf-8", page[1])

    def do_POST(self) -> None:
        place = self.served.loopback.place_of(self.path) or ""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/json"
        self.served.posted.append((place, body))
        self._send(HTTPStatus.OK, json.dumps(self.served.answers[place]), "application/json")

    def _send(self, status: int, text: str, kind: str, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        body = b"" if status == HTTPStatus.NO_CONTENT else text.encode()
        headers = {**headers_for(policy), "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore pages that were closed during a request."""


@contextmanager
def serving_pages() -> Generator[Served]:
    handler = type("Handler", (_Handler,), {})
    with _HTTPServer((HOST, 0), handler) as server:
        served = Served(server.server_port)
        handler.served = served
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


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
