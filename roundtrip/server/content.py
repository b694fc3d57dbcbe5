"""What a tool returns for people and models to see: images, sounds, files, and whole results."""

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
        format: `png`, `jpg`, ... or a whole MIME type; by default the file's extension tells.
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
        """The block that is sent. Arguments replace what the image says of itself."""
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
        format: `wav`, `mp3`, ... or a whole MIME type; by default the file's extension tells.
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
        """The block that is sent. Arguments replace what the sound says of itself."""
        return AudioContent(
            type="audio",
            data=_encoded(self.path, self.data),
            mime_type=mime_type or self._mime_type,
            annotations=_annotations(annotations) or self.annotations,
        )


class File:
    """A file in a tool's result, sent whole as an embedded resource.

    Its URI shows the client the file's own name, and nothing of the directories it lies in.

    Args:
        path: The file, read when the result is sent; `~` is the home directory.
        data: The bytes instead.
        format: `pdf`, `csv`, ... or a whole MIME type; by default the extension of the file or of the name tells.
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
        """The block that is sent. Arguments replace what the file says of itself."""
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
    """A tool's result as its author wants it sent, with nothing added.

    Args:
        content: What people and models see: text, a block, an `Image`, a list of those, or any value, as JSON text.
            By default the structured content, as JSON text.
        structured_content: What programs read.
        meta: What the client's application may want to know about the call.

    Raises:
        ValueError: Neither content nor structured content is given.
        TypeError: The structured content is no dict.
        NotSendable: Something in it has no JSON form.
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
                f"structured_content has to be a dict, not {type(structured_content).__name__}; "
                "of a model pass model.model_dump(mode='json'), of a list {'items': [...]}"
            )
        self.structured_content: dict[str, Any] | None = (
            None if structured_content is None else as_json(structured_content)
        )
        self.content: list[ContentBlock] = as_blocks(structured_content if content is None else content)
        self.meta = meta

    def to_call_tool_result(self) -> CallToolResult:
        """The result of the protocol."""
        if self.structured_content is None:
            return CallToolResult(content=self.content, _meta=self.meta)
        return CallToolResult(content=self.content, structured_content=self.structured_content, _meta=self.meta)


_BYTES = (bytes, bytearray, memoryview)
_DATA = frozenset((bool, int, float, str, dict))
_BLOCKS: tuple[type, ...] = get_args(ContentBlock)
CONTENT_TYPES: tuple[type, ...] = (*_BLOCKS, SdkImage, SdkAudio, File, ToolResult, *_BYTES)
"""What is there to be seen and no data: a return annotation that mentions one gives no output schema."""


_BLOCK_METHODS: dict[type, str] = {
    SdkImage: "to_image_content",
    SdkAudio: "to_audio_content",
    File: "to_resource_content",
}


def as_blocks(value: Any) -> list[ContentBlock]:
    """The content blocks of a value: of a list or tuple those of its items, of what is no content its JSON text.

    Raises:
        NotSendable: It has no JSON form.
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
    """The block that an image, a sound, a file or bytes are sent as, or a block itself; None for anything else."""
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
    """A value as JSON text, as the SDK writes it.

    Raises:
        NotSendable: It has no JSON form.
    """
    try:
        return pydantic_core.to_json(value, fallback=_stand_in, indent=2).decode()
    except ValueError as error:
        raise unsendable(error) from error


def as_json(value: Any) -> Any:
    """A value as JSON data.

    Raises:
        NotSendable: It has no JSON form.
    """
    try:
        # Not as null, which JSON has for it: the author would see it in the text and miss it in the data.
        data = pydantic_core.to_jsonable_python(value, fallback=_stand_in, inf_nan_mode="constants")
    except ValueError as error:
        raise unsendable(error) from error
    require_sendable(data)
    return data


def _stand_in(value: Any) -> Any:
    """What JSON shows for an object that it does not know."""
    for kind, method in _BLOCK_METHODS.items():
        if isinstance(value, kind):
            raise ValueError(
                f"{kind.__name__} is not converted inside another value; put what its {method}() returns there"
            )
    if isinstance(value, ToolResult):
        raise ValueError("a ToolResult is a whole result; return it by itself")
    if isinstance(value, AsyncIterable | Awaitable):
        raise ValueError(f"{type(cast('object', value)).__name__} has to be awaited; return what comes of it")
    if is_marker(value):
        raise ValueError(
            f"{type(value).__name__} is a question, and a body that returns one asks nothing; write "
            "`await ctx.ask(name, question)`, or return it from a resolver"
        )
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if type(value).__str__ is object.__str__:
        # Its text would be its repr: an address in memory, or values that nobody meant to send.
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
