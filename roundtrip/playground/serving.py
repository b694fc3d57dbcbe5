"""The playground's web application, which serves only the user of this machine.

Another site cannot send a valid request: it does not know the secret in the address, and the `Host` header must name
this machine. A request that changes something must have the page's `Origin` and a JSON body. Browsers send a JSON body
to another origin only with that origin's permission, which this application never gives.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roundtrip.client.failures import CallFailed
from roundtrip.playground.calls import CallSettings, PlayedCall
from roundtrip.playground.forms import parse_posted
from roundtrip.playground.playground import Playground, TooManyCalls, argument_form
from roundtrip.playground.writing import NotWritable, TestWriter
from roundtrip.trace.page.data import Data, data_of
from roundtrip.trace.page.document import STEP_SCRIPTS, PageKind, call_page, page_of
from roundtrip.trace.page.loopback import Loopback
from roundtrip.trace.page.requests import (
    PageRejected,
    answer_change,
    answer_request,
    check_local_request,
    frame_answer,
    is_change,
    json_answer,
    json_object,
    page_answer,
    string_member,
)
from roundtrip.untrusted import mapping_of

PLAYGROUND_PAGE: Final = PageKind(
    "playground.html",
    (*STEP_SCRIPTS, "sending.js", "controls.js", "tabs.js", "app_host.js", "playground.js"),
    ("page.css", "controls.css", "playground.css"),
    "connect-src 'self'; frame-src 'self'; img-src data:; media-src data:; ",
)
_APP_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "font-src data:; media-src data:"
)
"""The browser gives an app an opaque origin and no network, because real hosts may grant no more."""
_REFRESH_MS: Final = 1000


class PlaygroundApp:
    """ASGI application for one playground.

    Args:
        playground: The page state.
        loopback: The page address.
        writer: The test writer; None if tests cannot import the server.
    """

    def __init__(self, playground: Playground, loopback: Loopback, writer: TestWriter | None) -> None:
        self._playground = playground
        self._loopback = loopback
        # An app can read its own address, so that address must not contain the page's secret.
        self._frames = loopback.sibling()
        self._writer = writer
        self._actions: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Data]]] = {
            "begin": self._begin,
            "answer": self._answer,
            "app": self._call_for_app,
            "stop": self._stop,
            "decide": self._decide,
            "test": self._test,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await answer_request(self._respond, scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if self._frames.place_of(request.scope["path"]) is not None:
            place, _ = check_local_request(request, self._frames, "roundtrip dev")
            shown = self._playground.call(place)
            app = shown.app if shown is not None else None
            return frame_answer(app.document if app is not None else "", _APP_POLICY)
        place, is_from_here = check_local_request(request, self._loopback, "roundtrip dev")
        if is_change(request):
            errors = (CallFailed, TooManyCalls, NotWritable, MCPError)
            return await answer_change(request, self._actions.get(place), *errors, is_from_here=is_from_here)
        return await self._get(place, request)

    async def _get(self, place: str, request: Request) -> Response:
        query = request.query_params
        if place == "":
            return page_answer(page_of(PLAYGROUND_PAGE, "Playground", self._data(query.get("call", ""))))
        if place == "state.json":
            seen = query.get("seen", "")
            if seen.isascii() and seen.isdigit():
                await self._playground.wait_for_change(int(seen[:15]))
            return json_answer(self._data(query.get("call", "")))
        found = self._playground.find_trace(query.get("id", "")) if place in ("call", "call.json") else None
        if found is None:
            raise PageRejected(HTTPStatus.NOT_FOUND, "there is no such page or call")
        call, version = found
        url = f"call.json?id={quote(call.id, safe='', errors='replace')}"
        live = {"url": url, "version": version, "every": _REFRESH_MS}
        if place == "call.json":
            if query.get("seen") == str(version):
                return json_answer(None)
            return json_answer({**data_of(call), "live": live})
        return page_answer(call_page(call, live=live))

    def _data(self, call_id: str) -> Data:
        frames = f"/{self._frames.secret}/"
        return {**self._playground.data(call_id), "writesTests": self._writer is not None, "frames": frames}

    # Actions.

    async def _begin(self, body: Mapping[str, Any]) -> Data:
        tool = self._playground.tool(string_member(body, "tool"))
        if body.get("json") is not None:
            complaint = 'arguments must be a JSON object, such as {"film": "Solaris"}'
            arguments = json_object(string_member(body, "json"), complaint)
        else:
            arguments = argument_form(tool).read(parse_posted(body.get("fields")))
        return {"call": self._playground.begin(CallSettings.read(tool.name, arguments, body)).id}

    async def _answer(self, body: Mapping[str, Any]) -> Data:
        question = self._call(body).question(string_member(body, "question"))
        if question is None:
            raise ValueError("the call has no such question")
        question.answer(body.get("action"), parse_posted(body.get("fields", {})), body.get("text", ""))
        return {}

    async def _call_for_app(self, body: Mapping[str, Any]) -> Data:
        arguments = cast("object", body.get("arguments"))
        return await self._call(body).call_for_app(string_member(body, "tool"), mapping_of(arguments))

    async def _stop(self, body: Mapping[str, Any]) -> Data:
        await self._call(body).stop()
        return {}

    async def _decide(self, body: Mapping[str, Any]) -> Data:
        await self._playground.decide(*(string_member(body, name) for name in ("approval", "decision", "reason")))
        return {}

    async def _test(self, body: Mapping[str, Any]) -> Data:
        if self._writer is None:
            raise ValueError("a test needs an importable server; start roundtrip dev with MODULE:SERVER or a file")
        call = self._call(body)
        return await self._writer.write(self._playground.get_trace(call), self._playground.traces(), call.settings.tool)

    def _call(self, body: Mapping[str, Any]) -> PlayedCall:
        call = self._playground.call(string_member(body, "call"))
        if call is None:
            raise ValueError("there is no such call")
        return call
