"""Local pages: a page in a browser on the same machine asks the user of a stdio server."""

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

load_on_use(globals(), "roundtrip.channels.local.local_site")

logger = logging.getLogger("roundtrip")

_SECRET_BYTES: Final = 24
LOCAL_PAGES_VARIABLE: Final = "ROUNDTRIP_LOCAL_PAGES"
"""Turns local pages on (1) or off (0), regardless of what the server detects."""

_CONTAINER_FILES: Final = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_VARIABLES: Final = ("container", "KUBERNETES_SERVICE_HOST")
_SSH_VARIABLES: Final = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_DISPLAY_VARIABLES: Final = ("DISPLAY", "WAYLAND_DISPLAY")
_OWN_SCREEN: Final = ("darwin", "win32", "cygwin")
"""Platforms on which a program finds the screen without an environment variable."""
_OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


class LocalPages:
    """Pages of one server, for the user of this machine.

    Args:
        pages: The author's settings. If `local` is a function, it opens addresses in the user's browser; otherwise,
            Python's `webbrowser` does.
        name: The server's name.
        book: The stored calls.
        system: Makes random secrets.

    Raises:
        ValueError: A setting is invalid.
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
        self._undelivered: dict[str, int] = {}
        """Calls whose handle has not yet reached a client, each with the number of requests that wait for the call."""
        self._tasks: set[asyncio.Task[None]] = set()
        # Report an invalid setting now, not at the first question.
        QuestionPages(self._calls, base_url="http://127.0.0.1", **self._pages)

    def is_for(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a request came over stdio."""
        return ctx.request is None

    def can_ask(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a local page can ask the request's user."""
        return self.is_for(ctx) and self._obstacle is None and is_on_asyncio()

    def obstacle_for(self, ctx: ServerRequestContext[Any, Any]) -> str | None:
        """Return a message that tells a stdio client why a page cannot ask its user; None if a page can."""
        if self._obstacle is None or not self.is_for(ctx):
            return None
        return (
            f"a page in a browser cannot ask either, because {self._obstacle}. If a browser can open here, set "
            f"{LOCAL_PAGES_VARIABLE}=1 in the server's environment"
        )

    def caller(self, principal: str | None) -> str:
        """Return a name for a stdio caller. The name is used only in this process."""
        return json.dumps([self._process, principal])

    # Waiting requests

    @asynccontextmanager
    async def awaited(self, view: StoredView, *, is_first: bool) -> AsyncGenerator[None]:
        """Track a request that waits for a call. If every such request is cancelled before a client has the call's
        handle, end the call.

        Args:
            view: The call.
            is_first: True for the request that began the call. At that time, no client has the handle yet.
        """
        call_id = view.entry.call_id
        if is_first:
            self._undelivered.setdefault(call_id, 0)
        if call_id in self._undelivered:
            self._undelivered[call_id] += 1
        try:
            yield
        except BaseException:
            if call_id in self._undelivered:
                self._undelivered[call_id] -= 1
                if not self._undelivered[call_id]:
                    del self._undelivered[call_id]
                    with anyio.CancelScope(shield=True), suppress(LedgerDown):
                        await self._book.cancel(call_id)
            raise
        self._undelivered.pop(call_id, None)

    # Call pages

    async def show(self, view: StoredView, *, is_repeated: bool = False) -> None:
        """Open the page of a running call, unless a browser already has the page; see `LocalSite.address_for`."""
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
        """Return True if the call's page could not be opened."""
        return call_id in self._failed

    async def stop(self) -> None:
        """Close the pages on this event loop."""
        site = self._sites.pop(asyncio.get_running_loop(), None)
        if site is not None:
            await site.close()

    async def _site(self) -> local_site.LocalSite | None:
        """Return the site on this event loop; None if no port can be used. The first call starts the site."""
        loop = asyncio.get_running_loop()
        if loop not in self._sites:
            try:
                site = self._sites[loop] = local_site.LocalSite(
                    self._calls, clock=self._book.clock, new_secret=self._new_secret, **self._pages
                )
                # Start in an empty context, so that page requests do not see the context variables of the request that
                # started the site.
                await loop.create_task(site.start(), context=Context())
            except OSError as error:
                self._sites.pop(loop, None)
                self._obstacle = f"no local port can be used: {error.strerror}"
                return None
        return self._sites[loop]

    def _open(self, site: local_site.LocalSite, address: str, ticket: str, call_id: str) -> None:
        """Open an address in a thread, because `webbrowser` may wait until the browser ends."""
        loop, opener = asyncio.get_running_loop(), self._opener or open_in_browser

        async def fail() -> None:
            # A browser that ran in the foreground may report a failure when it ends, even if it showed the page.
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
                    result = asyncio.run_coroutine_threadsafe(_wait_for(result), loop).result()
            except Exception as error:  # noqa: BLE001 - the author's function
                # Log only the type, because the message may contain the address.
                logger.warning("the function of Pages(local=...) raised %s", type(error).__name__)
                result = False
            if result is False:
                # The loop may close before the browser ends.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(start_failing)

        # A daemon thread, so that the browser does not keep the process alive.
        threading.Thread(target=run, name="roundtrip-browser", daemon=True).start()

    async def _give_up(self, call_id: str) -> None:
        """End a call whose page cannot be opened."""
        if self._opener is None:
            self._obstacle = self._obstacle or "no browser could be started"
        logger.warning(
            "the page of call %s could not be opened: %s; set the BROWSER variable to a browser's command, or set "
            "Pages(local=...) to a function that opens an address",
            call_id,
            self._obstacle or "the function of Pages(local=...) failed",
        )
        self._failed.add(call_id)
        with suppress(LedgerDown):
            await self._book.cancel(call_id)


def _find_obstacle(*, has_opener: bool) -> str | None:
    """Return the reason why a page cannot be opened; None if it can."""
    is_frozen = bool(getattr(sys, "frozen", False))
    found = obstacle_to_browser(os.environ, sys.platform, os.path.exists, is_frozen=is_frozen)
    if is_on(None, LOCAL_PAGES_VARIABLE, environment=os.environ, default=found is None or has_opener):
        return None
    return f"{LOCAL_PAGES_VARIABLE} is off" if LOCAL_PAGES_VARIABLE in os.environ else found


async def _wait_for(result: Awaitable[object]) -> object:
    return await result


def obstacle_to_browser(
    environment: Mapping[str, str], platform: str, exists: Callable[[str], bool], *, is_frozen: bool = False
) -> str | None:
    """Return the reason why this process cannot open a page in the user's browser; None if it can.

    Args:
        environment: The process's environment variables.
        platform: The platform, as in `sys.platform`.
        exists: Returns True if a file exists at a path.
        is_frozen: True if the process is a frozen program, so that `sys.executable` cannot run Python code.
    """
    if any(environment.get(name) for name in _SSH_VARIABLES):
        return "the server runs over SSH, and its user's browser is on another machine"
    if any(exists(path) for path in _CONTAINER_FILES) or any(environment.get(name) for name in _CONTAINER_VARIABLES):
        return "the server runs in a container, and its user's browser is outside"
    if platform not in _OWN_SCREEN and not any(environment.get(name) for name in _DISPLAY_VARIABLES):
        return "there is no display: neither DISPLAY nor WAYLAND_DISPLAY is set"
    if is_frozen:
        return "a frozen program cannot open a browser without sharing its streams"
    return None


def open_in_browser(url: str) -> bool:
    """Open an address in the browser that Python's `webbrowser` chooses; return False if that failed.

    A browser writes to the streams that it inherits, and on stdio those streams carry the protocol. So the browser runs
    in a separate process without these streams. If that browser runs in the foreground, this function returns only when
    the browser ends.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return False
    # Isolated mode, so that a module in the working folder cannot shadow the standard library.
    command = [sys.executable, "-I", "-c", _OPEN, url]
    # Start a new session, so that the browser survives if the server is interrupted. On Windows, open no console
    # window.
    null, flags = subprocess.DEVNULL, getattr(subprocess, "CREATE_NO_WINDOW", 0)
    done = subprocess.run(  # noqa: S603 - no shell
        command, stdin=null, stdout=null, stderr=null, check=False, start_new_session=True, creationflags=flags
    )
    return done.returncode == 0
