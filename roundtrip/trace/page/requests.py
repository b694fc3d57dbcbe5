"""Requests to roundtrip's pages, and the responses. An error response contains only a status and a short message."""

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roundtrip.channels.local.loopback_peers import is_of_another_user
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.document import Page
from roundtrip.trace.page.loopback import HOST, Loopback, headers_for
from roundtrip.untrusted import strict_json

_MAX_BODY_BYTES: Final = 4 * 2**20
_JSON: Final = "application/json"
_NO_POLICY: Final = "default-src 'none'"


class PageRejected(Exception):
    """A rejected request. The response contains only a status and a short message."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class FormInvalid(Exception):
    """Form texts that do not fit their fields. `errors` has a message for each invalid field, by field id."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


async def answer_request(
    respond: Callable[[Request], Awaitable[Response]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer one ASGI request by calling a function, which may reject the request."""
    if scope["type"] != "http":
        return
    try:
        response = await respond(Request(scope, receive))
    except PageRejected as rejected:
        response = _response(rejected.status, f"{rejected}\n", headers=rejected.headers)
    except ClientDisconnect:
        return
    await response(scope, receive, send)


def check_local_request(request: Request, loopback: Loopback, command: str) -> tuple[str, bool]:
    """Check that a request comes from this machine's user.

    Return the request's path, and True if one of this server's pages sent the request.

    Raises:
        PageRejected: The request names another machine, comes from another user, or lacks the secret.
    """
    hosts = request.headers.getlist("host")
    if not loopback.names(hosts):
        raise PageRejected(HTTPStatus.FORBIDDEN, f"this server accepts only the hosts {HOST} and localhost")
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is not None and server is not None and is_of_another_user((client[0], client[1]), (server[0], server[1])):
        raise PageRejected(HTTPStatus.FORBIDDEN, "only the user who started this page may open it")
    place = loopback.place_of(request.scope["path"])
    if place is None:
        raise PageRejected(HTTPStatus.NOT_FOUND, f"open the complete address that `{command}` printed")
    # Exactly one `Origin` header, which names the requested host.
    return place, request.headers.getlist("origin") == [f"http://{hosts[0].lower()}"]


def is_change(request: Request) -> bool:
    """Return True for POST, which changes something, and False for GET and HEAD.

    Raises:
        PageRejected: The request has another method.
    """
    if request.method not in ("GET", "HEAD", "POST"):
        raise PageRejected(HTTPStatus.METHOD_NOT_ALLOWED, "use GET, HEAD or POST", Allow="GET, HEAD, POST")
    return request.method == "POST"


async def answer_change(
    request: Request,
    change: Callable[[dict[str, Any]], Awaitable[Data]] | None,
    *expected: type[Exception],
    is_from_here: bool,
) -> Response:
    """Answer a request that changes something. Only a page with the same origin may send such a request.

    Args:
        request: The request.
        change: A function that makes the requested change; None for an unknown change.
        *expected: Exception types, besides `ValueError`, whose texts the page shows.
        is_from_here: True if a page with the same origin sent the request.

    Raises:
        PageRejected: Another page sent the request, its body cannot be read, or the change is unknown.
    """
    if not is_from_here:
        raise PageRejected(HTTPStatus.FORBIDDEN, "only this page may send this request")
    if request.headers.getlist("content-type") != [_JSON]:
        raise PageRejected(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
    if change is None:
        raise PageRejected(HTTPStatus.NOT_FOUND, "there is no such action")
    try:
        return json_answer(await change(await _read_object(request)))
    except FormInvalid as invalid:
        # Do not use an HTTP error status, because the browser would log it on its console.
        return json_answer({"errors": invalid.errors})
    except (ValueError, *expected) as error:
        return json_answer({"error": str(error)})


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request body.

    Raises:
        PageRejected: The body is too large.
        ValueError: The body is not a JSON object.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise PageRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
    return json_object(body.decode("utf-8", "replace"), "the body must be a JSON object")


def json_object(text: str, complaint: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ValueError: The text is not a JSON object; `complaint` is the message.
    """
    try:
        value: object = strict_json(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(complaint)
    return cast("dict[str, Any]", value)


def string_member(body: Mapping[str, Any], name: str) -> str:
    """Return a member of a request body. The member must be a string.

    Raises:
        ValueError: The member is not a string.
    """
    value = body.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value


def page_answer(page: Page) -> Response:
    """Return a response with a page."""
    return _response(HTTPStatus.OK, page.text, kind="text/html; charset=utf-8", policy=page.policy)


def frame_answer(html: str, policy: str) -> Response:
    """Return a response with a foreign document, which only this server's pages may show in a frame."""
    headers = {"Content-Security-Policy": f"{policy}; frame-ancestors 'self'", "X-Frame-Options": "SAMEORIGIN"}
    return _response(HTTPStatus.OK, html, kind="text/html; charset=utf-8", headers=headers)


def json_answer(data: Data | None) -> Response:
    """Return a response with data. If `data` is None, the page is up to date, so the response has no content."""
    if data is None:
        return _response(HTTPStatus.NO_CONTENT, "")
    return _response(HTTPStatus.OK, json.dumps(data, allow_nan=False), kind=_JSON)


def _response(
    status: HTTPStatus,
    text: str,
    *,
    kind: str = "text/plain; charset=utf-8",
    policy: str = _NO_POLICY,
    headers: Mapping[str, str] = {},
) -> Response:
    # Replace lone surrogates, which UTF-8 cannot encode.
    body = text.encode("utf-8", "replace") if status != HTTPStatus.NO_CONTENT else None
    return Response(body, status, headers={**headers_for(policy), **headers, "Content-Type": kind})
