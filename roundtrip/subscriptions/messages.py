"""What instances tell each other of what has changed: a message, and reading what anybody may have sent."""

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
"""Events in one message."""
_LONGEST_URI: Final = 2048
_LONGEST_NAME: Final = 64
_ESCAPED: Final = 6
"""Bytes that JSON needs for one, at most."""
MAX_MESSAGE_BYTES: Final = MAX_EVENTS * (_LONGEST_URI * _ESCAPED + 32) + 1024
"""Bytes of one message."""

_List = Literal["tools", "prompts", "resources"]
_LISTS: Final[dict[_List, ServerEvent]] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}
ALL_LISTS: Final[tuple[ServerEvent, ...]] = tuple(_LISTS.values())
"""That any list may have changed."""


class UnreadableMessage(ValueError):
    """What arrived is no message; the text says why, and quotes nothing of it."""


class ChangeMessage(BaseModel):
    """What has changed on one instance."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    version: Literal[1]
    sender: Annotated[str, StringConstraints(max_length=_LONGEST_NAME)]
    lists: Annotated[list[_List], Field(max_length=MAX_EVENTS)] = []
    updated: Annotated[
        list[Annotated[str, StringConstraints(max_length=_LONGEST_URI)]], Field(max_length=MAX_EVENTS)
    ] = []
    """The URIs of resources."""

    @classmethod
    def of(cls, events: Iterable[ServerEvent], *, sender: str) -> "ChangeMessage":
        """The message that tells of some events, of which all fit."""
        lists: list[_List] = []
        updated: list[str] = []
        for event in events:
            if isinstance(event, ResourceUpdated):
                updated.append(event.uri)
            else:
                lists.extend(name for name, known in _LISTS.items() if event == known)
        return cls(version=1, sender=sender, lists=lists, updated=updated)

    def events(self) -> Iterator[ServerEvent]:
        """What it tells, each once."""
        yield from dict.fromkeys(_LISTS[name] for name in self.lists)
        yield from dict.fromkeys(ResourceUpdated(uri=uri) for uri in self.updated)


def fits(event: ServerEvent) -> bool:
    """Whether an event can be told in a message."""
    if not isinstance(event, ResourceUpdated):
        return True
    try:
        return len(event.uri.encode()) <= _LONGEST_URI
    except UnicodeEncodeError:
        return False


def read_message(data: object) -> ChangeMessage:
    """Read what arrived.

    Raises:
        UnreadableMessage: It is no message.
    """
    if not isinstance(data, bytes):
        raise UnreadableMessage("it is no text")
    if len(data) > MAX_MESSAGE_BYTES:
        raise UnreadableMessage(f"it has {len(data)} bytes, and may have {MAX_MESSAGE_BYTES}")
    try:
        return ChangeMessage.model_validate_json(data)
    except ValidationError as error:
        # The places and kinds of its errors are pydantic's; a key that somebody made up is not told.
        kinds = sorted({one["type"] for one in error.errors(include_input=False, include_context=False)})
        raise UnreadableMessage(f"it is none of roundtrip's ({', '.join(kinds)})") from None
