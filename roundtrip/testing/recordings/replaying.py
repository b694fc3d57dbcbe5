"""Replay a recording: a server that compares requests with the recorded ones, and reports the differences."""

import json
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
    ServerNotification,
    ServerRequest,
)
from pydantic import BaseModel, RootModel, ValidationError

from roundtrip.revisions import is_live_era
from roundtrip.testing.recordings.document import (
    PASSING,
    BrokenRecording,
    Json,
    Notification,
    RecordedExchange,
    RecordedMessage,
    RecordedQuestion,
    Recording,
    fields,
    is_named,
)

__all__ = ["Mismatch", "Replayed", "differences", "replay", "significant"]


Context = ServerRequestContext[Any, Any]

_HANDSHAKE: Final = frozenset({"initialize", "server/discover", "ping"})
_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_ABSENT: Final = object()
_MAX_SHOWN_CHARS: Final = 60
_CHARS_BEFORE_DIFFERENCE: Final = 12


def significant(params: Mapping[str, Any] | None) -> Json:
    """Return the params of a request without parts in which equivalent clients differ."""
    out: Json = {key: value for key, value in (params or {}).items() if key != "_meta" and value not in (None, {})}
    answers = out.get("inputResponses")
    if isinstance(answers, Mapping):
        out["inputResponses"] = {
            key: without_meta(answer) for key, answer in cast("Mapping[str, Any]", answers).items()
        }
    return out


def without_meta(value: Any) -> Any:
    """Return an object without its `_meta`, and anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in cast("Json", value).items() if key != "_meta"}


def differences(expected: Any, got: Any, path: tuple[str, ...], redacted: Collection[str]) -> list[str]:
    """Describe the differences of two values: the place, the expected part and the actual part."""
    if path and expected is not _ABSENT and got is not _ABSENT and is_named(path, redacted):
        return []
    parts: list[tuple[str, Any, Any]] = []
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        there, here = cast("Json", expected), cast("Json", got)
        parts = [(key, there.get(key, _ABSENT), here.get(key, _ABSENT)) for key in {**there, **here}]
    elif isinstance(expected, list) and isinstance(got, list):
        items = zip_longest(cast("list[Any]", expected), cast("list[Any]", got), fillvalue=_ABSENT)
        parts = [(str(place), one, other) for place, (one, other) in enumerate(items)]
    if parts:
        return [line for key, one, other in parts for line in differences(one, other, (*path, key), redacted)]
    if expected is got or (expected == got and isinstance(expected, bool) == isinstance(got, bool)):
        return []
    start = _first_difference(expected, got)
    return [f"{'.'.join(path)}: expected {_shown(expected, start)}, got {_shown(got, start)}"]


def _first_difference(expected: Any, got: Any) -> int:
    """Return the place of the first difference of two long texts, and 0 for values that are shown whole."""
    if not isinstance(expected, str) or not isinstance(got, str) or max(len(expected), len(got)) <= _MAX_SHOWN_CHARS:
        return 0
    pairs = enumerate(zip_longest(expected, got))
    return next((place for place, (one, other) in pairs if one != other), 0)


def _shown(value: Any, start: int) -> str:
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, str) and start:
        begin = max(0, start - _CHARS_BEFORE_DIFFERENCE)
        end = begin + _MAX_SHOWN_CHARS
        part = json.dumps(value[begin:end])
        return f"{'…' if begin else ''}{part}{'…' if end < len(value) else ''} ({len(value)} characters)"
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"


class Unlike(Exception):
    """A client's answer differs from the recorded one."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(*lines)
        self.lines = lines


class _Raw(BaseModel):
    """A message to send exactly as it was recorded."""

    method: str
    params: Json | None = None


class _AnyResult(RootModel[Json]):
    """A result of any shape."""


async def ask(one: RecordedQuestion, ctx: Context, redacted: Collection[str]) -> None:
    """Send a recorded question over the open connection; raise Unlike if the answer differs."""
    method, params = one.question.method, one.question.params
    check_capability(method, ctx)
    request = cast("ServerRequest", _Raw(method=method, params=params or None))
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        answer = await ctx.session.send_request(request, _AnyResult, metadata=related)
        got: Json = {"result": without_meta(answer.root)}
    except MCPError as error:
        got = {"error": {"code": error.error.code, "message": error.error.message}}
    except ValidationError as error:
        raise Unlike([f"the answer to {method} is not valid: {error.errors(include_url=False)[0]['msg']}"]) from None
    if one.answer is None:
        return
    if one.answer.error is None:
        expected = {"result": without_meta(one.answer.result)}
    else:
        # Clients may word their errors differently.
        expected = {"error": {"code": one.answer.error.code, "message": fields(got.get("error")).get("message", "")}}
    lines = differences(expected, got, ("answer",), redacted)
    if lines:
        raise Unlike([f"asked {method} {params.get('message', '')!r}, {line}" for line in lines])


def check_capability(method: str, ctx: Context) -> None:
    """Raise Unlike unless a client declared the capability for a method."""
    capability = _CAPABILITIES.get(method)
    if capability is not None and getattr(ctx.session.client_capabilities, capability, None) is None:
        raise Unlike([f"the server asks {method}, and the client has not declared the capability {capability}"])


