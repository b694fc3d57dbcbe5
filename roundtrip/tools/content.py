"""Conversion of values to content blocks and JSON that every transport can carry and every client can read.

Values that cannot be sent are rejected here, so that the error names the tool that returned them.
"""

import base64
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, cast, get_args
from urllib.parse import quote

import pydantic_core
from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp_types import Annotations, BlobResourceContents, CallToolResult, ContentBlock, EmbeddedResource, TextContent
from pydantic import BaseModel

from roundtrip.errors import NotSendable
from roundtrip.questions.markers import is_marker

UNKNOWN: Final = "application/octet-stream"
"""Media type for bytes whose format is unknown."""

_MAX_DEPTH: Final = 180
"""Maximum nesting depth of a result. Client parsers stop at 200 levels, and the protocol message around the result adds
a few levels.
"""
_MAX_DIGITS: Final = 4300
_TOO_LARGE: Final = 10**_MAX_DIGITS


class Embeddable:
    """Base class for files. Few servers load `media.py`, so this class is not defined there."""

    def to_resource_content(self) -> EmbeddedResource:
        """Return the content block that is sent to the client."""
        raise NotImplementedError


class ToolResult:
    """Complete tool result that is sent exactly as the author wrote it.

    Args:
        content: Content for users and models: text, a block, an `Image`, a list of these, or another value, which is
            sent as JSON text. The default is the structured content as JSON text.
        structured_content: Content for programs.
        meta: Metadata for the client application.

    Raises:
        ValueError: Neither content nor structured content is set.
        TypeError: The structured content is not a dict.
        NotSendable: A value in the result has no JSON form.
    """

    __slots__ = ("content", "meta", "structured_content")

    def __init__(
        self, content: Any = None, structured_content: dict[str, Any] | None = None, meta: dict[str, Any] | None = None
    ) -> None:
        if content is None and structured_content is None:
            raise ValueError("a ToolResult must have content= or structured_content=; pass content=[] if it is empty")
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
        """Return the result as the SDK's model."""
        if self.structured_content is None:
            return CallToolResult(content=self.content, _meta=self.meta)
        return CallToolResult(content=self.content, structured_content=self.structured_content, _meta=self.meta)


BYTES: Final = (bytes, bytearray, memoryview)
_DATA: Final = frozenset((bool, int, float, str, dict))
_BLOCKS: Final[tuple[type, ...]] = get_args(ContentBlock)
CONTENT_TYPES: Final[tuple[type, ...]] = (*_BLOCKS, SdkImage, SdkAudio, Embeddable, ToolResult, *BYTES)
"""Content types, as opposed to data types. A return annotation with a content type gets no output schema."""
_BLOCK_METHODS: Final = (
    (SdkImage, "Image", "to_image_content"),
    (SdkAudio, "Audio", "to_audio_content"),
    (Embeddable, "File", "to_resource_content"),
)


