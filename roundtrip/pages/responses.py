"""Responses and form checks that question pages and the inbox share."""

import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NotRequired, TypedDict

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from typing_extensions import Unpack

from roundtrip.pages.calls import CallsUnavailable
from roundtrip.pages.controls import Posted
from roundtrip.pages.forms import OpenQuestions, PostUnreadable, parse_body
from roundtrip.pages.headers import is_form, is_own_form, origin_of, page_headers
from roundtrip.pages.rendering import PageRenderer
from roundtrip.pages.settings import PageLook

_MIN_KEY_BYTES: Final = 16
_PURPOSE: Final = "roundtrip/page-form/1"
_RETRY_SECONDS: Final = 5
RETRY_HEADERS: Final = {"Retry-After": str(_RETRY_SECONDS)}
"""Response headers while the store cannot be used."""


class BodyTooLong(Exception):
    """The request body is larger than a page accepts."""


class FormTokens:
    """Form tokens, which ensure that only the page shown for a round can answer that round.

    A token ties together the page address, the reader, the round and the wording of its questions. Another site cannot
    forge a token, and another reader cannot use it. Once the round or the wording has changed, the form in an old tab
    is invalid.

    Args:
        keys: Secrets. The first key signs and all keys verify, so that keys can be rotated.

    Raises:
        ValueError: There is no key, or a key is too short.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < _MIN_KEY_BYTES for key in keys):
            raise ValueError(f"keys must have at least one key, each with at least {_MIN_KEY_BYTES} bytes")
        self._keys = tuple(keys)

    def issue(self, ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> str:
        """Return the form token for a round."""
        return _sign(self._keys[0], _claims(ticket, subject, round_id, questions))

    def is_valid(self, token: str, ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> bool:
        """Return True if the token was issued for this page, reader, round and wording."""
        claims = _claims(ticket, subject, round_id, questions)
        signatures = [_sign(key, claims) for key in self._keys]
        encoded = token.encode("utf-8", "replace")
        return any(hmac.compare_digest(encoded, signature.encode()) for signature in signatures)


class SiteOptions(TypedDict):
    """Arguments for `PageSite`."""

    base_url: str
    """The address at which browsers reach the server, such as `https://shop.example`. Page addresses begin with it,
    whatever the request's `Host` header says.
    """
    keys: Sequence[bytes]
    """Secrets that sign forms. The first key signs, and all keys verify."""
    look: PageLook
    """Name, logo and color."""
    templates: NotRequired[Path | None]
    """A folder with templates that replace the package templates."""


class PageSite:
    """Pages of one server, including its error pages.

    Raises:
        ValueError: An argument is invalid.
    """

    sent_elsewhere: ClassVar[str]
    """The error text when a form was sent from another site."""
    not_readable: ClassVar[str]
    """The error text when a form was not sent by one of the pages."""
    too_long: ClassVar[str]
    """The error text when a form is too long."""
    max_body_bytes: ClassVar[int]
    """The size of the largest form that a page accepts."""

    def __init__(self, **options: Unpack[SiteOptions]) -> None:
        self._origin = origin_of(options["base_url"])
        self._base = options["base_url"].rstrip("/")
        self._tokens = FormTokens(options["keys"])
        self._renderer = PageRenderer(options["look"], templates=options.get("templates"))
        self._headers = page_headers(self._renderer.policy)

    def page(self, template: str, status: int, headers: Mapping[str, str] | None = None, **values: Any) -> Response:
        """Return the page that a template renders with these values."""
        text = self._renderer.render(f"{template}.html.j2", **values)
        # JSON can contain a lone surrogate, which UTF-8 cannot encode.
        return HTMLResponse(text.encode("utf-8", "replace"), status, {**self._headers, **(headers or {})})

    def error(self, status: int, title: str, text: str) -> Response:
        """Return an error page."""
        return self.page("error", status, title=title, text=text)

    def unreadable(self, status: int = 400) -> Response:
        """Return the error page for a form that was not sent by one of the pages."""
        return self.error(status, "This form could not be read", self.not_readable)

    def login(self) -> Response:
        """Return the page that asks an unknown reader to log in."""
        return self.error(401, "Please log in", "Log in, then open this page again.")

    def redirect(self, url: str) -> Response:
        """Return a redirect to a page. After a redirect, a reload does not send the form again."""
        return Response(status_code=303, headers={**self._headers, "Location": url})

    def unavailable(self, sent: Posted | None = None) -> Response:
        """Return the page for a store that cannot be used. From this page, the reader can send the form again."""
        fields = [(name, value) for name, values in (sent or {}).items() for value in values]
        return self.page("unavailable", 503, RETRY_HEADERS, seconds=_RETRY_SECONDS, sent=fields)

    async def served(
        self, request: Request, show: Callable[[], Awaitable[Response]], take: Callable[[Posted], Awaitable[Response]]
    ) -> Response:
        """Return the response to a page request: the page itself, or the response to a submitted form.

        Args:
            request: The request.
            show: Returns the page.
            take: Returns the response to the form's content.
        """
        is_form = request.method == "POST"
        posted: Posted | Response = await self._posted(request) if is_form else {}
        if isinstance(posted, Response):
            return posted
        try:
            return await (take(posted) if is_form else show())
        except PostUnreadable:
            return self.unreadable()
        except CallsUnavailable:
            return self.unavailable(posted)

    async def _posted(self, request: Request) -> Posted | Response:
        """Return the content of a submitted form, or an error page that explains why the form was rejected."""
        if not is_own_form(request.headers, self._origin):
            return self.error(403, "This form was sent from another page", self.sent_elsewhere)
        if not is_form(request.headers):
            return self.unreadable(415)
        try:
            return parse_body(await read_body(request, self.max_body_bytes))
        except BodyTooLong:
            return self.error(413, "This is too long", self.too_long)
        except PostUnreadable:
            return self.unreadable()


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return a request's body. Stop reading if the body is too long.

    Raises:
        BodyTooLong: The body is too long.
        PostUnreadable: The browser disconnected before the end of the body.
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
    """Return the length in the Content-Length header; 0 if the header is missing or invalid."""
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _claims(ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> bytes:
    # Use a list, because the page shows the questions in order.
    wording = [[key, questions[key]] for key in questions]
    return json.dumps([_PURPOSE, ticket, subject, round_id, wording], sort_keys=True, separators=(",", ":")).encode()


def _sign(key: bytes, claims: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, claims, hashlib.sha256)).rstrip(b"=").decode()
