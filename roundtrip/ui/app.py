"""Web application of `roundtrip ui`: pages, their live data, and actions."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast, get_args
from urllib.parse import parse_qs, urlencode

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import StoredState
from roundtrip.stored.content import CallNotChanged
from roundtrip.trace.index.database import IndexUnusable
from roundtrip.trace.index.index import CallIndex
from roundtrip.trace.page.data import UNSERVED, Data, data_of, data_of_unserved
from roundtrip.trace.page.document import UI_PAGES, page_of
from roundtrip.trace.page.requests import (
    PageRejected,
    answer_change,
    answer_request,
    is_change,
    json_answer,
    page_answer,
    string_member,
)
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.transcripts import NoTranscript
from roundtrip.trace.writing.operator_log import OperatorLog, OperatorLogUnwritable
from roundtrip.ui.access import Access, AuthorizedRequest
from roundtrip.ui.fleet import fleet_data
from roundtrip.ui.forks import Forks
from roundtrip.ui.lists import Lists, Query
from roundtrip.ui.stored import OperatedCalls, StoredAction, call_state
from roundtrip.untrusted import is_texts

logger = logging.getLogger("roundtrip")

_REFRESH_MS: Final = 1000
_READ_SECONDS: Final = 0.5
_FLEET_SECONDS: Final = 5.0
_REFRESH_MS_OF: Final = {"fleet": 5000, "tasks": 2000, "approvals": 2000}
"""Longer refresh intervals for expensive pages, which read many calls or a store."""
_DONE_TEXTS: Final = {
    "cancel": "The call is cancelled.",
    "retry": "The call is due again.",
    "expire": "The call has expired.",
    "remind": "The call's groups were notified.",
}
_NAV: Final = {
    "": "Calls",
    "tasks": "Tasks",
    "approvals": "Approvals",
    "rejected": "Rejected tokens",
    "fleet": "Fleet",
    "actions": "Actions",
}


class UiApp:
    """ASGI application that serves the pages.

    Args:
        access: The access check for requests.
        index: The recorded calls.
        stored: The server's stored calls.
        forks: Forks of recorded calls.
        operator_log: The operator log; without it, no actions are allowed.
    """

    def __init__(
        self, access: Access, index: CallIndex, stored: OperatedCalls, forks: Forks, operator_log: Path | None
    ) -> None:
        self._access = access
        self._index = index
        self._lists = Lists(index)
        self._stored = stored
        self._forks = forks
        self._operator_log = operator_log
        self._fleet: tuple[float, Data] | None = None
        self._data: Mapping[str, Callable[[Query], Awaitable[Data]]] = {
            "": lambda query: anyio.to_thread.run_sync(self._lists.calls, query),
            "rejected": lambda query: anyio.to_thread.run_sync(self._lists.rejected, query),
            "actions": lambda query: anyio.to_thread.run_sync(self._lists.actions, query),
            "tasks": lambda query: self._stored.tasks(_states_in(query)),
            "approvals": lambda query: self._stored.approvals(),
            "fleet": lambda query: self._fleet_data(),
            "call": self._call,
        }
        self._changes: Mapping[str, Callable[[str, Mapping[str, Any]], Awaitable[Data]]] = {
            "act": self._act,
            "answer": self._answer,
            "fork": self._fork,
        }

    async def read_lines(self) -> None:
        """Keep reading the lines that recorders append, until this task is cancelled."""
        is_failing = False
        while True:
            try:
                read = await anyio.to_thread.run_sync(self._index.read_new_lines)
            except (IndexUnusable, NoTranscript, OSError) as error:
                if not is_failing:
                    logger.warning("the pages cannot show newly recorded lines: %s", error)
                is_failing, read = True, 0
            else:
                is_failing = False
            if not read:
                await asyncio.sleep(_READ_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await answer_request(self._respond, scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        authorized = self._access.enter(request)
        if is_change(request):
            change = self._changes.get(authorized.place)
            act = partial(change, authorized.user) if change is not None else None
            errors = (CallNotChanged, OperatorLogUnwritable, LedgerDown)
            return await answer_change(request, act, *errors, is_from_here=authorized.is_from_here)
        return await self._get(authorized, parse_qs(request.url.query, keep_blank_values=True))

    # Pages.

    async def _get(self, authorized: AuthorizedRequest, query: Query) -> Response:
        name = authorized.place.removesuffix(".json")
        is_data = name != authorized.place
        # The path of the first page is empty, but the path of its data is `calls.json`.
        name = "" if is_data and name == "calls" else name
        if name not in self._data or (is_data and authorized.place == ".json"):
            raise PageRejected(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            found = await self._data[name](query)
        except (IndexUnusable, NoTranscript, OSError) as error:
            logger.warning("a page cannot be shown: %s", error)
            why = "the transcripts cannot be read now; the command's output says why"
            raise PageRejected(HTTPStatus.SERVICE_UNAVAILABLE, why) from error
        data = {**found, "nav": self._nav(name), "user": authorized.user, "server": self._forks.target}
        version = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
        if is_data and _last_value(query, "seen") == version:
            return json_answer(None)
        # A list page appends its own query string to this path.
        url = f"{name or 'calls'}.json"
        if name == "call":
            url += f"?{urlencode({'id': _last_value(query, 'id')}, errors='replace')}"
        every = _REFRESH_MS_OF.get(name, _REFRESH_MS)
        data["live"] = {"url": url, "version": version, "every": every}
        if is_data:
            return json_answer(data)
        title = f"{found['tool']} {found['call']}" if name == "call" else _NAV[name]
        return page_answer(page_of(UI_PAGES[name], title, data))

    def _nav(self, name: str) -> list[Data]:
        return [{"name": title, "href": place or "./", "current": place == name} for place, title in _NAV.items()]

    async def _fleet_data(self) -> Data:
        now = time.monotonic()
        if self._fleet is None or now - self._fleet[0] > _FLEET_SECONDS:
            self._fleet = (now, await anyio.to_thread.run_sync(fleet_data, self._index))
        return {**self._fleet[1], **await self._stored.keys()}

    async def _call(self, query: Query) -> Data:
        id = _last_value(query, "id")
        call = await anyio.to_thread.run_sync(self._find, id)
        stored = await self._stored.call(id)
        if call is not None:
            fork, why = self._forks.find_rounds(call)
            shown = await anyio.to_thread.run_sync(data_of, call)
        elif stored is not None:
            fork, why = None, UNSERVED
            unserved = await anyio.to_thread.run_sync(self._index.find_unserved, id)
            shown = data_of_unserved(unserved, stored["tool"], call_state(stored["state"]))
        else:
            raise PageRejected(HTTPStatus.NOT_FOUND, "there is no such call")
        return {**shown, "stored": stored, "fork": fork, "fork_why": why}

    def _find(self, id: str) -> TracedCall | None:
        found = self._index.find(id)
        if found is None:
            # The call may have begun since the index was last updated.
            self._index.read_new_lines()
            found = self._index.find(id)
        return found

    # Changes.

    async def _act(self, user: str, body: Mapping[str, Any]) -> Data:
        action = string_member(body, "action")
        if action not in get_args(StoredAction):
            raise ValueError(f"action must be one of {', '.join(get_args(StoredAction))}")
        even_once = body.get("even_once") is True
        call_id = string_member(body, "call")
        operations = self._stored.logged_operations(self._log(user))
        await operations.act(call_id, cast("StoredAction", action), even_once=even_once)
        return {"done": _DONE_TEXTS[action]}

    async def _answer(self, user: str, body: Mapping[str, Any]) -> Data:
        action = string_member(body, "action")
        if action not in ("accept", "decline", "cancel"):
            raise ValueError("action must be accept, decline or cancel")
        call_id, key = string_member(body, "call"), string_member(body, "key")
        await self._stored.answer(self._log(user), call_id, key, action, body.get("fields", {}))
        return {"done": "The answer is stored."}

    def _log(self, user: str) -> OperatorLog:
        if self._operator_log is None:
            raise ValueError("actions need an operator log; start roundtrip ui with --operator-log FILE")
        return OperatorLog(self._operator_log, program="ui", by=user)

    async def _fork(self, user: str, body: Mapping[str, Any]) -> Data:
        at, answers = body.get("at"), body.get("answers", [])
        if not isinstance(at, int) or isinstance(at, bool):
            raise ValueError("`at` must be a round number")
        if not is_texts(answers):
            raise ValueError("answers must be a list of texts")
        found = await self._forks.fork(string_member(body, "call"), at, answers, run=body.get("run") is True)
        return {"fork": found}


def _states_in(query: Query) -> list[StoredState]:
    """Return the task states that a query names.

    Raises:
        PageRejected: A state is unknown.
    """
    try:
        return [StoredState(state) for state in query.get("state", ()) if state]
    except ValueError:
        raise PageRejected(HTTPStatus.BAD_REQUEST, f"state must be one of {', '.join(StoredState)}") from None


def _last_value(query: Query, name: str) -> str:
    return query.get(name, [""])[-1]
