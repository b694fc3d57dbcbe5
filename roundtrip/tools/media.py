"""Provide images, sounds and files for tools to return, with the same media types on every machine."""

import base64
import functools
import mimetypes
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, ClassVar, Final, cast

from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp_types import Annotations, AudioContent, EmbeddedResource, ImageContent

from roundtrip.tools.content import BYTES, UNKNOWN, Embeddable, embedded

Hints = Annotations | Mapping[str, Any]
"""Hints for the client, as the protocol's model or with its fields by name."""

# Types that the standard library knows only from files of the machine, or by an older name.
_BY_EXTENSION: Final = {
    ".7z": "application/x-7z-compressed",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".flac": "audio/flac",
    ".gz": "application/gzip",
    ".log": "text/plain",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".mid": "audio/midi",
    ".midi": "audio/midi",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".parquet": "application/vnd.apache.parquet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".toml": "application/toml",
    ".wav": "audio/wav",
    ".weba": "audio/webm",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
# Containers that hold either sound or moving pictures.
_BY_KIND: Final = {("audio", ".mp4"): "audio/mp4", ("audio", ".ogx"): "audio/ogg", ("audio", ".webm"): "audio/webm"}
_BY_WORD: Final = {"markdown": ".md", "plain": ".txt", "text": ".txt"}
_ENCODED: Final = {"bzip2": "application/x-bzip2", "gzip": "application/gzip", "xz": "application/x-xz"}


class _Media:
    """Bytes, or a file that is read when they are sent, with their media type."""

    _kind: ClassVar[str | None] = None
    """The first part of its media type."""
    _default: ClassVar[str] = UNKNOWN
    """The media type of bytes without a format."""

    # In place of the SDK's constructors, which treat empty data and empty paths in different ways.
    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Hints | None = None,
    ) -> None:
        self.path = _checked_path(type(self).__name__, path, data)
        self.data = data
        self.annotations = _annotations(annotations)
        self._format = format
        self._mime_type = self._type_of(self.path)

    def _type_of(self, name: str | Path | None) -> str:
        if self._format:
            return _type_of_format(self._format, kind=self._kind)
        return self._default if name is None else _type_of_name(name, kind=self._kind)

    def _encoded(self) -> str:
        return base64.b64encode(self.path.read_bytes() if self.path is not None else self.data or b"").decode()

    def _details(self, mime_type: str | None, annotations: Hints | None) -> dict[str, Any]:
        """Return the media type and annotations of its block; arguments override its own."""
        return {"mime_type": mime_type or self._mime_type, "annotations": _annotations(annotations) or self.annotations}


class Image(_Media, SdkImage):
    """An image in a tool's result, from a file or from bytes.

    Inside a dict or a model an image is not converted; use `image.to_image_content()` there.

    Args:
        path: The file, read when the result is sent; `~` is the home directory.
        data: The bytes instead. Without a `format` they are sent as PNG.
        format: `png`, `jpg`, ... or a whole MIME type; by default from the file's extension.
        annotations: Hints for the client.

    Raises:
        ValueError: Not exactly one of `path` and `data` is given.
    """

    _kind = "image"
    _default = "image/png"

    def to_image_content(self, mime_type: str | None = None, annotations: Hints | None = None) -> ImageContent:
        """Return the block to send. Arguments override those of the image."""
        return ImageContent(type="image", data=self._encoded(), **self._details(mime_type, annotations))


class Audio(_Media, SdkAudio):
    """A sound in a tool's result, from a file or from bytes.

    Inside a dict or a model a sound is not converted; use `audio.to_audio_content()` there.

    Args:
        path: The file, read when the result is sent; `~` is the home directory.
        data: The bytes instead. Without a `format` they are sent as WAV.
        format: `wav`, `mp3`, ... or a whole MIME type; by default from the file's extension.
        annotations: Hints for the client.

    Raises:
        ValueError: Not exactly one of `path` and `data` is given.
    """

    _kind = "audio"
    _default = "audio/wav"

    def to_audio_content(self, mime_type: str | None = None, annotations: Hints | None = None) -> AudioContent:
        """Return the block to send. Arguments override those of the sound."""
        return AudioContent(type="audio", data=self._encoded(), **self._details(mime_type, annotations))


class File(_Media, Embeddable):
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
        annotations: Hints | None = None,
    ) -> None:
        super().__init__(path, data, format, annotations)
        self.name = name
        if self.path is None:
            self._mime_type = self._type_of(name)

    def to_resource_content(self, mime_type: str | None = None, annotations: Hints | None = None) -> EmbeddedResource:
        """Return the block to send. Arguments override those of the file."""
        return embedded(self._encoded(), name=self._shown_name(), **self._details(mime_type, annotations))

    def _shown_name(self) -> str:
        extension = _extension_of(self._format, self._mime_type)
        if self.name:
            known = self._mime_type != UNKNOWN and not Path(self.name).suffix
            return f"{self.name}{extension}" if known else self.name
        return self.path.name if self.path is not None else f"resource{extension}"


def _checked_path(kind: str, path: str | Path | None, data: bytes | None) -> Path | None:
    if path is not None and data is not None:
        raise ValueError(f"{kind} takes path= or data=, not both")
    if path is None and data is None:
        raise ValueError(f"{kind} needs path= (a file) or data= (bytes)")
    if data is not None and not isinstance(cast("object", data), BYTES):
        raise TypeError(f"{kind} takes bytes as data=, not {type(data).__name__}; encode text with .encode()")
    if path is None:
        return None
    if not str(path):
        raise ValueError(f"{kind} needs a file as path=, not an empty text")
    return Path(path).expanduser()


def _annotations(given: Hints | None) -> Annotations | None:
    return given if given is None or isinstance(given, Annotations) else Annotations.model_validate(given)


@functools.cache
def _builtin() -> mimetypes.MimeTypes:
    """Return the standard library's own table, without additions of the machine."""
    return mimetypes.MimeTypes()


def _type_of_name(name: str | PurePath, *, kind: str | None = None) -> str:
    """Return the type of a file by its extension; with a `kind` (`image`, `audio`), only a type of that kind."""
    suffix = PurePath(name).suffix.lower()
    found = _BY_KIND.get((kind or "", suffix)) or _BY_EXTENSION.get(suffix)
    if found is None:
        guessed, encoding = _builtin().guess_type(f"file{suffix}")
        found = _ENCODED.get(encoding, UNKNOWN) if encoding is not None else guessed
    if found is None or (kind is not None and not found.startswith(f"{kind}/")):
        return UNKNOWN
    return found


def _type_of_format(format: str, *, kind: str | None = None) -> str:
    """Return the type of a format: `jpg`, `pdf`, `.csv`, or a whole type such as `text/csv`."""
    word = format.strip().lower().removeprefix(".")
    if "/" in word:
        return word
    found = _type_of_name(f"file{_BY_WORD.get(word, f'.{word}')}", kind=kind)
    return found if found != UNKNOWN else f"{kind or 'application'}/{word}"


def _extension_of(format: str | None, mime_type: str) -> str:
    """Return the extension for a format, or for a type if the format gives none."""
    word = (format or "").strip().lower().removeprefix(".")
    if word and "/" not in word:
        return _BY_WORD.get(word, f".{word}")
    bare = mime_type.partition(";")[0].strip()
    known = next((extension for extension, known in _BY_EXTENSION.items() if known == bare), None)
    return known or _builtin().guess_extension(bare) or ".bin"
