"""Every JSON-RPC message of a call, as it went over the wire but for what changes from run to run."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from roundtrip.safe_text import printable
from roundtrip.testing.conversations import Message
from roundtrip.testing.snapshots.placeholders import Placeholders
from roundtrip.testing.snapshots.redaction import SnapshotRedaction
from roundtrip.testing.snapshots.story import bytes_in

__all__ = ["redacted", "states_in", "text_of_wire"]

_OTHER: Final = {"client": "server", "server": "client"}
_NUMBERED: Final = {"requestState": "token", "elicitationId": "id", "progressToken": "progress"}
_INFO: Final = ("clientInfo", "serverInfo")
_DATA: Final = ("data", "blob")


def text_of_wire(senders: Sequence[str], messages: Sequence[Any], placeholders: Placeholders) -> str:
    """The messages, each below who sent it to whom."""
    parts: list[str] = []
    for sender, message in zip(senders, messages, strict=True):
        told = json.dumps(_steady(message, placeholders), indent=2, ensure_ascii=False, default=repr)
        parts.append(f"{sender} -> {_OTHER[sender]}\n{printable(told, keep_newlines=True)}\n")
    return "\n".join(parts)


def states_in(messages: Sequence[Message]) -> list[str]:
    """The request states that went over the wire."""
    return [value for _, message in messages for value in _states_in(message)]


def _states_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in cast("Mapping[str, Any]", value).items():
            if name == "requestState" and isinstance(item, str):
                yield item
            else:
                yield from _states_in(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _states_in(item)


def _steady(value: Any, placeholders: Placeholders) -> Any:
    """A message without what changes with each run, or with each version of the SDK."""
    if isinstance(value, list):
        return [_steady(item, placeholders) for item in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return placeholders.over(value)
    told: dict[str, Any] = {}
    for name, item in cast("Mapping[Any, Any]", value).items():
        if name in _NUMBERED and isinstance(item, str | int):
            told[name] = placeholders.number(_NUMBERED[name], str(item))
        elif str(name).rpartition("/")[2] in _INFO and isinstance(item, Mapping):
            info = cast("Mapping[str, Any]", item)
            told[name] = {part: "<version>" if part == "version" else of_it for part, of_it in info.items()}
        elif name in _DATA and isinstance(item, str) and "mimeType" in value and bytes_in(item) is not None:
            told[name] = f"<{bytes_in(item)} bytes>"
        else:
            told[placeholders.over(name)] = _steady(item, placeholders)
    return told


def redacted(
    messages: Sequence[Message], redaction: SnapshotRedaction, *, tool: str, hidden: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The messages without what fields hold, and without other tools than the one that is called.

    Only people's data has such fields, not the protocol. Clients list all tools of the server. Questions that say what
    is in `hidden` are left out with their answers: the live era has no names for them.
    """
    ids = {
        message["id"]
        for sender, message in messages
        if sender == "server" and "id" in message and _message_of(message) in hidden
    }
    without = [
        _without(
            _alone(message, tool),
            redaction,
            all_of_it=message.get("id") in ids and (sender == "server") == ("method" in message),
        )
        for sender, message in messages
    ]
    return [{name: _repeating(name, item, redaction) for name, item in message.items()} for message in without]


def _message_of(message: Mapping[str, Any]) -> Any:
    params: Any = message.get("params")
    return cast("dict[str, Any]", params).get("message") if isinstance(params, dict) else None


def _alone(message: dict[str, Any], tool: str) -> dict[str, Any]:
    result: Any = message.get("result")
    tools: Any = cast("dict[str, Any]", result).get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return message
    kept = [one for one in cast("list[dict[str, Any]]", tools) if one.get("name") == tool]
    return {**message, "result": {**result, "tools": kept}}


def _repeating(name: str, value: Any, redaction: SnapshotRedaction) -> Any:
    return value if name in ("jsonrpc", "method", "id") else redaction.texts(value)


def _without(value: Any, redaction: SnapshotRedaction, *, all_of_it: bool = False) -> Any:
    if isinstance(value, list):
        return [_without(item, redaction, all_of_it=all_of_it) for item in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    told: dict[str, Any] = {}
    for name, item in cast("Mapping[str, Any]", value).items():
        if name in ("inputRequests", "inputResponses") and isinstance(item, Mapping):
            asked = cast("Mapping[str, Any]", item)
            told[name] = {key: _without(asked[key], redaction, all_of_it=redaction.hides(key)) for key in asked}
        elif name == "properties" and isinstance(item, Mapping):
            told[name] = redaction.form(cast("Mapping[str, Any]", item), all_of_it=all_of_it)
        elif name in ("arguments", "structuredContent", "content") and isinstance(item, Mapping):
            data = cast("Mapping[str, Any]", item)
            told[name] = {key: redaction.held(data[key]) for key in data} if all_of_it else redaction.data(data)
        else:
            told[name] = _without(item, redaction, all_of_it=all_of_it)
    return told
