"""Ask the user of a stdio server on a page of this machine, which opens in their browser."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from roundtrip.ledger.contract import LedgerDown
from roundtrip.pages.calls import PageCalls, PageState
from roundtrip.pages.handler import QuestionPages
from roundtrip.server.desktop_browser import LOCAL_PAGES_VARIABLE, obstacle_to_browser, open_in_browser
from roundtrip.server.late_writes import is_on_asyncio
from roundtrip.server.switches import is_on
from roundtrip.system import System

if TYPE_CHECKING:
    from roundtrip.pages.look import PageLook
    from roundtrip.server.local_site import LocalSite
    from roundtrip.server.tasks.book import TaskBook

__all__ = ["CallsOfSites", "LocalPages"]

logger = logging.getLogger("roundtrip")

_SECRET_BYTES: Final = 24


class CallsOfSites(Protocol):
    """Calls behind pages, of which each site opens its own."""

    async def open(self, ticket: str, subject: str | None, *, is_local: bool = ...) -> PageState:
        """Return the state of a call for the reader of its page."""
        ...

    async def answer(
        self,
        ticket: str,
        subject: str | None,
        round_id: str,
        answers: Mapping[str, Mapping[str, Any]],
        *,
        is_local: bool = ...,
    ) -> bool:
        """Give a round its answers, at most once."""
        ...


class LocalPages:
    """Pages of one server for the user of this machine.

    Args:
        calls: The calls behind the pages.
        book: The store of the calls.
        opener: Opens an address in the user's browser; None for the browser that Python's `webbrowser` finds.
        keys: Secrets that sign forms.
        look: Name, logo and color.
        templates: A folder with templates that replace those of the package.
        system: The randomness of the server.

    Raises:
        ValueError: A setting is not of its form.
    """

    def __init__(
        self,
        calls: CallsOfSites,
        book: TaskBook,
        *,
        opener: Callable[[str], object] | None,
        keys: Sequence[bytes],
        look: PageLook,
        templates: Path | None,
        system: System,
    ) -> None:
        self.label_key = system.new_id(_SECRET_BYTES)
        """Names the only client of this process."""
        self._calls = _OwnCalls(calls, book)
        self._book = book
        self._opener = opener
        self._pages: dict[str, Any] = {"keys": keys, "look": look, "templates": templates}
        self._new_secret = partial(system.new_id, _SECRET_BYTES)
        self._obstacle = _find_obstacle(has_opener=opener is not None)
        self._sites: dict[asyncio.AbstractEventLoop, LocalSite] = {}
        self._failed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # An author's mistake is an error at once, and not at the first question.
        QuestionPages(self._calls, base_url="http://127.0.0.1", **self._pages)

    def is_for(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a request came over stdio."""
        return ctx.request is None

    def can_ask(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if the user of a request can be asked on a page of this machine."""
        return self.is_for(ctx) and self._obstacle is None and is_on_asyncio()

    @contextmanager
    def explained(self, ctx: ServerRequestContext[Any, Any]) -> Generator[None]:
        """Tell a client that cannot be asked why its user is not asked on a page."""
        try:
            yield
        except MCPError as error:
            code, obstacle = error.error.code, self._obstacle
            if code != MISSING_REQUIRED_CLIENT_CAPABILITY or obstacle is None or not self.is_for(ctx):
                raise
            told = (
                f"{error.error.message}; a page in a browser cannot ask either, as {obstacle}. If a browser opens here "
                f"all the same, set {LOCAL_PAGES_VARIABLE}=1 in the environment of the server"
            )
            raise MCPError(code=code, message=told, data=error.error.data) from error

    # Pages of calls.

    async def show(self, ticket: str, *, call_id: str, expires: float, is_repeated: bool = False) -> None:
        """Open the page of a call, unless a browser should have it open; see `LocalSite.address_for`."""
        site = await self._site()
        address = site.address_for(ticket, expires, is_repeated=is_repeated) if site is not None else None
        if site is None:
            await self._give_up(call_id)
        elif address is not None:
            self._open(site, address, ticket, call_id)

    def has_failed(self, call_id: str) -> bool:
        """Return True if the page of a call could not be opened."""
        return call_id in self._failed

    async def stop(self) -> None:
        """Close the pages of this event loop."""
        site = self._sites.pop(asyncio.get_running_loop(), None)
        if site is not None:
            await site.close()

    async def _site(self) -> LocalSite | None:
        """Return the site of this event loop, which the first call starts; None if no port can be used."""
        from roundtrip.server.local_site import LocalSite, cookie_of  # no other transport needs uvicorn

        def make_pages(calls: PageCalls, base_url: str) -> QuestionPages:
            return QuestionPages(calls, base_url=base_url, authenticate=cookie_of, **self._pages)

        loop = asyncio.get_running_loop()
        if loop not in self._sites:
            try:
                site = self._sites[loop] = LocalSite(
                    self._calls, make_pages, clock=self._book.clock, new_secret=self._new_secret
                )
                # In an empty context: requests for pages must not find the request that has started the site.
                await loop.create_task(site.start(), context=Context())
            except OSError as error:
                self._sites.pop(loop, None)
                self._obstacle = f"no port of this machine can be used: {error.strerror}"
                return None
        return self._sites[loop]

    def _open(self, site: LocalSite, address: str, ticket: str, call_id: str) -> None:
        """Open an address in a thread, as a browser may stay in the foreground."""
        loop, opener = asyncio.get_running_loop(), self._opener or open_in_browser

        async def fail() -> None:
            # A browser that stayed in the foreground may end in any way.
            if not site.was_opened(ticket):
                await self._give_up(call_id)

        def start_failing() -> None:
            task = loop.create_task(fail())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        def run() -> None:
            try:
                result = opener(address)
                if inspect.isawaitable(result):
                    result = asyncio.run_coroutine_threadsafe(_awaited(result), loop).result()
            except Exception as error:  # noqa: BLE001 - the author's function
                # Without the text, which may have the address.
                logger.warning("the function of Pages(local=...) raised %s", type(error).__name__)
                result = False
            if result is False:
                # The loop may have ended before the browser.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(start_failing)

        # A thread of its own, which does not keep the process alive.
        threading.Thread(target=run, name="roundtrip-browser", daemon=True).start()

    async def _give_up(self, call_id: str) -> None:
        """End a call whose page cannot be opened."""
        if self._opener is None:
            self._obstacle = self._obstacle or "no browser could be started"
        logger.warning(
            "the page of call %s could not be opened: %s; set BROWSER to a browser, or pass Pages(local=...) a "
            "function that opens an address",
            call_id,
            self._obstacle or "the function of Pages(local=...) failed",
        )
        self._failed.add(call_id)
        with suppress(LedgerDown):
            await self._book.cancel(call_id)


class _OwnCalls:
    """Calls of clients on stdio; see `LocalPageCalls`."""

    def __init__(self, calls: CallsOfSites, book: TaskBook) -> None:
        self._calls = calls
        self._book = book

    async def open(self, ticket: str, subject: str | None) -> PageState:
        return await self._calls.open(ticket, subject, is_local=True)

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        return await self._calls.answer(ticket, subject, round_id, answers, is_local=True)

    def listen(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._book.store.listen(lambda call_id: changed(call_id or ""))


def _find_obstacle(*, has_opener: bool) -> str | None:
    """Return the reason for which no page can be opened; None if one can."""
    is_frozen = bool(getattr(sys, "frozen", False))
    found = obstacle_to_browser(os.environ, sys.platform, os.path.exists, is_frozen=is_frozen)
    if is_on(None, LOCAL_PAGES_VARIABLE, environment=os.environ, default=found is None or has_opener):
        return None
    return f"{LOCAL_PAGES_VARIABLE} is off" if LOCAL_PAGES_VARIABLE in os.environ else found


async def _awaited(result: Awaitable[object]) -> object:
    return await result
