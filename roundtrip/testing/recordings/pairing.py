"""Which messages of a connection belong together: what replies to what, and what was said and asked meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import PROTOCOL_VERSION_META_KEY, ErrorData

from roundtrip.testing import tap
from roundtrip.testing.recordings.document import (
    PASSING,
    Json,
    Notification,
    RecordedExchange,
    RecordedMessage,
    RecordedQuestion,
    Reply,
)

__all__ = ["Pairs", "Unrecordable", "paired"]

_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


class Unrecordable(RuntimeError):
    """A conversation cannot be written down so that it can be played back."""


@dataclass(slots=True)
class Pairs:
    """One connection, sorted by what belongs to what."""

    parts: list[RecordedExchange | Notification] = field(default_factory=list[RecordedExchange | Notification])
    protocol: str = ""
    open: dict[Any, RecordedExchange] = field(default_factory=dict[Any, RecordedExchange])
    asked: dict[Any, RecordedQuestion] = field(default_factory=dict[Any, RecordedQuestion])
    progressing: dict[Any, RecordedExchange] = field(default_factory=dict[Any, RecordedExchange])
    early: list[RecordedQuestion] = field(default_factory=list[RecordedQuestion])
    """Questions that came while no request was open: they are asked with the next one."""

    def client(self, said: Json) -> None:
        """Sort what the client said."""
        if "method" not in said:
            question = self.asked.pop(said.get("id"), None)
            if question is not None:
                question.answer = _reply(said)
            return
        message, meta = _message(said)
        if "id" in said:
            exchange = RecordedExchange(request=message, meanwhile=[*self.early])
            self.early.clear()
            self.parts.append(exchange)
            self.open[said["id"]] = exchange
            if "progressToken" in meta:
                self.progressing[meta["progressToken"]] = exchange
            self.protocol = self.protocol or str(meta.get(PROTOCOL_VERSION_META_KEY, ""))
        elif message.method == "notifications/cancelled":
            self.open.pop(message.params.get("requestId"), None)
        elif message.method not in PASSING:
            self.parts.append(Notification(notification=message))

    def server(self, said: Json) -> None:
        """Sort what the server said."""
        if "method" not in said:
            exchange = self.open.pop(said.get("id"), None)
            if exchange is not None:
                exchange.response = _reply(said)
                self._learn(exchange)
            return
        message = RecordedMessage(method=said["method"], params=dict(said.get("params") or {}))
        if "id" in said:
            question = RecordedQuestion(question=message)
            self.asked[said["id"]] = question
            self._asking(message).append(question)
        elif message.method != "notifications/cancelled":
            exchange = self._saying(message)
            message.params.pop("progressToken", None)
            exchange.meanwhile.append(Notification(notification=message))

    def _learn(self, exchange: RecordedExchange) -> None:
        result = exchange.response.result if exchange.response is not None else None
        if exchange.request.method == "initialize" and result is not None:
            self.protocol = str(result.get("protocolVersion", ""))

    def _asking(self, message: RecordedMessage) -> list[Any]:
        """Where a question belongs: with the call that the server asks for."""
        calls = [one for one in self.open.values() if one.request.method in _ASKING]
        if len(calls) > 1:
            raise Unrecordable(
                f"the server asked {message.method} while {len(calls)} calls were open, and the connection does not "
                f"tell for which: {'; '.join(str(call.request) for call in calls)}. Record one call after the other."
            )
        return calls[0].meanwhile if calls else self.early

    def _saying(self, message: RecordedMessage) -> RecordedExchange:
        """The request that the server reports on."""
        subscription = message.params.get("_meta", {}).get(SUBSCRIPTION_ID_META_KEY)
        if subscription is not None and subscription in self.open:
            return self.open[subscription]
        return self.progressing.get(message.params.get("progressToken")) or self._last()

    def _last(self) -> RecordedExchange:
        """The latest request without a reply; else the latest of all."""
        exchanges = [*(one for one in self.parts if isinstance(one, RecordedExchange)), *self.open.values()]
        if not exchanges:
            raise Unrecordable("the server spoke before the client did")
        return exchanges[-1]


def paired(messages: Iterable[tap.Message]) -> Pairs:
    """Sort what was said on one connection.

    Raises:
        Unrecordable: It cannot be told what belongs to what.
    """
    pairs = Pairs()
    for sender, said in messages:
        if sender == "client":
            pairs.client(said)
        else:
            pairs.server(said)
    return pairs


def _message(said: Json) -> tuple[RecordedMessage, Json]:
    """What a client said, and what it said about it."""
    params = dict(said.get("params") or {})
    meta = params.pop("_meta", None)
    return RecordedMessage(method=said["method"], params=params), meta or {}


def _reply(said: Json) -> Reply:
    if "error" in said:
        return Reply(error=ErrorData.model_validate(said["error"]))
    return Reply(result=said.get("result") or {})
