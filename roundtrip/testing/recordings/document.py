"""What a recording holds, and how it is read from a file and written to one."""

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

_SCHEMAS: Final = frozenset({"inputSchema", "outputSchema", "requestedSchema"})
_PLACEHOLDER: Final = "[redacted]"


PASSING: Final = frozenset({"notifications/cancelled", "notifications/progress"})
"""What a client says at its own time, if at all: it is neither recorded nor expected."""


class BrokenRecording(ValueError):
    """A file is not a recording that can be played."""

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
    """What came back for a request: a result, or an error."""

    result: Json | None = None
    error: ErrorData | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.result is None) == (self.error is None):
            raise ValueError("either a result or an error")
        return self


class Notification(_RecordingPart):
    """What was said without expecting a reply."""

    notification: RecordedMessage


class RecordedQuestion(_RecordingPart):
    """What the server asked on the open connection, and what the client answered."""

    question: RecordedMessage
    answer: Reply | None = None


def _kind(part: Any) -> str | None:
    """Which of the parts it is, by the field that only that one has."""
    if isinstance(part, _RecordingPart):
        return type(part).__name__
    fields: Collection[str] = cast("Json", part) if isinstance(part, dict) else ()
    return next((kind for field, kind in _KINDS.items() if field in fields), None)


_KINDS: Final = {"notification": "Notification", "question": "RecordedQuestion", "request": "RecordedExchange"}

_Said = Annotated[Notification, Tag("Notification")]
_Asked = Annotated[RecordedQuestion, Tag("RecordedQuestion")]


class RecordedExchange(_RecordingPart):
    """A request of the client, what the server said and asked meanwhile, and its reply if there was one."""

    request: RecordedMessage
    meanwhile: list[Annotated[_Said | _Asked, Discriminator(_kind)]] = Field(
        default_factory=list[Notification | RecordedQuestion]
    )
    response: Reply | None = None


class Recording(_RecordingPart):
    """A conversation of a client with a server, in the order of what the client sent."""

    roundtrip_recording: Literal[1] = Field(alias="roundtripRecording")
    protocol: str
    redacted: list[str] = Field(default_factory=list)
    conversation: list[
        Annotated[_Said | Annotated[RecordedExchange, Tag("RecordedExchange")], Discriminator(_kind)]
    ] = Field(min_length=1)

    @property
    def is_live(self) -> bool:
        """Whether its questions were asked on the open connection."""
        return is_live_era(self.protocol)

    @property
    def exchanges(self) -> list[RecordedExchange]:
        """Its requests, in their order."""
        return [part for part in self.conversation if isinstance(part, RecordedExchange)]

    @property
    def notifications(self) -> list[RecordedMessage]:
        """What the client said without expecting a reply."""
        return [part.notification for part in self.conversation if isinstance(part, Notification)]

    def results(self, method: str) -> list[Json]:
        """The results of the requests with a method."""
        replies = [one.response for one in self.exchanges if one.request.method == method]
        return [reply.result for reply in replies if reply is not None and reply.result is not None]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            BrokenRecording: It is missing, or no recording.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise BrokenRecording(path, error.strerror or str(error)) from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(step) for step in first["loc"] if step not in _KINDS.values())
            raise BrokenRecording(path, f"{place}: {first['msg']}" if place else first["msg"]) from None

    def write(self, path: Path) -> None:
        """Write it to a file, whose directory is made if need be."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(), encoding="utf-8")

    def redact(self) -> Self:
        """The same without what is in the fields that are to be redacted."""
        dumped = self._dumped()
        dumped["conversation"] = _redacted(dumped["conversation"], self.redacted)
        return type(self).model_validate(dumped)

    def _dumped(self) -> Json:
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def text(self) -> str:
        """What its file says."""
        text = json.dumps(self._dumped(), indent=2, ensure_ascii=False)
        # Whoever prints the file must not have their terminal obey what a server said.
        return "".join(char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text) + "\n"


def fields(value: Any) -> Json:
    """The fields of an object; none of anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def is_named(path: tuple[str, ...], names: Collection[str]) -> bool:
    """Whether a path of fields ends with one of these names."""
    return any(path[-len(steps) :] == steps for steps in (tuple(name.split(".")) for name in names))


def _redacted(value: Any, names: Collection[str], path: tuple[str, ...] = ()) -> Any:
    """A value without what is in its fields of these names, at any depth. Schemas stay as they are."""
    if isinstance(value, list):
        return [_redacted(item, names, path) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    out: Json = {}
    for key, item in cast("Json", value).items():
        if key in _SCHEMAS:
            out[key] = item
        elif is_named((*path, key), names):
            out[key] = _blank(item)
        else:
            out[key] = _redacted(item, names, (*path, key))
    return out


def _blank(value: Any) -> Any:
    """A value of the same shape, which a client takes wherever it takes the true one."""
    if isinstance(value, dict):
        return {key: _blank(item) for key, item in cast("Json", value).items()}
    if isinstance(value, list):
        return [_blank(item) for item in cast("list[Any]", value)]
    if isinstance(value, str):
        return _PLACEHOLDER
    return value if value is None else type(value)()
