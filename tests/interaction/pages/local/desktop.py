"""Desktop of a server's machine, whose browser does what tests do in its tabs."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio
import httpx
from mcp.client import Client

from tests.interaction.pages.local.cinema import cinema
from tests.kit.hosts import WAIT
from tests.kit.html_forms import read_page

__all__ = ["ONE", "Desktop", "Tab", "answering", "on_desk", "tab"]

ONE: Final = {"number": 1}


class Desktop:
    """Desktop whose browser does nothing by itself: tests open the addresses."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self._opened = anyio.Event()

    async def open(self, address: str) -> None:
        self.addresses.append(address)
        self._opened.set()
        self._opened = anyio.Event()

    async def address(self, place: int = 0) -> str:
        """Return an address that was opened, and wait for it."""
        with anyio.fail_after(WAIT):
            while len(self.addresses) <= place:
                await self._opened.wait()
        return self.addresses[place]


class Tab:
    """Tab of a browser: a page with its cookies."""

    def __init__(self) -> None:
        self.http = httpx.AsyncClient(timeout=WAIT)
        self.url = ""
        self.html = ""
        self.status = 0

    def _saw(self, response: httpx.Response) -> "Tab":
        self.html, self.url, self.status = response.text, str(response.url), response.status_code
        return self

    async def open(self, address: str, **headers: str) -> "Tab":
        return self._saw(await self.http.get(address, headers=headers, follow_redirects=True))

    async def send(self, text: str, *, button: str = "answer", **headers: str) -> "Tab":
        page = read_page(self.html)
        for control in page.controls:
            if control.kind == "text":
                control.value = text
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": "null", **headers}
        given = {name.replace("_", "-"): value for name, value in sent.items()}
        response = await self.http.post(self.url, content=page.body(button), headers=given, follow_redirects=True)
        return self._saw(response)

    @property
    def heading(self) -> str:
        return re.sub(r"<[^>]+>", "", re.findall(r"<h1.*?</h1>", self.html, re.DOTALL)[0]).strip()


@asynccontextmanager
async def tab() -> AsyncGenerator[Tab]:
    opened = Tab()
    async with opened.http:
        yield opened


@asynccontextmanager
async def on_desk(
    desktop: Desktop, mode: str = "2026-07-28", *, settings: Mapping[str, Any] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    given = {"local": desktop.open, "wait": 0.0, **(settings or {})}
    async with Client(cast("Any", cinema(settings=given, **options)), mode=mode) as client:
        yield client


@asynccontextmanager
async def answering(desktop: Desktop, text: str) -> AsyncGenerator[Tab]:
    """Answer all questions of the first page with a text, while the block runs."""

    async def answer() -> None:
        await one.open(await desktop.address())
        while "<form" in one.html:
            await one.send(text)

    async with tab() as one, anyio.create_task_group() as group:
        group.start_soon(answer)
        yield one
        group.cancel_scope.cancel()
