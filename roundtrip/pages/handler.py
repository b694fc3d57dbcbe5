"""Serve question pages: an endpoint for Starlette that shows the state of a call and takes its answers.

A page is shown by GET, which changes nothing. A POST is answered with a redirect to the same page, so that neither a
reload nor the way back in the browser's history sends an answer twice.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from roundtrip.pages.calls import (
    AskingPage,
    AwaitingPage,
    CallsUnavailable,
    ClosedPage,
    EndedPage,
    PageCalls,
    PageState,
    WorkingPage,
)
from roundtrip.pages.controls import Posted
from roundtrip.pages.form_tokens import FormTokens
from roundtrip.pages.forms import TOKEN, PostUnreadable, form_of_questions, parse_body, read_form
from roundtrip.pages.headers import is_form, is_own_form, origin_of, page_headers
from roundtrip.pages.look import PageLook
from roundtrip.pages.rendering import PageRenderer

__all__ = ["RETRY_HEADERS", "Authenticate", "BodyTooLong", "QuestionPages", "read_body", "unavailable_page"]

Authenticate = Callable[[Request], Awaitable[str | Response | None]]
"""Return the reader of a page; or the response of a login, such as a redirect; or None, which becomes a 401.

`request.state.page_url` is the address of the page, for the way back from a login.
"""

_PATH: Final = "/ask"
_MAX_BODY_BYTES: Final = 256 * 1024
_TICKET_PATTERN: Final = re.compile(r"[A-Za-z0-9._~-]{16,2048}", re.ASCII)
"""A ticket may stand in a header and in a path."""

_ANSWERED: Final = "This was answered already, or has changed since. Nothing was sent just now."
_LOGIN: Final = ("Please log in", "Log in, and open this page again.")
_ELSEWHERE: Final = ("This did not come from this page", "Open the page again, and answer it there.")
_UNREADABLE: Final = ("This could not be read", "Nothing was sent. Open the page again, and answer it there.")
_TOO_LONG: Final = ("This is too long", "Nothing was sent. Go back, and shorten your answer.")
_RETRY_SECONDS: Final = 5
RETRY_HEADERS: Final = {"Retry-After": str(_RETRY_SECONDS)}
"""The headers of a response while the store cannot be used."""


class BodyTooLong(Exception):
    """The body of a request is larger than a page takes."""


class QuestionPages:
    """The question pages of one server.

    Args:
        calls: The calls behind the pages.
        base_url: The address at which browsers reach the server, such as `https://shop.example`. Addresses of pages
            begin with it, whatever the `Host` of a request says.
        keys: Secrets that sign forms; the first one signs, and all of them verify.
        look: Name, logo and color.
        templates: A folder with templates that replace those of the package.
        authenticate: Names the reader of a page. Without it the address alone opens the page.
        max_body_bytes: The largest answer that is read.

    Raises:
        ValueError: An argument is not of its form.
    """

    def __init__(
        self,
        calls: PageCalls,
        *,
        base_url: str,
        keys: Sequence[bytes],
        look: PageLook,
        templates: Path | None = None,
        authenticate: Authenticate | None = None,
        max_body_bytes: int = _MAX_BODY_BYTES,
    ) -> None:
        self._origin = origin_of(base_url)
        self._base = base_url.rstrip("/")
        self._calls = calls
        self._tokens = FormTokens(keys)
        self._renderer = PageRenderer(look, templates=templates)
        self._headers = page_headers(self._renderer.policy)
        self._authenticate = authenticate
        self._max_body_bytes = max_body_bytes

    @property
    def routes(self) -> list[Route]:
        """Return the routes of the pages, for an application that is reached at `base_url`."""
        return [Route(f"{_PATH}/{{ticket}}", self.respond, methods=["GET", "POST"])]

    def url(self, ticket: str) -> str:
        """Return the address of a page.

        Raises:
            ValueError: The ticket is not a text for an address.
        """
        if _TICKET_PATTERN.fullmatch(ticket) is None:
            raise ValueError("ticket must have at least 16 letters, digits and . _ ~ -, and no others")
        return f"{self._base}{_PATH}/{ticket}"

    async def respond(self, request: Request) -> Response:
        """Return the response to a request for a page."""
        ticket = str(request.path_params["ticket"])
        if _TICKET_PATTERN.fullmatch(ticket) is None:
            return self._state_page(ticket, None, ClosedPage())
        request.state.page_url = self.url(ticket)
        subject = None
        if self._authenticate is not None:
            subject = await self._authenticate(request)
            if isinstance(subject, Response):
                return subject
            if subject is None:
                return self.error_page(401, _LOGIN)
        try:
            if request.method != "POST":
                return self._state_page(ticket, subject, await self._calls.open(ticket, subject))
            return await self._take(request, ticket, subject)
        except CallsUnavailable:
            return unavailable_page(self._renderer, self._headers)

    async def _take(self, request: Request, ticket: str, subject: str | None) -> Response:
        """Return the response to a POST."""
        if not is_own_form(request.headers, self._origin):
            return self.error_page(403, _ELSEWHERE)
        if not is_form(request.headers):
            return self.error_page(415, _UNREADABLE)
        posted: Posted = {}
        try:
            posted = parse_body(await read_body(request, self._max_body_bytes))
            return await self._answered(ticket, subject, posted)
        except BodyTooLong:
            return self.error_page(413, _TOO_LONG)
        except PostUnreadable:
            return self.error_page(400, _UNREADABLE)
        except CallsUnavailable:
            return unavailable_page(self._renderer, self._headers, posted)

    async def _answered(self, ticket: str, subject: str | None, posted: Posted) -> Response:
        """Return the response to the content of a form.

        Raises:
            PostUnreadable: No page sends such content.
            CallsUnavailable: The store cannot be used.
        """
        state = await self._calls.open(ticket, subject)
        if not isinstance(state, AskingPage):
            return self._state_page(ticket, subject, state, notice=_ANSWERED)
        token = "".join(posted.get(TOKEN, ()))
        if not self._tokens.is_valid(token, ticket, subject, state.round_id, state.questions):
            return self._state_page(ticket, subject, state, notice=_ANSWERED)
        form, answers = read_form(state.questions, posted)
        if answers is None:
            return self._page(self._renderer.question(form, token=token), 422)
        if await self._calls.answer(ticket, subject, state.round_id, answers):
            return self.redirect(ticket)
        state = await self._calls.open(ticket, subject)
        return self._state_page(ticket, subject, state, notice=_ANSWERED)

    # Pages.

    def _state_page(self, ticket: str, subject: str | None, state: PageState, *, notice: str | None = None) -> Response:
        """Return the page of a state; with a notice, it is the answer to a POST that came too late."""
        status = 200 if notice is None else 409
        match state:
            case AskingPage(round_id, questions):
                token = self._tokens.issue(ticket, subject, round_id, questions)
                return self._page(
                    self._renderer.question(form_of_questions(questions), token=token, notice=notice), status
                )
            case WorkingPage(seconds):
                return self._page(self._renderer.working(seconds=seconds, notice=notice), status)
            case AwaitingPage(groups, seconds):
                return self._page(self._renderer.awaiting(groups=groups, seconds=seconds, notice=notice), status)
            case EndedPage(text, is_error, decisions):
                shown = self._renderer.ended(text=text, is_error=is_error, decisions=decisions, notice=notice)
                return self._page(shown, status)
            case ClosedPage():
                return self._page(self._renderer.closed(), 404)

    def redirect(self, ticket: str) -> Response:
        """Return a response that leads the browser to a page."""
        return Response(status_code=303, headers={**self._headers, "Location": self.url(ticket)})

    def error_page(self, status: int, words: tuple[str, str]) -> Response:
        """Return the page for a request that cannot be answered, with a title and a text."""
        return self._page(self._renderer.error(*words), status)

    def _page(self, text: str, status: int) -> Response:
        # A lone surrogate, which JSON can carry, has no place in UTF-8.
        return HTMLResponse(text.encode("utf-8", "replace"), status, self._headers)


def unavailable_page(renderer: PageRenderer, headers: Mapping[str, str], sent: Posted | None = None) -> Response:
    """Return the page for the time while the store cannot be used, with what its reader has sent by a form."""
    text = renderer.unavailable(seconds=_RETRY_SECONDS, sent=sent or {})
    return HTMLResponse(text.encode("utf-8", "replace"), 503, {**headers, **RETRY_HEADERS})


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request, and stop reading one that is too long.

    Raises:
        BodyTooLong: It is too long.
        PostUnreadable: The browser left before its end.
    """
    if _length_of(request.headers) > max_bytes:
        raise BodyTooLong
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > max_bytes:
                raise BodyTooLong
    except ClientDisconnect as error:
        raise PostUnreadable("the client disconnected") from error
    return bytes(body)


def _length_of(headers: Headers) -> int:
    """Return the length that the headers announce; 0 for none, or none that can be read."""
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0
