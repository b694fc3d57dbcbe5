"""The responses that question pages and the inbox share, and the reading of what a form has sent."""

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
"""The headers of a response while the store cannot be used."""


class BodyTooLong(Exception):
    """The body of a request is larger than a page takes."""


class FormTokens:
    """Issues the tokens of forms and verifies them, so that only the page that was shown for a round can answer it.

    A token ties the address of the page, its reader, the round and the wording of its questions. Another site cannot
    make one, one reader's form is worth nothing to another, and the form in an old tab no longer fits.

    Args:
        keys: Secrets; the first one signs, and all of them verify, so that keys can be rotated.

    Raises:
        ValueError: There is no key, or one is too short.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < _MIN_KEY_BYTES for key in keys):
            raise ValueError(f"keys must have at least one key, and each at least {_MIN_KEY_BYTES} bytes")
        self._keys = tuple(keys)

    def issue(self, ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> str:
        """Return the token of the form for a round."""
        return _sign(self._keys[0], _claims(ticket, subject, round_id, questions))

    def is_valid(self, token: str, ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> bool:
        """Return True if a token was issued for this page, reader, round and wording."""
        claims = _claims(ticket, subject, round_id, questions)
        signatures = [_sign(key, claims) for key in self._keys]
        given = token.encode("utf-8", "replace")
        return any(hmac.compare_digest(given, signature.encode()) for signature in signatures)


class SiteOptions(TypedDict):
    """Arguments of a `PageSite`."""

    base_url: str
    """The address at which browsers reach the server, such as `https://shop.example`. Addresses of pages begin with it,
    whatever the `Host` of a request says."""
    keys: Sequence[bytes]
    """Secrets that sign forms; the first one signs, and all of them verify."""
    look: PageLook
    """Name, logo and color."""
    templates: NotRequired[Path | None]
    """A folder with templates that replace those of the package."""


class PageSite:
    """Pages of one server, and what they answer to requests that cannot be served.

    Raises:
        ValueError: An argument is not of its form.
    """

    sent_elsewhere: ClassVar[str]
    """What readers are told of a form that another site has sent."""
    not_readable: ClassVar[str]
    """What they are told of a form that no page sends."""
    too_long: ClassVar[str]
    """What they are told of a form that is too long."""
    max_body_bytes: ClassVar[int]
    """The largest form that is read."""

    def __init__(self, **options: Unpack[SiteOptions]) -> None:
        self._origin = origin_of(options["base_url"])
        self._base = options["base_url"].rstrip("/")
        self._tokens = FormTokens(options["keys"])
        self._renderer = PageRenderer(options["look"], templates=options.get("templates"))
        self._headers = page_headers(self._renderer.policy)

    def page(self, template: str, status: int, headers: Mapping[str, str] | None = None, **values: Any) -> Response:
        """Return the page of a template with its values."""
        text = self._renderer.render(f"{template}.html.j2", **values)
        # A lone surrogate, which JSON can carry, has no place in UTF-8.
        return HTMLResponse(text.encode("utf-8", "replace"), status, {**self._headers, **(headers or {})})

    def error(self, status: int, title: str, text: str) -> Response:
        """Return the page for a request that cannot be answered."""
        return self.page("error", status, title=title, text=text)

    def unreadable(self, status: int = 400) -> Response:
        """Return the page for a form that no page sends."""
        return self.error(status, "This form could not be read", self.not_readable)

    def login(self) -> Response:
        """Return the page for a reader who is not known."""
        return self.error(401, "Please log in", "Log in, then open this page again.")

    def redirect(self, url: str) -> Response:
        """Return a response that leads the browser to a page, so that no reload sends its form again."""
        return Response(status_code=303, headers={**self._headers, "Location": url})

    def unavailable(self, sent: Posted | None = None) -> Response:
        """Return the page while the store cannot be used; from it, what its reader has sent can be sent again."""
        fields = [(name, value) for name, values in (sent or {}).items() for value in values]
        return self.page("unavailable", 503, RETRY_HEADERS, seconds=_RETRY_SECONDS, sent=fields)

    async def served(
        self, request: Request, show: Callable[[], Awaitable[Response]], take: Callable[[Posted], Awaitable[Response]]
    ) -> Response:
        """Return the response to a request for a page: the page, or the response to the content of its form.

        Args:
            request: The request.
            show: Returns the page.
            take: Takes the content of the form.
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
        """Return what a form of this site has sent, or the page that says why it cannot be taken."""
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


def _claims(ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> bytes:
    # As a list: the page shows the questions in their order.
    wording = [[key, questions[key]] for key in questions]
    return json.dumps([_PURPOSE, ticket, subject, round_id, wording], sort_keys=True, separators=(",", ":")).encode()


def _sign(key: bytes, claims: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, claims, hashlib.sha256)).rstrip(b"=").decode()
