"""The model of a recording, and its file format."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

from mcp_types import ErrorData
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from roundtrip.revisions import is_live_era
from roundtrip.safe_text import printable

__all__ = [
    "BrokenRecording",
    "Json",
    "Notification",
    "RecordedExchange",
    "RecordedMessage",
    "RecordedQuestion",
    "Recording",
    "Reply",
    "fields",
]

Json = dict[str, Any]

_SCHEMA_FIELDS: Final = frozenset({"inputSchema", "outputSchema", "requestedSchema"})
_REDACTED_TEXT: Final = "[redacted]"

PASSING: Final = frozenset({"notifications/cancelled", "notifications/progress"})
"""Notifications that a client sends at any time, or never: they are neither recorded nor expected."""


class BrokenRecording(ValueError):
    """A file that is not a playable recording."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is not a recording that can be played: {printable(reason)}")
        self.path = path
        self.reason = reason


class _RecordingPart(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RecordedMessage(_RecordingPart):
    """A request or a notification, without its id and its `_meta`."""

    method: str
    params: Json = Field(default_factory=dict)

    def __str__(self) -> str:
        name = self.params.get("name", self.params.get("uri"))
        words = [self.method] if name is None else [self.method, str(name)]
        if self.params.get("arguments"):
            words.append(json.dumps(self.params["arguments"], ensure_ascii=False))
        answers = self.params.get("inputResponses")
        if isinstance(answers, Mapping):
            words.append(f"with answers to {', '.join(cast('Mapping[str, Any]', answers))}")
        return printable(" ".join(words))


class Reply(_RecordingPart):
    """The reply to a request: a result or an error."""

    result: Json | None = None
    error: ErrorData | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.result is None) == (self.error is None):
            raise ValueError("either a result or an error")
        return self


class Notification(_RecordingPart):
    """A notification of either side."""

    notification: RecordedMessage


class RecordedQuestion(_RecordingPart):
    """A question that the server sent over the open connection, and the client's answer."""

    question: RecordedMessage
    answer: Reply | None = None


def _kind(part: Any) -> str | None:
    """Return the name of a part's class, by the field that only this class has."""
    if isinstance(part, _RecordingPart):
        return type(part).__name__
    fields: Collection[str] = cast("Json", part) if isinstance(part, dict) else ()
    return next((kind for field, kind in _KINDS.items() if field in fields), None)


_KINDS: Final = {"notification": "Notification", "question": "RecordedQuestion", "request": "RecordedExchange"}

_Said = Annotated[Notification, Tag("Notification")]
_Asked = Annotated[RecordedQuestion, Tag("RecordedQuestion")]


class RecordedExchange(_RecordingPart):
    """A request of the client, the server's notifications and questions meanwhile, and the reply if one came."""

    request: RecordedMessage
    meanwhile: list[Annotated[_Said | _Asked, Discriminator(_kind)]] = Field(
        default_factory=list[Notification | RecordedQuestion]
    )
    response: Reply | None = None


class Recording(_RecordingPart):
    """A conversation of a client with a server, in the order of the client's messages."""

    roundtrip_recording: Literal[1] = Field(alias="roundtripRecording")
    protocol: str
    redacted: list[str] = Field(default_factory=list)
    conversation: list[
        Annotated[_Said | Annotated[RecordedExchange, Tag("RecordedExchange")], Discriminator(_kind)]
    ] = Field(min_length=1)

    @property
    def is_live(self) -> bool:
        """Return True if its questions were sent over the open connection."""
        return is_live_era(self.protocol)

    @property
    def exchanges(self) -> list[RecordedExchange]:
        """Return the client's requests, in their order."""
        return [part for part in self.conversation if isinstance(part, RecordedExchange)]

    @property
    def notifications(self) -> list[RecordedMessage]:
        """Return the client's notifications."""
        return [part.notification for part in self.conversation if isinstance(part, Notification)]

    def results(self, method: str) -> list[Json]:
        """Return the results of the requests with a method."""
        replies = [one.response for one in self.exchanges if one.request.method == method]
        return [reply.result for reply in replies if reply is not None and reply.result is not None]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; raise BrokenRecording if it is missing, or not a recording."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise BrokenRecording(path, error.strerror or str(error)) from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(step) for step in first["loc"] if step not in _KINDS.values())
            raise BrokenRecording(path, f"{place}: {first['msg']}" if place else first["msg"]) from None

    def write(self, path: Path) -> None:
        """Write a file, and create its directory if necessary."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(), encoding="utf-8")

    def redact(self) -> Self:
        """Return a copy with placeholders in the fields to redact."""
        dumped = self._dumped()
        dumped["conversation"] = _redacted(dumped["conversation"], self.redacted)
        return type(self).model_validate(dumped)

    def _dumped(self) -> Json:
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def text(self) -> str:
        """Return the text of the file."""
        text = json.dumps(self._dumped(), indent=2, ensure_ascii=False)
        # A server's text must not control the terminal that prints the file.
        return "".join(char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text) + "\n"


def fields(value: Any) -> Json:
    """Return a JSON object as it is, and anything else as an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def is_named(path: tuple[str, ...], names: Collection[str]) -> bool:
    """Return True if a path of fields ends with one of these names."""
    return any(path[-len(steps) :] == steps for steps in (tuple(name.split(".")) for name in names))


def _redacted(value: Any, names: Collection[str], path: tuple[str, ...] = ()) -> Any:
    """Blank the fields of these names at any depth, but not in schemas."""
    if isinstance(value, list):
        return [_redacted(item, names, path) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    out: Json = {}
    for key, item in cast("Json", value).items():
        if key in _SCHEMA_FIELDS:
            out[key] = item
        elif is_named((*path, key), names):
            out[key] = _blank(item)
        else:
            out[key] = _redacted(item, names, (*path, key))
    return out


def _blank(value: Any) -> Any:
    """Return a placeholder of the same shape, which clients accept where they accept the value."""
    if isinstance(value, dict):
        return {key: _blank(item) for key, item in cast("Json", value).items()}
    if isinstance(value, list):
        return [_blank(item) for item in cast("list[Any]", value)]
    if isinstance(value, str):
        return _REDACTED_TEXT
    return value if value is None else type(value)()