def as_blocks(value: Any) -> list[ContentBlock]:
    """Return a value's content blocks: for a list or tuple, the blocks of each item; for other data, JSON text.

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
    """Return the content block for an image, a sound, a file, bytes or a block; None for other values."""
    # Return early for plain data: the checks below are slow on the SDK's models, and a list can have many items.
    if type(value) in _DATA:
        return None
    if isinstance(value, ContentBlock):
        return value
    for kind, _, method in _BLOCK_METHODS:
        if isinstance(value, kind):
            return cast("ContentBlock", getattr(value, method)())
    if isinstance(value, BYTES):
        return embedded(base64.b64encode(cast("bytes", value)).decode(), name="resource.bin", mime_type=UNKNOWN)
    return None


def as_text(value: Any) -> str:
    """Return a value as JSON text, formatted as the SDK formats it.

    Raises:
        NotSendable: The value has no JSON form.
    """
    try:
        return pydantic_core.to_json(value, fallback=_json_fallback, indent=2).decode()
    except ValueError as error:
        raise unsendable(error) from error


def as_json(value: Any) -> Any:
    """Return a value as JSON data.

    Raises:
        NotSendable: The value has no JSON form.
    """
    try:
        # Keep NaN and infinity here, and reject them below. If null replaced them, the structured content would differ
        # from the result's text.
        data = pydantic_core.to_jsonable_python(value, fallback=_json_fallback, inf_nan_mode="constants")
    except ValueError as error:
        raise unsendable(error) from error
    require_sendable(data)
    return data


def _json_fallback(value: Any) -> Any:
    """Return a JSON form for an object that pydantic cannot serialize, or raise ValueError with advice."""
    for kind, name, method in _BLOCK_METHODS:
        if isinstance(value, kind):
            raise ValueError(f"{name} cannot be used inside another value; use the result of its {method}() instead")
    if isinstance(value, ToolResult):
        raise ValueError("a ToolResult must be returned by itself, not inside another value")
    if isinstance(value, AsyncIterable | Awaitable):
        raise ValueError(f"{type(cast('object', value)).__name__} must be awaited; return its result")
    if is_marker(value):
        raise ValueError(
            f"{type(value).__name__} is a question, and returning a question does not ask it; write "
            "`await ctx.ask(name, question)`, or return it from a resolver"
        )
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if type(value).__str__ is object.__str__:
        # `str()` would return the default repr, which shows a memory address.
        kind = type(cast("object", value)).__qualname__
        raise ValueError(f"{kind} cannot be converted; return a dict, a dataclass or a model, or give it a __str__")
    return str(value)


def embedded(blob: str, *, name: str, mime_type: str, annotations: Annotations | None = None) -> EmbeddedResource:
    """Return the content block for a file, from the file's bytes in base64."""
    contents = BlobResourceContents(uri=f"file:///{quote(name.lstrip('/'))}", blob=blob, mime_type=mime_type)
    return EmbeddedResource(type="resource", resource=contents, annotations=annotations)


def require_sendable_text(text: str) -> None:
    """Reject text that cannot be encoded as UTF-8.

    Raises:
        NotSendable: The text has unpaired surrogates.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise unsendable(error) from error


def require_sendable(data: Any) -> None:
    """Reject JSON data that would not reach the client unchanged.

    Raises:
        NotSendable: A text is not valid Unicode, a number has no JSON form, or the data is nested too deeply.
    """
    _require_all([data], depth=-1)


def _require_all(values: Iterable[Any], *, depth: int) -> None:
    if depth == _MAX_DEPTH:
        raise NotSendable(
            f"a result is nested more than {_MAX_DEPTH} levels deep, and clients cannot read it; flatten it"
        )
    # Compare exact types instead of calling isinstance: JSON data has no subclasses, and this loop visits every value
    # of every result.
    for value in values:
        kind: type = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            if not value.isascii():
                require_sendable_text(value)
        elif kind is dict:
            _require_all(value, depth=depth)
            _require_all(value.values(), depth=depth + 1)
        elif kind is list:
            _require_all(value, depth=depth + 1)
        elif kind is float:
            if not isfinite(value):
                raise NotSendable(
                    f"a result has no JSON form: JSON cannot represent {value}; return None or a string instead"
                )
        elif kind is int and not -_TOO_LARGE < value < _TOO_LARGE:
            raise NotSendable(f"a result holds an integer of more than {_MAX_DIGITS} digits; return it as text")


def require_sendable_model(model: BaseModel) -> None:
    """Reject a protocol model, such as a block or a result, that cannot be sent.

    Raises:
        NotSendable: A value in the model cannot be sent.
    """
    try:
        data = model.model_dump(mode="json", by_alias=True, warnings=False)
    except ValueError as error:
        raise unsendable(error) from error
    require_sendable(data)


def unsendable(error: ValueError) -> NotSendable:
    """Return an error that explains a failed serialization to the tool's author."""
    text = str(error)
    if "integer string conversion" in text:
        return NotSendable(f"a result holds an integer of more than {_MAX_DIGITS} digits; return it as text")
    if "surrogates not allowed" in text:
        return NotSendable("a result holds text that is not valid Unicode: it has unpaired surrogates")
    if isinstance(error, UnicodeDecodeError) or "invalid utf-8" in text:
        return NotSendable(
            "a result holds bytes that are not UTF-8 text; return them by themselves or as File(data=...), "
            "or encode them with base64"
        )
    reason = text.removeprefix("Error serializing to JSON: ").removeprefix("ValueError: ")
    return NotSendable(f"a result has no JSON form: {reason}")
