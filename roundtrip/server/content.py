"""Return values of tools for users and models: images, sounds, files, and whole results."""

import base64
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import quote

import pydantic_core
from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

from roundtrip.questions.markers import is_marker
from roundtrip.server.media_types import UNKNOWN, extension_of, type_of_format, type_of_name
from roundtrip.server.sendable import require_sendable, require_sendable_model, require_sendable_text, unsendable

__all__ = [
    "CONTENT_TYPES",
    "Audio",
    "File",
    "Image",
    "ToolResult",
    "as_block",
    "as_blocks",
    "as_json",
    "as_text",
]


class Image(SdkImage):
    """An image in a tool's result, from a file or from bytes.

    Inside a dict or a model it is not converted; put `image.to_image_content()` there.

    Args:
        path: The file, read when the result is sent; `~` is the home directory.
        data: The bytes instead. Without a `format` they are sent as PNG.
        format: `png`, `jpg`, ... or a whole MIME type; by default from the file's extension.
        annotations: Hints for the client.

    Raises:
        ValueError: Not exactly one of `path` and `data` is given.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
    ) -> None:
        # The SDK's own constructors disagree about empty data and empty paths.
        self.path = _checked_path("Image", path, data)
        self.data = data
        self.annotations = _annotations(annotations)
        self._format = format
        self._mime_type = _media_type(self.path, format, kind="image", default="image/png")

    def to_image_content(
        self, mime_type: str | None = None, annotations: Annotations | Mapping[str, Any] | None = None
    ) -> ImageContent:
        """Return the block to send. Arguments override those of the image."""
        return ImageContent(
            type="image",
            data=_encoded(self.path, self.data),
            mime_type=mime_type or self._mime_type,
            annotations=_annotations(annotations) or self.annotations,
        )


class Audio(SdkAudio):
    """A sound in a tool's result, from a file or from bytes.

    Inside a dict or a model it is not converted; put `audio.to_audio_content()` there.

    Args:
        path: The file, read when the result is sent; `~` is the home directory.
        data: The bytes instead. Without a `format` they are sent as WAV.
        format: `wav`, `mp3`, ... or a whole MIME type; by default from the file's extension.
        annotations: Hints for the client.

    Raises:
        ValueError: Not exactly one of `path` and `data` is given.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
    ) -> None:
        self.path = _checked_path("Audio", path, data)
        self.data = data
        self.annotations = _annotations(annotations)
        self._format = format
        self._mime_type = _media_type(self.path, format, kind="audio", default="audio/wav")

    def to_audio_content(
        self, mime_type: str | None = None, annotations: Annotations | Mapping[str, Any] | None = None
    ) -> AudioContent:
        """Return the block to send. Arguments override those of the sound."""
        return AudioContent(
            type="audio",
            data=_encoded(self.path, self.data),
            mime_type=mime_type or self._mime_type,
            annotations=_annotations(annotations) or self.annotations,
        )


class File:
    """A file in a tool's result, sent whole as an embedded resource.

    Its URI has the file's own name, without its directories.

    Args:
        path: The file, read when the result is sent; `~` is the home directory.
        data: The bytes instead.
        format: `pdf`, `csv`, ... or a whole MIME type; by default from the extension of the file or name.
        name: The name to show in its URI, in place of the file's own.
        annotations: Hints for the client.

    Raises:
        ValueError: Not exactly one of `path` and `data` is given.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
    ) -> None:
        self.path = _checked_path("File", path, data)
        self.data = data
        self.name = name
        self.annotations = _annotations(annotations)
        self._format = format
        self._mime_type = _media_type(self.path if self.path is not None else name, format)

    def to_resource_content(
        self, mime_type: str | None = None, annotations: Annotations | Mapping[str, Any] | None = None
    ) -> EmbeddedResource:
        """Return the block to send. Arguments override those of the file."""
        return _embedded(
            _encoded(self.path, self.data),
            name=self._shown_name(),
            mime_type=mime_type or self._mime_type,
            annotations=_annotations(annotations) or self.annotations,
        )

    def _shown_name(self) -> str:
        extension = extension_of(self._format, self._mime_type)
        if self.name:
            known = self._mime_type != UNKNOWN and not Path(self.name).suffix
            return f"{self.name}{extension}" if known else self.name
        return self.path.name if self.path is not None else f"resource{extension}"


class ToolResult:
    """A tool's result, sent exactly as its author wrote it.

    Args:
        content: Content for users and models: text, a block, an `Image`, a list of those, or any value, as JSON
            text. By default the structured content, as JSON text.
        structured_content: Content for programs.
        meta: Metadata for the client's application.

    Raises:
        ValueError: Neither content nor structured content is given.
        TypeError: The structured content is not a dict.
        NotSendable: A value in it has no JSON form.
    """

    __slots__ = ("content", "meta", "structured_content")

    def __init__(
        self,
        content: Any = None,
        structured_content: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        if content is None and structured_content is None:
            raise ValueError("a ToolResult needs content=, structured_content= or both; an empty one has content=[]")
        if structured_content is not None and not isinstance(cast("object", structured_content), dict):
            raise TypeError(
                f"structured_content must be a dict, got {type(structured_content).__name__}; "
                "for a model pass model.model_dump(mode='json'), for a list {'items': [...]}"
            )
        self.structured_content: dict[str, Any] | None = (
            None if structured_content is None else as_json(structured_content)
        )
        self.content: list[ContentBlock] = as_blocks(structured_content if content is None else content)
        self.meta = meta

    def to_call_tool_result(self) -> CallToolResult:
        """Return the result as the protocol's model."""
        if self.structured_content is None:
            return CallToolResult(content=self.content, _meta=self.meta)
        return CallToolResult(content=self.content, structured_content=self.structured_content, _meta=self.meta)


