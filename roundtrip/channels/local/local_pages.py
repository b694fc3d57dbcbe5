"""Ask the user of a stdio server on a page of this machine, which opens in their browser."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.server.context import ServerRequestContext

from roundtrip.channels.stored_pages import CallsOfSite
from roundtrip.ledger.contract import LedgerDown
from roundtrip.on_demand import load_on_use
from roundtrip.pages.handler import QuestionPages
from roundtrip.switches import is_on
from roundtrip.system import System
from roundtrip.threads.loops import is_on_asyncio

if TYPE_CHECKING:
    from roundtrip.channels.local import local_site
    from roundtrip.pages.settings import Pages
    from roundtrip.stored.book import CallBook, StoredView
else:
    load_on_use(globals(), "roundtrip.channels.local.local_site")

logger = logging.getLogger("roundtrip")

_SECRET_BYTES: Final = 24
LOCAL_PAGES_VARIABLE: Final = "ROUNDTRIP_LOCAL_PAGES"
"""Decides about pages of this machine, whatever their obstacles: 1 or 0."""

_CONTAINER_FILES: Final = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_VARIABLES: Final = ("container", "KUBERNETES_SERVICE_HOST")
_SSH_VARIABLES: Final = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_DISPLAY_VARIABLES: Final = ("DISPLAY", "WAYLAND_DISPLAY")
_OWN_SCREEN: Final = ("darwin", "win32", "cygwin")
"""Platforms on which a program needs no variable to find the screen."""
_OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


class LocalPages:
    """Pages of one server for the user of this machine.

    Args:
        pages: The author's settings. A function in `local` opens an address in the user's browser, in place of the
            browser that Python's `webbrowser` finds.
        name: The name of the server.
        book: The stored calls.
        system: The randomness of the server.

    Raises:
        ValueError: A setting is not of its form.
    """

    def __init__(self, pages: Pages, *, name: str, book: CallBook, system: System) -> None:
        self._process = system.new_id(_SECRET_BYTES)
        self._calls = CallsOfSite(book, is_local=True)
        self._book = book
        self._opener = opener = pages.local if callable(pages.local) else None
        self._pages: dict[str, Any] = {"keys": book.page_keys, "look": pages.look(name), "templates": pages.folder}
        self._new_secret = partial(system.new_id, _SECRET_BYTES)
        self._obstacle = _find_obstacle(has_opener=opener is not None)
        self._sites: dict[asyncio.AbstractEventLoop, local_site.LocalSite] = {}
        self._failed: set[str] = set()
        self._untold: dict[str, int] = {}
        """The calls whose handle no client has, with the number of requests that wait for them."""
        self._tasks: set[asyncio.Task[None]] = set()
        # An author's mistake is an error at once, and not at the first question.
        QuestionPages(self._calls, base_url="http://127.0.0.1", **self._pages)

    def is_for(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a request came over stdio."""
        return ctx.request is None

    def can_ask(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if the user of a request can be asked on a page of this machine."""
        return self.is_for(ctx) and self._obstacle is None and is_on_asyncio()

    def obstacle_for(self, ctx: ServerRequestContext[Any, Any]) -> str | None:
        """Return the words that tell a client of this machine why no page can ask its user; None if a page can."""
        if self._obstacle is None or not self.is_for(ctx):
            return None
        return (
            f"a page in a browser cannot ask either, as {self._obstacle}. If a browser opens here all the same, set "
            f"{LOCAL_PAGES_VARIABLE}=1 in the environment of the server"
        )

    def caller(self, principal: str | None) -> str:
        """Return a name of a caller on stdio, which is used in this process alone."""
        return json.dumps([self._process, principal])

    # Requests that wait for calls.

    @asynccontextmanager
    async def awaited(self, view: StoredView, *, is_first: bool) -> AsyncGenerator[None]:
        """Wait for a call in the block. If all its requests are cancelled before a client has its handle, it ends.

        Args:
            view: The call.
            is_first: True for the request that began it, when no client has its handle.
        """
        call_id = view.entry.call_id
        if is_first:
            self._untold.setdefault(call_id, 0)
        if call_id in self._untold:
            self._untold[call_id] += 1
        try:
            yield
        except BaseException:
            if call_id in self._untold:
                self._untold[call_id] -= 1
                if not self._untold[call_id]:
                    del self._untold[call_id]
                    with anyio.CancelScope(shield=True), suppress(LedgerDown):
                        await self._book.cancel(call_id)
            raise
        self._untold.pop(call_id, None)

    # Pages of calls.

    async def show(self, view: StoredView, *, is_repeated: bool = False) -> None:
        """Open the page of a call, unless it has ended, or a browser should have it; see `LocalSite.address_for`."""
        entry = view.entry
        if entry.has_ended:
            return
        call_id, ticket, site = entry.call_id, self._calls.ticket_of(view), await self._site()
        address = site.address_for(ticket, entry.expires, is_repeated=is_repeated) if site is not None else None
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

    async def _site(self) -> local_site.LocalSite | None:
        """Return the site of this event loop, which the first call starts; None if no port can be used."""
        loop = asyncio.get_running_loop()
        if loop not in self._sites:
            try:
                site = self._sites[loop] = local_site.LocalSite(
                    self._calls, clock=self._book.clock, new_secret=self._new_secret, **self._pages
                )
                # In an empty context: requests for pages must not find the request that has started the site.
                await loop.create_task(site.start(), context=Context())
            except OSError as error:
                self._sites.pop(loop, None)
                self._obstacle = f"no port of this machine can be used: {error.strerror}"
                return None
        return self._sites[loop]

    def _open(self, site: local_site.LocalSite, address: str, ticket: str, call_id: str) -> None:
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


def _find_obstacle(*, has_opener: bool) -> str | None:
    """Return the reason for which no page can be opened; None if one can."""
    is_frozen = bool(getattr(sys, "frozen", False))
    found = obstacle_to_browser(os.environ, sys.platform, os.path.exists, is_frozen=is_frozen)
    if is_on(None, LOCAL_PAGES_VARIABLE, environment=os.environ, default=found is None or has_opener):
        return None
    return f"{LOCAL_PAGES_VARIABLE} is off" if LOCAL_PAGES_VARIABLE in os.environ else found


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def obstacle_to_browser(
    environment: Mapping[str, str], platform: str, exists: Callable[[str], bool], *, is_frozen: bool = False
) -> str | None:
    """Return the reason for which no browser of this machine's user can open a page of this process; None if one can.

    Args:
        environment: The variables of the process.
        platform: The platform, as `sys.platform` names it.
        exists: Returns True if there is a file of this path.
        is_frozen: True if the process runs no Python of its own, but one program with everything in it.
    """
    if any(environment.get(name) for name in _SSH_VARIABLES):
        return "the server runs over SSH, and its user's browser is on another machine"
    if any(exists(path) for path in _CONTAINER_FILES) or any(environment.get(name) for name in _CONTAINER_VARIABLES):
        return "the server runs in a container, and its user's browser is outside"
    if platform not in _OWN_SCREEN and not any(environment.get(name) for name in _DISPLAY_VARIABLES):
        return "there is no display: neither DISPLAY nor WAYLAND_DISPLAY is set"
    if is_frozen:
        return "a frozen program cannot open a browser apart from its own streams"
    return None


def open_in_browser(url: str) -> bool:
    """Open an address as Python's `webbrowser` does, with its choice of a browser; return False if that failed.

    A browser writes to the streams that it inherits, and on stdio they carry the protocol. So it runs in a process of
    its own with null streams. It may stay in the foreground, and this returns when it has ended.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return False
    # Isolated: no module of the working folder takes the place of one of the standard library.
    command = [sys.executable, "-I", "-c", _OPEN, url]
    # The user's interrupt of the server must not end the browser, nor a console open on Windows.
    null, flags = subprocess.DEVNULL, getattr(subprocess, "CREATE_NO_WINDOW", 0)
    done = subprocess.run(  # noqa: S603 - no shell
        command, stdin=null, stdout=null, stderr=null, check=False, start_new_session=True, creationflags=flags
    )
    return done.returncode == 0