async def say(notification: RecordedMessage, ctx: Context) -> None:
    """Send a recorded notification, if the client wants it."""
    params = notification.params
    if notification.method == "notifications/progress":
        await ctx.session.report_progress(params.get("progress", 0), params.get("total"), params.get("message"))
        return
    wants_logs = is_live_era(ctx.protocol_version) or LOG_LEVEL_META_KEY in (ctx.meta or {})
    if notification.method == "notifications/message" and not wants_logs:
        return
    raw = _Raw(method=notification.method, params=with_own_subscription(deepcopy(params), ctx) or None)
    await ctx.session.send_notification(cast("ServerNotification", raw), related_request_id=ctx.request_id)


def with_own_subscription(said: Json, ctx: Context) -> Json:
    """Replace the recorded subscription id with the id of the request that opened the subscription."""
    meta = fields(said.get("_meta"))
    if SUBSCRIPTION_ID_META_KEY in meta:
        return {**said, "_meta": {**meta, SUBSCRIPTION_ID_META_KEY: ctx.request_id}}
    return said


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A message of a client that differs from the recording."""

    request: RecordedMessage
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.request}: {'; '.join(self.differences)}"


def replay(path: str | PathLike[str], *, unique_ids: bool = False) -> "Replayed":
    """Return a server that plays a recording to a client under test.

    The server compares each request with the recorded ones: method, name, arguments, answers, and the request state
    byte for byte. In the live era it also compares the answers to its questions. JSON-RPC ids, `_meta` and the order
    of requests do not matter. Each recorded request may be played once, and lists any number of times.

    Args:
        path: A file that `record` wrote.
        unique_ids: Reject the JSON-RPC id of an earlier request. For clients that keep one connection over HTTP or
            stdio.

    Raises:
        BrokenRecording: The file is missing, or not a recording.

    Example:
        ```python
        replayed = replay("recordings/booking.json")
        async with Client(replayed, elicitation_callback=answer) as client:
            await client.call_tool("book", {"film": "Solaris"})
        replayed.assert_played()
        ```
    """
    return Replayed(Recording.read(Path(path)), Path(path), unique_ids=unique_ids)


class Replayed(Server[Any]):
    """A server that answers from a recording. Connect to it or serve it like any server of the SDK."""

    def __init__(self, recording: Recording, path: Path, *, unique_ids: bool = False) -> None:
        info = _server_info(recording, path)
        super().__init__(info.name, version=info.version)
        self.get_tool_input_schema = self._input_schema
        self.mismatches: list[Mismatch] = []
        """Messages of clients that differ from the recording."""
        self._recording = recording
        self._exchanges = recording.exchanges
        self._played: set[int] = set()
        self._unsaid = list(recording.notifications)
        self._ids: set[Any] | None = set() if unique_ids else None
        self.middleware.append(self._receive)

    @property
    def unplayed(self) -> list[RecordedMessage]:
        """Return the recorded messages that no client has sent, except for the handshake."""
        requests = [one.request for place, one in enumerate(self._exchanges) if place not in self._played]
        return [*(request for request in requests if request.method not in _HANDSHAKE), *self._unsaid]

    def assert_played(self) -> None:
        """Raise an error unless clients sent the whole recording, and nothing else.

        Raises:
            AssertionError: Messages are missing, or differ from the recording; the text lists them.
        """
        lines = [
            *(f"sent, but not recorded so: {mismatch}" for mismatch in self.mismatches),
            *(f"recorded, but not sent: {message}" for message in self.unplayed),
        ]
        if lines:
            raise AssertionError("the client differs from the recording\n" + "\n".join(f"  {line}" for line in lines))

    async def _receive(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        message = RecordedMessage(method=ctx.method, params=significant(ctx.params))
        if ctx.request_id is None:
            self._hear(message)
            return await call_next(ctx)
        self._check_id(message, ctx.request_id)
        if message.method in _HANDSHAKE:
            return await self._shake_hands(message, ctx, call_next)
        place = self._find(message, ctx)
        self._played.add(place)
        try:
            return await self._play(self._exchanges[place], ctx)
        except Unlike as unlike:
            # The client may try again.
            self._played.discard(place)
            raise self._refusal(message, unlike.lines) from None
        except anyio.get_cancelled_exc_class():
            if self._exchanges[place].response is not None:
                self._played.discard(place)
            raise

    def _hear(self, message: RecordedMessage) -> None:
        """Compare a notification. A client gets no reply to a wrong one."""
        if message in self._unsaid:
            self._unsaid.remove(message)
        elif message.method not in PASSING and message not in self._recording.notifications:
            self.mismatches.append(Mismatch(message, ("no such notification was recorded",)))

    def _check_id(self, message: RecordedMessage, request_id: Any) -> None:
        if self._ids is None:
            return
        if request_id in self._ids:
            raise self._refusal(message, [f"an earlier request had the JSON-RPC id {request_id!r}"])
        self._ids.add(request_id)

    async def _shake_hands(self, message: RecordedMessage, ctx: Context, call_next: CallNext) -> HandlerResult:
        recorded = next((one for one in self._exchanges if one.request.method == message.method), None)
        if recorded is not None:
            return await self._play(recorded, ctx)
        protocol = self._recording.protocol
        if message.method == "initialize" and not self._recording.is_live:
            data = {"supported": [protocol], "requested": message.params.get("protocolVersion")}
            lines = [f"the recording is of protocol {protocol}, which has no initialize"]
            raise self._refusal(message, lines, code=UNSUPPORTED_PROTOCOL_VERSION, data=data)
        if message.method == "server/discover":
            if self._recording.is_live:
                # Clients of both eras then try the live era.
                raise MCPError(code=METHOD_NOT_FOUND, message=f"the recording is of protocol {protocol}")
            return self._discovery()
        return await call_next(ctx)

    def _discovery(self) -> Json:
        """Return a description of the server, for `server/discover` without a recorded answer."""
        families = {one.request.method.partition("/")[0] for one in self._exchanges}
        return {
            "resultType": "complete",
            "supportedVersions": [self._recording.protocol],
            "capabilities": {family: {} for family in ("tools", "prompts", "resources") if family in families},
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {SERVER_INFO_META_KEY: self.server_info_stamp},
        }

    def _find(self, message: RecordedMessage, ctx: Context) -> int:
        """Return the place of the recorded request that a message equals."""
        if is_live_era(ctx.protocol_version) != self._recording.is_live:
            mode = "legacy" if self._recording.is_live else self._recording.protocol
            spoken = f"recorded on protocol {self._recording.protocol}, sent on {ctx.protocol_version}"
            raise self._refusal(message, [f"{spoken}; mcp's Client speaks the former with mode={mode!r}"])
        unlike = {
            place: differences(significant(one.request.params), message.params, ("params",), self._recording.redacted)
            for place, one in enumerate(self._exchanges)
            if one.request.method == message.method
        }
        if not unlike:
            raise self._refusal(message, ["no such request was recorded"], code=METHOD_NOT_FOUND)
        alike = [place for place, lines in unlike.items() if not lines]
        for place in alike:
            if place not in self._played:
                return place
        if not alike:
            raise self._refusal(message, unlike[self._nearest(message, unlike)])
        if message.method.endswith("/list"):
            return alike[-1]
        times = "once" if len(alike) == 1 else f"{len(alike)} times"
        raise self._refusal(message, [f"it was recorded {times}, and has been sent as often already"])

    def _nearest(self, message: RecordedMessage, unlike: dict[int, list[str]]) -> int:
        """Return the place of the request that the client probably meant."""

        def distance(place: int) -> tuple[bool, bool, bool, int]:
            recorded = self._exchanges[place].request
            return (
                recorded.params.get("name") != message.params.get("name"),
                _continues(recorded) != _continues(message),
                place in self._played,
                len(unlike[place]),
            )

        return min(unlike, key=distance)

    def _refusal(
        self, message: RecordedMessage, lines: list[str], *, code: int = INVALID_PARAMS, data: Any = None
    ) -> MCPError:
        mismatch = Mismatch(message, tuple(lines))
        self.mismatches.append(mismatch)
        return MCPError(code=code, message=f"not recorded so: {mismatch}", data=data or {"differences": lines})

    async def _play(self, exchange: RecordedExchange, ctx: Context) -> Json:
        for one in exchange.meanwhile:
            if isinstance(one, Notification):
                await say(one.notification, ctx)
            elif exchange.request.method not in _HANDSHAKE:
                await ask(one, ctx, self._recording.redacted)
        if exchange.response is None:
            await anyio.sleep_forever()
            raise AssertionError("unreachable")
        if exchange.response.error is not None:
            raise MCPError.from_error_data(exchange.response.error)
        result = deepcopy(exchange.response.result or {})
        for asked in fields(result.get("inputRequests")).values():
            check_capability(str(fields(asked).get("method")), ctx)
        return with_own_subscription(result, ctx)

    def _input_schema(self, name: str) -> Json | None:
        """Return the schema against which the SDK checks the headers of a tool call."""
        tools = [tool for result in self._recording.results("tools/list") for tool in result.get("tools", ())]
        return next((tool.get("inputSchema") for tool in tools if tool.get("name") == name), None)


def _continues(request: RecordedMessage) -> bool:
    """Return True for a later leg of a call."""
    return "requestState" in request.params or "inputResponses" in request.params


def _server_info(recording: Recording, path: Path) -> Implementation:
    results = [one.response.result or {} for one in recording.exchanges if one.response is not None]
    stamps = [one.get("serverInfo") or fields(one.get("_meta")).get(SERVER_INFO_META_KEY) for one in results]
    stamp: Any = next((stamp for stamp in stamps if stamp), None)
    try:
        return Implementation.model_validate(stamp or {"name": "recorded", "version": ""})
    except ValidationError as error:
        raise BrokenRecording(path, f"serverInfo: {error.errors(include_url=False)[0]['msg']}") from None
