"""Take requests to the pages of this package, and answer them. An error is a status and one of our own sentences."""

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
    """A request gets no more than a status and a sentence."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class FormInvalid(Exception):
    """Texts of a form do not fit it; `errors` has a sentence for each wrong field, by its id."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


async def answer_request(
    respond: Callable[[Request], Awaitable[Response]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer one request of an ASGI server by a function that may reject it."""
    if scope["type"] != "http":
        return
    try:
        response = await respond(Request(scope, receive))
    except PageRejected as rejected:
        response = _response(rejected.status, f"{rejected}\n", headers=rejected.headers)
    except ClientDisconnect:
        return
    await response(scope, receive, send)


def local_place(request: Request, loopback: Loopback, command: str) -> tuple[str, bool]:
    """Return the place that a request of this machine's user names below the secret, and if a page there sent it.

    Raises:
        PageRejected: It names another machine, comes from another user, or lacks the secret.
    """
    hosts = request.headers.getlist("host")
    if not loopback.names(hosts):
        raise PageRejected(HTTPStatus.FORBIDDEN, f"this server answers to {HOST} and localhost only")
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is not None and server is not None and is_of_another_user((client[0], client[1]), (server[0], server[1])):
        raise PageRejected(HTTPStatus.FORBIDDEN, "this page is for the user who started it")
    place = loopback.place_of(request.scope["path"])
    if place is None:
        raise PageRejected(HTTPStatus.NOT_FOUND, f"open the whole address that `{command}` printed")
    return place, loopback.sent_from_here(request.headers.getlist("origin"), hosts[0])


def is_change(request: Request) -> bool:
    """Return True for a request that changes something, and False for one that reads; servers send HEAD no body.

    Raises:
        PageRejected: Its method is another one.
    """
    if request.method not in ("GET", "HEAD", "POST"):
        text = "only GET, HEAD and POST are allowed"
        raise PageRejected(HTTPStatus.METHOD_NOT_ALLOWED, text, Allow="GET, HEAD, POST")
    return request.method == "POST"


async def answer_change(
    request: Request,
    change: Callable[[dict[str, Any]], Awaitable[Data]] | None,
    *expected: type[Exception],
    is_from_here: bool,
) -> Response:
    """Answer a request that changes something: only a page of the same origin can send it.

    Args:
        request: The request.
        change: Makes the change by the body of the request; None if there is no such change.
        *expected: Errors, besides `ValueError`, whose texts the page shows.
        is_from_here: True if a page of the same origin sent the request.

    Raises:
        PageRejected: Another page sent it, its body cannot be read, or there is no such change.
    """
    if not is_from_here:
        raise PageRejected(HTTPStatus.FORBIDDEN, "only the page itself may send this request")
    if request.headers.getlist("content-type") != [_JSON]:
        raise PageRejected(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
    if change is None:
        raise PageRejected(HTTPStatus.NOT_FOUND, "there is no such action")
    try:
        return json_answer(await change(await _read_object(request)))
    except FormInvalid as invalid:
        # Not an error of HTTP, which the browser would log on its console.
        return json_answer({"errors": invalid.errors})
    except (ValueError, *expected) as error:
        return json_answer({"error": str(error)})


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the body of a request, which is a JSON object.

    Raises:
        PageRejected: It is too large.
        ValueError: It is not an object.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise PageRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
    return json_object(body.decode("utf-8", "replace"), "the body must be a JSON object")


def json_object(text: str, complaint: str) -> dict[str, Any]:
    """Return the object of a JSON text.

    Raises:
        ValueError: It is not JSON, or not an object; the text is the complaint.
    """
    try:
        value: object = strict_json(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(complaint)
    return cast("dict[str, Any]", value)


def text_of(asked: Mapping[str, Any], name: str) -> str:
    """Return a member of a request's body that must be a text.

    Raises:
        ValueError: It is not.
    """
    value = asked.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    return value


def page_answer(page: Page) -> Response:
    """Return the response with a page."""
    return _response(HTTPStatus.OK, page.text, kind="text/html; charset=utf-8", policy=page.policy)


def json_answer(data: Data | None) -> Response:
    """Return the response with data; None if the page has seen them."""
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
    # A lone surrogate has no form in UTF-8.
    body = text.encode("utf-8", "replace") if status != HTTPStatus.NO_CONTENT else None
    return Response(body, status, headers={**headers_for(policy), **headers, "Content-Type": kind})
