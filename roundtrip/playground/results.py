"""Tool results as page data: texts, pictures, sounds and files."""

import base64
import binascii
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from roundtrip.client.person import can_be_opened
from roundtrip.once.intents import RECALLED_META
from roundtrip.testing.question_pages import waiting_call
from roundtrip.trace.explaining.wording import size_text
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.forms import json_text

_PICTURES: Final = frozenset(f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp", "avif", "bmp"))
"""Types of pictures that the page shows, because they cannot contain scripts or references. Other pictures appear as
files.
"""
_SOUNDS: Final = frozenset(
    f"audio/{kind}" for kind in ("wav", "x-wav", "wave", "mpeg", "mp3", "ogg", "webm", "flac", "mp4", "aac")
)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARS: Final = 60
_MAX_TEXT_CHARS: Final = 100_000
"""Maximum length of a text. It is limited, because each change sends the result to the page again."""


def result_data(result: CallToolResult) -> Data:
    """Return a tool result as page data."""
    structured, waits = result.structured_content, waiting_call(result)
    return {
        "waits": None if waits is None else {"tool": waits.tool, "handle": waits.handle},
        "isError": bool(result.is_error),
        "recalled": _shorten(at) if isinstance(at := (result.meta or {}).get(RECALLED_META), str) else None,
        "blocks": [_block(block) for block in result.content],
        "structured": None if structured is None else _shorten(json_text(structured, indent=2)),
    }


def _shorten(text: str) -> str:
    rest = len(text) - _MAX_TEXT_CHARS
    return text if rest <= 0 else f"{text[:_MAX_TEXT_CHARS]}… ({rest} more characters)"


def _block(block: ContentBlock) -> Data:
    match block:
        case TextContent():
            return {"kind": "text", "text": _shorten(block.text)}
        case ImageContent():
            return _media("picture", block.data, block.mime_type, block.mime_type in _PICTURES)
        case AudioContent():
            return _media("sound", block.data, block.mime_type, block.mime_type in _SOUNDS)
        case ResourceLink():
            uri = str(block.uri)
            about = block.description or ""
            return {"kind": "link", "uri": uri, "opens": can_be_opened(uri), "name": block.name, "about": about}
        case EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: TextResourceContents | BlobResourceContents) -> Data:
    uri = str(resource.uri)
    if isinstance(resource, TextResourceContents):
        size = size_text(len(resource.text.encode()))
        name = _file_name(uri)
        return {"kind": "file", "uri": uri, "name": name, "about": size, "text": resource.text, "data": None}
    return {**_media("file", resource.blob, resource.mime_type or "", False), "uri": uri, "name": _file_name(uri)}


def _media(kind: str, data: str, mime_type: str, is_shown: bool) -> Data:
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return {"kind": "text", "text": f"({kind}, {mime_type}: its data is not base64)"}
    about = f"{mime_type or 'file'}, {size_text(size)}"
    if is_shown:
        return {"kind": kind, "source": f"data:{mime_type};base64,{data}", "about": about}
    return {"kind": "file", "uri": "", "name": kind, "about": about, "text": None, "data": data}


def _file_name(uri: str) -> str:
    """Return the name under which a file can be saved, without path parts."""
    try:
        last = unquote(urlsplit(uri).path).replace("\\", "/").rpartition("/")[2]
    except ValueError:
        last = ""
    return _NOT_IN_NAMES.sub("-", last)[-_MAX_NAME_CHARS:].lstrip(".-") or "file"
