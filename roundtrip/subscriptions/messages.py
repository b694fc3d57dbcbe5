"""Provide the message by which instances announce changes, and a strict reader of it."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

__all__ = ["ALL_LISTS", "MAX_EVENTS", "MAX_MESSAGE_BYTES", "ChangeMessage", "UnreadableMessage", "fits", "read_message"]

MAX_EVENTS: Final = 128
"""Events that one message may have."""
_MAX_URI_BYTES: Final = 2048
_MAX_NAME_CHARS: Final = 64
_ESCAPED: Final = 6
"""The most bytes that one byte of text needs in JSON."""
MAX_MESSAGE_BYTES: Final = MAX_EVENTS * (_MAX_URI_BYTES * _ESCAPED + 32) + 1024

_List = Literal["tools", "prompts", "resources"]
_LISTS: Final[dict[_List, ServerEvent]] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}
ALL_LISTS: Final[tuple[ServerEvent, ...]] = tuple(_LISTS.values())
"""Events for changes of all lists."""


class UnreadableMessage(ValueError):
    """The data is not a message. The text says why, without a quote from it."""


class ChangeMessage(BaseModel):
    """Changes on one instance."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    version: Literal[1]
    sender: Annotated[str, StringConstraints(max_length=_MAX_NAME_CHARS)]
    lists: Annotated[list[_List], Field(max_length=MAX_EVENTS)] = []
    updated: Annotated[
        list[Annotated[str, StringConstraints(max_length=_MAX_URI_BYTES)]], Field(max_length=MAX_EVENTS)
    ] = []
    """The URIs of resources."""

    @classmethod
    def of(cls, events: Iterable[ServerEvent], *, sender: str) -> "ChangeMessage":
        """Make the message of some events, all of which fit."""
        lists: list[_List] = []
        updated: list[str] = []
        for event in events:
            if isinstance(event, ResourceUpdated):
                updated.append(event.uri)
            else:
                lists.extend(name for name, known in _LISTS.items() if event == known)
        return cls(version=1, sender=sender, lists=lists, updated=updated)

    def events(self) -> Iterator[ServerEvent]:
        """Yield its events, each once."""
        yield from dict.fromkeys(_LISTS[name] for name in self.lists)
        yield from dict.fromkeys(ResourceUpdated(uri=uri) for uri in self.updated)


def fits(event: ServerEvent) -> bool:
    """Return True if a message can hold an event."""
    if not isinstance(event, ResourceUpdated):
        return True
    try:
        return len(event.uri.encode()) <= _MAX_URI_BYTES
    except UnicodeEncodeError:
        return False


def read_message(data: object) -> ChangeMessage:
    """Read a message that any client of Redis may have sent.

    Raises:
        UnreadableMessage: The data is not a message.
    """
    if not isinstance(data, bytes):
        raise UnreadableMessage("it is not text")
    if len(data) > MAX_MESSAGE_BYTES:
        raise UnreadableMessage(f"it must have at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    try:
        return ChangeMessage.model_validate_json(data)
    except ValidationError as error:
        # Only pydantic's own words: a key of the data must not reach the log.
        kinds = sorted({one["type"] for one in error.errors(include_input=False, include_context=False)})
        raise UnreadableMessage(f"it is not a message of roundtrip's ({', '.join(kinds)})") from None