_BYTES = (bytes, bytearray, memoryview)
_DATA = frozenset((bool, int, float, str, dict))
_BLOCKS: tuple[type, ...] = get_args(ContentBlock)
CONTENT_TYPES: tuple[type, ...] = (*_BLOCKS, SdkImage, SdkAudio, File, ToolResult, *_BYTES)
"""Types of content, which is not data: a return annotation that mentions one gives no output schema."""


_BLOCK_METHODS: dict[type, str] = {
    SdkImage: "to_image_content",
    SdkAudio: "to_audio_content",
    File: "to_resource_content",
}


def as_blocks(value: Any) -> list[ContentBlock]:
    """Return the content blocks of a value: those of each item for a list or tuple, JSON text for other data.

    Raises:
        NotSendable: The value has no JSON form.
    """
    if value is None:
        return []
    if isinstance(value, str):
        require_sendable_text(value)
        return [TextContent(type="text", text=value)]
    if isinstance(value, list | tuple):
        blocks: list[ContentBlock] = []
        for item in cast("Iterable[Any]", value):
            blocks += as_blocks(item)
        return blocks
    block = as_block(value)
    if block is None:
        return [TextContent(type="text", text=as_text(value))]
    require_sendable_model(block)
    return [block]


def as_block(value: Any) -> ContentBlock | None:
    """Return the block for an image, sound, file, bytes or block; None for other values."""
    # Each check below is slow on the SDK's models, and a list may have many items.
    if type(value) in _DATA:
        return None
    if isinstance(value, ContentBlock):
        return value
    if isinstance(value, SdkImage):
        return value.to_image_content()
    if isinstance(value, SdkAudio):
        return value.to_audio_content()
    if isinstance(value, File):
        return value.to_resource_content()
    if isinstance(value, _BYTES):
        return _embedded(
            base64.b64encode(cast("bytes", value)).decode(), name="resource.bin", mime_type=UNKNOWN, annotations=None
        )
    return None


def as_text(value: Any) -> str:
    """Return a value as JSON text, as the SDK writes it.

    Raises:
        NotSendable: The value has no JSON form.
    """
    try:
        return pydantic_core.to_json(value, fallback=_stand_in, indent=2).decode()
    except ValueError as error:
        raise unsendable(error) from error


def as_json(value: Any) -> Any:
    """Return a value as JSON data.

    Raises:
        NotSendable: The value has no JSON form.
    """
    try:
        # Keep NaN and infinity, to reject them below: as null they would be in the text and missing in the data.
        data = pydantic_core.to_jsonable_python(value, fallback=_stand_in, inf_nan_mode="constants")
    except ValueError as error:
        raise unsendable(error) from error
    require_sendable(data)
    return data


def _stand_in(value: Any) -> Any:
    """Return the JSON form of an unknown object, or raise ValueError with advice."""
    for kind, method in _BLOCK_METHODS.items():
        if isinstance(value, kind):
            raise ValueError(
                f"{kind.__name__} is not converted inside another value; put what its {method}() returns there"
            )
    if isinstance(value, ToolResult):
        raise ValueError("a ToolResult is a whole result; return it by itself")
    if isinstance(value, AsyncIterable | Awaitable):
        raise ValueError(f"{type(cast('object', value)).__name__} must be awaited; return its result")
    if is_marker(value):
        raise ValueError(
            f"{type(value).__name__} is a question, and a body that returns one asks nothing; write "
            "`await ctx.ask(name, question)`, or return it from a resolver"
        )
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if type(value).__str__ is object.__str__:
        # Its text would be its repr: an address in memory, or values not meant to be sent.
        kind = type(cast("object", value)).__qualname__
        raise ValueError(f"{kind} has none; return a dict, a dataclass or a model, or give it a __str__")
    return str(value)


def _embedded(blob: str, *, name: str, mime_type: str, annotations: Annotations | None) -> EmbeddedResource:
    contents = BlobResourceContents(uri=f"file:///{quote(name.lstrip('/'))}", blob=blob, mime_type=mime_type)
    return EmbeddedResource(type="resource", resource=contents, annotations=annotations)


def _checked_path(kind: str, path: str | Path | None, data: bytes | None) -> Path | None:
    if path is not None and data is not None:
        raise ValueError(f"{kind} takes path= or data=, not both")
    if path is None and data is None:
        raise ValueError(f"{kind} needs path= (a file) or data= (bytes)")
    if data is not None and not isinstance(cast("object", data), _BYTES):
        raise TypeError(f"{kind} takes bytes as data=, not {type(data).__name__}; encode text with .encode()")
    if path is None:
        return None
    if not str(path):
        raise ValueError(f"{kind} needs a file as path=, not an empty text")
    return Path(path).expanduser()


def _media_type(name: str | Path | None, format: str | None, *, kind: str | None = None, default: str = UNKNOWN) -> str:
    if format:
        return type_of_format(format, kind=kind)
    return type_of_name(name, kind=kind) if name is not None else default


def _annotations(given: Annotations | Mapping[str, Any] | None) -> Annotations | None:
    return given if given is None or isinstance(given, Annotations) else Annotations.model_validate(given)


def _encoded(path: Path | None, data: bytes | None) -> str:
    return base64.b64encode(path.read_bytes() if path is not None else data or b"").decode()
