"""Serve the page of the playground, and take its requests, for the user of this machine alone.

A page of another site cannot send a request here: it does not know the secret in the address, the `Host` must name this
machine, and a request that changes something must come from the page itself (`Origin`) and have a body of JSON, which
other sites cannot send without a permission that this server never gives.
"""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import parse_qs, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roundtrip.client.failures import CallFailed
from roundtrip.playground.calls import PlayedCall, Playing
from roundtrip.playground.forms import FormInvalid, posted_of
from roundtrip.playground.playground import Playground, TooManyCalls
from roundtrip.playground.questions import PageAnswer
from roundtrip.playground.writing import NotWritable, TestWriter
from roundtrip.server.loopback_peers import is_of_another_user
from roundtrip.trace.page.data import Data, data_of
from roundtrip.trace.page.document import STEP_SCRIPTS, PageKind, call_page, page_of
from roundtrip.trace.page.loopback import HOST, Loopback, headers_for

__all__ = ["PLAYGROUND_PAGE", "PlaygroundApp"]

PLAYGROUND_PAGE: Final = PageKind(
    "playground.html",
    (*STEP_SCRIPTS, "sending.js", "controls.js", "tabs.js", "playground.js"),
    ("page.css", "controls.css", "playground.css"),
    "connect-src 'self'; img-src data:; media-src data:; ",
)
_REFRESH_MS: Final = 1000
_MAX_BODY_BYTES: Final = 4 * 2**20
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_NO_POLICY: Final = "default-src 'none'"


class _Rejected(Exception):
    """A request gets no more than a status and a sentence."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class PlaygroundApp:
    """ASGI application of one playground.

    Args:
        playground: The state that it shows.
        loopback: The address of the page.
        writer: Writes tests; None if the server cannot be imported by one.
    """

    def __init__(self, playground: Playground, loopback: Loopback, writer: TestWriter | None) -> None:
        self._playground = playground
        self._loopback = loopback
        self._writer = writer
        self._actions: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Data]]] = {
            "begin": self._begin,
            "answer": self._answer,
            "stop": self._stop,
            "test": self._test,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            response = await self._respond(Request(scope, receive))
        except _Rejected as rejected:
            response = _response(rejected.status, f"{rejected}\n")
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        hosts = request.headers.getlist("host")
        if not self._loopback.names(hosts):
            raise _Rejected(HTTPStatus.FORBIDDEN, f"this server answers to {HOST} and localhost only")
        if _is_of_another_user(request.scope):
            raise _Rejected(HTTPStatus.FORBIDDEN, "this page is for the user who started it")
        place = self._loopback.place_of(request.scope["path"])
        if place is None:
            raise _Rejected(HTTPStatus.NOT_FOUND, "open the whole address that `roundtrip dev` printed")
        if request.method == "GET":
            return await self._get(place, request)
        if request.method != "POST":
            raise _Rejected(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and POST are allowed")
        return await self._post(place, request, hosts[0])

    async def _get(self, place: str, request: Request) -> Response:
        query = {name: values[-1] for name, values in parse_qs(request.url.query, keep_blank_values=True).items()}
        if place == "":
            page = page_of(PLAYGROUND_PAGE, "Playground", self._data(query.get("call", "")))
            return _response(HTTPStatus.OK, page.text, kind=_HTML, policy=page.policy)
        if place == "state.json":
            seen = query.get("seen", "")
            if seen.isascii() and seen.isdigit():
                await self._playground.wait_for_change(int(seen[:15]))
            return _json(self._data(query.get("call", "")))
        found = self._playground.find_traced(query.get("id", "")) if place in ("call", "call.json") else None
        if found is None:
            raise _Rejected(HTTPStatus.NOT_FOUND, "there is no such call, or page")
        call, version = found
        url = f"call.json?id={quote(call.id, safe='', errors='replace')}"
        live = {"url": url, "version": version, "every": _REFRESH_MS}
        if place == "call.json":
            if query.get("seen") == str(version):
                return _response(HTTPStatus.NO_CONTENT, "")
            return _json({**data_of(call), "live": live})
        page = call_page(call, live=live)
        return _response(HTTPStatus.OK, page.text, kind=_HTML, policy=page.policy)

    def _data(self, call_id: str) -> Data:
        return {**self._playground.data(call_id), "writesTests": self._writer is not None}

    async def _post(self, place: str, request: Request, host: str) -> Response:
        if not self._loopback.sent_from_here(request.headers.getlist("origin"), host):
            raise _Rejected(HTTPStatus.FORBIDDEN, "only the page itself may send this request")
        if request.headers.getlist("content-type") != [_JSON]:
            raise _Rejected(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
        action = self._actions.get(place)
        if action is None:
            raise _Rejected(HTTPStatus.NOT_FOUND, "there is no such action")
        try:
            return _json(await action(await _body(request)))
        except FormInvalid as invalid:
            # Not an error of HTTP, which the browser would log on its console.
            return _json({"errors": invalid.errors})
        except (ValueError, CallFailed, TooManyCalls, NotWritable) as error:
            return _json({"error": str(error)})

    # Actions.

    async def _begin(self, asked: Mapping[str, Any]) -> Data:
        tool = self._playground.tool(_text(asked, "tool"))
        if asked.get("json") is not None:
            arguments = _object(_text(asked, "json"))
        else:
            arguments = self._playground.form_of(tool).read(posted_of(asked.get("fields")))
        return {"call": self._playground.begin(Playing.read(tool.name, arguments, asked)).id}

    async def _answer(self, asked: Mapping[str, Any]) -> Data:
        question = self._call(asked).question(_text(asked, "question"))
        if question is None:
            raise ValueError("the call has no such question")
        question.answer(PageAnswer.read(asked.get("action"), posted_of(asked.get("fields", {})), asked.get("text", "")))
        return {}

    async def _stop(self, asked: Mapping[str, Any]) -> Data:
        await self._call(asked).stop()
        return {}

    async def _test(self, asked: Mapping[str, Any]) -> Data:
        if self._writer is None:
            raise ValueError("a test needs a server that it can import; name it as MODULE:SERVER, or its file")
        call = self._call(asked)
        return await self._writer.write(self._playground.traced(call), self._playground.all_traced(), call.playing.tool)

    def _call(self, asked: Mapping[str, Any]) -> PlayedCall:
        call = self._playground.call(_text(asked, "call"))
        if call is None:
            raise ValueError("there is no such call")
        return call


async def _body(request: Request) -> Mapping[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise _Rejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
    return _object(body.decode("utf-8", "replace"))


def _object(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise ValueError('the arguments must be JSON, such as {"film": "Solaris"}') from None
    if not isinstance(value, dict):
        raise ValueError("it must be an object, in curly brackets")
    return cast("dict[str, Any]", value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    return value


def _is_of_another_user(scope: Scope) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return False
    return is_of_another_user((client[0], client[1]), (server[0], server[1]))


def _json(data: Data) -> Response:
    return _response(HTTPStatus.OK, json.dumps(data, allow_nan=False), kind=_JSON)


def _response(status: HTTPStatus, text: str, *, kind: str = _TEXT, policy: str = _NO_POLICY) -> Response:
    # A lone surrogate has no form in UTF-8.
    body = text.encode("utf-8", "replace") if status != HTTPStatus.NO_CONTENT else None
    return Response(body, status, headers={**headers_for(policy), "Content-Type": kind})
