"""Texts for snapshots of a call or its JSON-RPC messages. Runs with equal content have equal texts."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_types import ElicitResult

from roundtrip.testing.conversations import Conversation, Message
from roundtrip.testing.snapshots.placeholders import Placeholders
from roundtrip.testing.snapshots.redaction import SnapshotRedaction
from roundtrip.testing.snapshots.story import bytes_in, story_of
from roundtrip.testing.snapshots.wording import StoryText
from roundtrip.text import printable
from roundtrip.untrusted import leaves_of, mapping_of

_Path = tuple[tuple[Any, Any], ...]

_OTHER_SIDE: Final = {"client": "server", "server": "client"}
_NUMBERED_FIELDS: Final = {"requestState": "token", "elicitationId": "id", "progressToken": "progress"}
_INFO_FIELDS: Final = ("clientInfo", "serverInfo")
_DATA_FIELDS: Final = ("data", "blob")


@dataclass(frozen=True, slots=True)
class Sieve:
    """syrupy's `exclude=`, `include=` and `matcher=`. They work as they do in syrupy's JSON snapshots."""

    exclude: Callable[..., bool] | None = None
    include: Callable[..., bool] | None = None
    matcher: Callable[..., Any] | None = None

    def apply(self, value: Any, path: _Path = ()) -> Any:
        """Return a value without its excluded parts. The matcher may also replace parts."""
        if self.matcher is not None:
            value = self.matcher(data=value, path=path)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {
                name: self.apply(item, _child_path(path, name, item)) for name, item in items if self._keeps(name, path)
            }
        if isinstance(value, list):
            return [
                self.apply(item, _child_path(path, index, item)) for index, item in enumerate(cast("list[Any]", value))
            ]
        return value

    def _keeps(self, name: Any, path: _Path) -> bool:
        if self.exclude is not None and self.exclude(prop=name, path=path):
            return False
        return self.include is None or self.include(prop=name, path=path)


def _child_path(path: _Path, name: object, value: object) -> _Path:
    return (*path, (name, type(value)))


def _replace_changing(value: Any, placeholders: Placeholders) -> Any:
    """Replace the parts of a message that differ between runs or between SDK versions."""
    if isinstance(value, list):
        return [_replace_changing(item, placeholders) for item in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return placeholders.apply(value)
    copy: dict[str, Any] = {}
    for name, item in cast("Mapping[Any, Any]", value).items():
        if name in _NUMBERED_FIELDS and isinstance(item, str | int):
            copy[name] = placeholders.number(_NUMBERED_FIELDS[name], str(item))
        elif str(name).rpartition("/")[2] in _INFO_FIELDS and isinstance(item, Mapping):
            info = cast("Mapping[str, Any]", item)
            copy[name] = {part: "<version>" if part == "version" else detail for part, detail in info.items()}
        elif name in _DATA_FIELDS and isinstance(item, str) and "mimeType" in value and bytes_in(item) is not None:
            copy[name] = f"<{bytes_in(item)} bytes>"
        else:
            copy[placeholders.apply(name)] = _replace_changing(item, placeholders)
    return copy


def _redact_messages(
    messages: Sequence[Message], redaction: SnapshotRedaction, *, tool: str, hidden: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Redact user data, and remove all tools except the called tool from tool lists.

    Protocol fields stay. In the live era, questions have no names on the wire, so `hidden` has the messages of the
    questions that must be redacted with their answers.
    """
    ids = {
        message["id"]
        for sender, message in messages
        if sender == "server" and "id" in message and mapping_of(message.get("params")).get("message") in hidden
    }
    out: list[dict[str, Any]] = []
    for sender, message in messages:
        hides_all = message.get("id") in ids and (sender == "server") == ("method" in message)
        redacted = _redact(_with_one_tool(message, tool), redaction, hides_all=hides_all)
        envelope = ("jsonrpc", "method", "id")
        out.append({name: item if name in envelope else redaction.texts(item) for name, item in redacted.items()})
    return out


def _with_one_tool(message: dict[str, Any], tool: str) -> dict[str, Any]:
    result = mapping_of(message.get("result"))
    tools: Any = result.get("tools")
    if not isinstance(tools, list):
        return message
    listed = [one for one in cast("list[dict[str, Any]]", tools) if one.get("name") == tool]
    return {**message, "result": {**result, "tools": listed}}


def _redact(value: Any, redaction: SnapshotRedaction, *, hides_all: bool = False) -> Any:
    if isinstance(value, list):
        return [_redact(item, redaction, hides_all=hides_all) for item in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    copy: dict[str, Any] = {}
    for name, item in cast("Mapping[str, Any]", value).items():
        if name in ("inputRequests", "inputResponses") and isinstance(item, Mapping):
            asked = cast("Mapping[str, Any]", item)
            copy[name] = {key: _redact(asked[key], redaction, hides_all=redaction.hides(key)) for key in asked}
        elif name == "properties" and isinstance(item, Mapping):
            copy[name] = redaction.form(cast("Mapping[str, Any]", item), hides_all=hides_all)
        elif name in ("arguments", "structuredContent", "content") and isinstance(item, Mapping):
            data = cast("Mapping[str, Any]", item)
            copy[name] = {key: redaction.redact(data[key]) for key in data} if hides_all else redaction.data(data)
        else:
            copy[name] = _redact(item, redaction, hides_all=hides_all)
    return copy


_ALL: Final = Sieve()


def call_text(call: Conversation, *, redacting: Collection[str] = (), sieve: Sieve = _ALL) -> str:
    """Return a call as readable text. Calls with equal content have equal texts.

    Args:
        call: The call.
        redacting: Names of fields, at any depth, whose values are redacted.
        sieve: Other parts to omit or replace.
    """
    story = sieve.apply(story_of(call, SnapshotRedaction(redacting)))
    return StoryText(Placeholders(call.tokens, keep=_test_values(call)).apply(story)).text()


def wire_text(call: Conversation, *, redacting: Collection[str] = (), sieve: Sieve = _ALL) -> str:
    """Return all of a call's JSON-RPC messages as text. Calls with equal content have equal texts.

    The arguments are the same as for `call_text`. Changing values are replaced, as `Placeholders` describes. Request
    states, page ids and progress tokens are also numbered. Image bytes are replaced by their size, and client and
    server versions are omitted. Tool lists contain only the called tool.

    Raises:
        ValueError: The messages were not recorded.
    """
    if not call.messages:
        raise ValueError(
            "this call's messages were not recorded; use the fixture wire_snapshot, or User(record_messages=True)"
        )
    redaction = SnapshotRedaction(redacting)
    hidden = {question.message for question in call.questions if redaction.hides(question.name)}
    messages = sieve.apply(_redact_messages(call.messages, redaction, tool=call.first.name, hidden=hidden))
    leaves = leaves_of([message for _, message in call.messages])
    states = (leaf for name, leaf in leaves if name == "requestState" and isinstance(leaf, str))
    placeholders = Placeholders(states, keep=_test_values(call))
    parts: list[str] = []
    for (sender, _), message in zip(call.messages, messages, strict=True):
        text = json.dumps(_replace_changing(message, placeholders), indent=2, ensure_ascii=False, default=repr)
        parts.append(f"{sender} -> {_OTHER_SIDE[sender]}\n{printable(text, keep_newlines=True)}\n")
    return "\n".join(parts)


def _test_values(call: Conversation) -> list[object]:
    """Return the values that the test itself wrote. They do not change between runs."""
    answers = [question.answer for question in call.questions]
    contents = [answer.content for answer in answers if isinstance(answer, ElicitResult)]
    return [call.first.name, call.first.arguments, *contents]
