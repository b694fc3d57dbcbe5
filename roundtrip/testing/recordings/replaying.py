"""`replay`: a server that answers from a recording, and tells what it was asked wrongly or not at all."""

from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
)
from pydantic import ValidationError

from roundtrip.revisions import is_live_era
from roundtrip.testing.recordings.differences import differences, significant
from roundtrip.testing.recordings.document import (
    PASSING,
    BrokenRecording,
    Json,
    Notification,
    RecordedExchange,
    RecordedMessage,
    Recording,
    fields,
)
from roundtrip.testing.recordings.speaking import (
    Context,
    Unlike,
    ask,
    check_capability,
    say,
    with_own_subscription,
)

__all__ = ["Mismatch", "Replayed", "replay"]

_HANDSHAKE: Final = frozenset({"initialize", "server/discover", "ping"})


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What a client sent that was not recorded so."""

    request: RecordedMessage
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.request}: {'; '.join(self.differences)}"


def replay(path: str | PathLike[str], *, unique_ids: bool = False) -> "Replayed":
    """A server that plays a recording to a client under test.

    It compares each request with those recorded: the method, the name, the arguments, the request state byte for byte,
    the answers; on the live era, what it is answered to its questions too. JSON-RPC ids, `_meta` and the order of
    requests do not matter. Each recorded request may be played once, lists as often as the client likes.

    Args:
        path: What `record` has written.
        unique_ids: Refuse JSON-RPC ids that an earlier request had: for clients that keep one connection over HTTP or
            stdio.

    Raises:
        BrokenRecording: The file is missing, or no recording.

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
    """A server that answers from a recording; connect to it or serve it as any server of the SDK."""

    def __init__(self, recording: Recording, path: Path, *, unique_ids: bool = False) -> None:
        info = _server_info(recording, path)
        super().__init__(info.name, version=info.version, get_tool_input_schema=self._input_schema)
        self.mismatches: list[Mismatch] = []
        """What clients sent that was not recorded so."""
        self._recording = recording
        self._exchanges = recording.exchanges
        self._played: set[int] = set()
        self._unsaid = list(recording.notifications)
        self._ids: set[Any] | None = set() if unique_ids else None
        self.middleware.append(self._receive)

    @property
    def unplayed(self) -> list[RecordedMessage]:
        """What was recorded of the client and has not come; the handshake need not."""
        requests = [one.request for place, one in enumerate(self._exchanges) if place not in self._played]
        return [*(request for request in requests if request.method not in _HANDSHAKE), *self._unsaid]

    def assert_played(self) -> None:
        """Fail unless the whole recording was played, and nothing else was sent.

        Raises:
            AssertionError: It was not; it says what is missing and what was sent instead.
        """
        lines = [
            *(f"sent, but not recorded so: {mismatch}" for mismatch in self.mismatches),
            *(f"recorded, but not sent: {message}" for message in self.unplayed),
        ]
        if lines:
            raise AssertionError("the client did not do what was recorded\n" + "\n".join(f"  {line}" for line in lines))

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
            # The client may yet do it right.
            self._played.discard(place)
            raise self._refusal(message, unlike.lines) from None
        except anyio.get_cancelled_exc_class():
            if self._exchanges[place].response is not None:
                self._played.discard(place)
            raise

    def _hear(self, message: RecordedMessage) -> None:
        """A notification; there is no telling the client if it is wrong."""
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
                # Clients of both eras then try the older.
                raise MCPError(code=METHOD_NOT_FOUND, message=f"the recording is of protocol {protocol}")
            return self._discovery()
        return await call_next(ctx)

    def _discovery(self) -> Json:
        """What a server tells about itself, where the recorded client did not ask."""
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
        """Which of the recorded requests it is."""
        if (is_live_era(ctx.protocol_version)) != self._recording.is_live:
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
        """The request that was probably meant."""

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
        """What the SDK checks the headers of a tool call against."""
        tools = [tool for result in self._recording.results("tools/list") for tool in result.get("tools", ())]
        return next((tool.get("inputSchema") for tool in tools if tool.get("name") == name), None)


def _continues(request: RecordedMessage) -> bool:
    """Whether it is a later leg of a call."""
    return "requestState" in request.params or "inputResponses" in request.params


def _server_info(recording: Recording, path: Path) -> Implementation:
    results = [one.response.result or {} for one in recording.exchanges if one.response is not None]
    stamps = [one.get("serverInfo") or fields(one.get("_meta")).get(SERVER_INFO_META_KEY) for one in results]
    stamp: Any = next((stamp for stamp in stamps if stamp), None)
    try:
        return Implementation.model_validate(stamp or {"name": "recorded", "version": ""})
    except ValidationError as error:
        raise BrokenRecording(path, f"serverInfo: {error.errors(include_url=False)[0]['msg']}") from None
