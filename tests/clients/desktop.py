"""A user's desktop: clients hand it links, and its browser answers the question pages behind them.

A client opens a link with `GET ADDRESS?url=LINK`. As on a real desktop, it gets no answer but "opened" at once, and the
user takes their time.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import httpx
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.kit.hosts import WAIT, hosted
from tests.kit.html_forms import HtmlForm, read_page

__all__ = ["Desktop", "desktop"]

_PAUSE: Final = 0.02
_FORM_TYPE: Final = "application/x-www-form-urlencoded"

Fill = Callable[[HtmlForm], object]


class Desktop:
    """Desktop of one user.

    Args:
        base: The address that the links begin with.
        fill: Fills in a form, by the start of the heading of its page.
        cookies: The user's logins.
    """

    def __init__(self, base: str, fill: Mapping[str, Fill], *, cookies: Mapping[str, str]) -> None:
        self.address = ""
        self._answered: dict[str, list[str]] = {}
        """The headings of the pages that were answered, by their link."""
        self._base = base
        self._fill = fill
        self._cookies = dict(cookies)

    def serves(self, url: str) -> bool:
        return url.startswith(f"{self._base}/")

    def answered_for(self, *texts: str) -> list[str]:
        """Return the headings of the pages that were answered behind the links in some texts."""
        return [
            heading
            for link in self._answered
            if any(link in text for text in texts)
            for heading in self._answered[link]
        ]

    async def browse(self, link: str, server: str) -> None:
        """Answer page after page until the call has ended."""
        if link in self._answered:
            return  # a second tab of the same page
        answered = self._answered[link] = list[str]()
        headers = {"origin": self._base, "content-type": _FORM_TYPE}
        async with httpx.AsyncClient(cookies=self._cookies) as http:
            page = link.replace(self._base, server)
            with anyio.fail_after(WAIT):
                while True:
                    shown = await http.get(page)
                    assert shown.status_code == 200, shown.text
                    heading, has_form = _heading_of(shown.text), "<form" in shown.text
                    if has_form:
                        form = read_page(shown.text)
                        next(fill for start, fill in self._fill.items() if heading.startswith(start))(form)
                        sent = await http.post(page, content=form.body(), headers=headers)
                        assert sent.status_code == 303, sent.text
                        answered.append(heading)
                    elif heading != "Still working":
                        return
                    else:
                        await anyio.sleep(_PAUSE)


def _heading_of(html: str) -> str:
    return read_page(html.partition("<h1")[2].partition(">")[2].partition("</h1>")[0]).text


@asynccontextmanager
async def desktop(
    server: str, base: str, fill: Mapping[str, Fill], *, cookies: Mapping[str, str]
) -> AsyncGenerator[Desktop]:
    """Provide a desktop whose browser finds the pages of `base` at the address of a server."""
    one = Desktop(base, fill, cookies=cookies)
    async with anyio.create_task_group() as tabs:
        app = Starlette(routes=[Route("/open", partial(_open, one, server, tabs))])
        async with hosted(app, lifespan="off") as address:
            one.address = f"{address}/open"
            yield one
        # All pages of a call that has ended have ended, too.


async def _open(one: Desktop, server: str, tabs: TaskGroup, request: Request) -> Response:
    url = request.query_params["url"]
    if one.serves(url):
        tabs.start_soon(one.browse, url, server)
    return Response(status_code=204)
