"""Images, sounds and files that tools return, with the same media types on every machine."""

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
"""Hints for the client: the protocol's model, or a mapping with its fields."""

# Types that the standard library knows only from files on the machine, or only by an older name.
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
# Container formats that hold either audio or video.
_BY_KIND: Final = {("audio", ".mp4"): "audio/mp4", ("audio", ".ogx"): "audio/ogg", ("audio", ".webm"): "audio/webm"}
_BY_WORD: Final = {"markdown": ".md", "plain": ".txt", "text": ".txt"}
_ENCODED: Final = {"bzip2": "application/x-bzip2", "gzip": "application/gzip", "xz": "application/x-xz"}


class _Media:
    """Bytes with their media type, or a file that is read when it is sent."""

    _kind: ClassVar[str | None] = None
    """First part of the media type, such as `image`; None if any type is allowed."""
    _default: ClassVar[str] = UNKNOWN
    """Media type of bytes without a format."""

    # Replaces the SDK's constructors, which handle empty data and empty paths inconsistently.
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
        """Return the content block's media type and annotations. Arguments override the object's own values."""
        return {"mime_type": mime_type or self._mime_type, "annotations": _annotations(annotations) or self.annotations}


class Image(_Media, SdkImage):
    """Image in a tool's result, from a file or from bytes.

    An image inside a dict or a model is not converted. Put the result of `image.to_image_content()` there instead.

    Args:
        path: The file, which is read when the result is sent; `~` is the home directory.
        data: The image's bytes, if there is no file. Bytes without a `format` are sent as PNG.
        format: `png`, `jpg`, ... or a complete MIME type; by default taken from the file's extension.
        annotations: Hints for the client.

    Raises:
        ValueError: Both or neither of `path` and `data` are set.
    """

    _kind = "image"
    _default = "image/png"

    def to_image_content(self, mime_type: str | None = None, annotations: Hints | None = None) -> ImageContent:
        """Return the content block to send. Arguments override the image's own values."""
        return ImageContent(type="image", data=self._encoded(), **self._details(mime_type, annotations))


class Audio(_Media, SdkAudio):
    """Sound in a tool's result, from a file or from bytes.

    A sound inside a dict or a model is not converted. Put the result of `audio.to_audio_content()` there instead.

    Args:
        path: The file, which is read when the result is sent; `~` is the home directory.
        data: The sound's bytes, if there is no file. Bytes without a `format` are sent as WAV.
        format: `wav`, `mp3`, ... or a complete MIME type; by default taken from the file's extension.
        annotations: Hints for the client.

    Raises:
        ValueError: Both or neither of `path` and `data` are set.
    """

    _kind = "audio"
    _default = "audio/wav"

    def to_audio_content(self, mime_type: str | None = None, annotations: Hints | None = None) -> AudioContent:
        """Return the content block to send. Arguments override the sound's own values."""
        return AudioContent(type="audio", data=self._encoded(), **self._details(mime_type, annotations))


class File(_Media, Embeddable):
    """File in a tool's result, sent completely as an embedded resource.

    The resource's URI contains the file's name, but not its directories.

    Args:
        path: The file, which is read when the result is sent; `~` is the home directory.
        data: The file's bytes, if there is no file on disk.
        format: `pdf`, `csv`, ... or a complete MIME type; by default taken from the extension of the file or name.
        name: File name to show in the URI; by default the name in `path`.
        annotations: Hints for the client.

    Raises:
        ValueError: Both or neither of `path` and `data` are set.
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
        """Return the content block to send. Arguments override the file's own values."""
        return embedded(self._encoded(), name=self._shown_name(), **self._details(mime_type, annotations))

    def _shown_name(self) -> str:
        extension = _extension_of(self._format, self._mime_type)
        if self.name:
            known = self._mime_type != UNKNOWN and not Path(self.name).suffix
            return f"{self.name}{extension}" if known else self.name
        return self.path.name if self.path is not None else f"resource{extension}"


def _checked_path(kind: str, path: str | Path | None, data: bytes | None) -> Path | None:
    if path is not None and data is not None:
        raise ValueError(f"{kind} must have path= or data=, got both")
    if path is None and data is None:
        raise ValueError(f"{kind} must have path= (a file) or data= (bytes)")
    if data is not None and not isinstance(cast("object", data), BYTES):
        raise TypeError(f"{kind} must have bytes as data=, got {type(data).__name__}; encode text with .encode()")
    if path is None:
        return None
    if not str(path):
        raise ValueError(f"{kind} must have a file as path=, got an empty string")
    return Path(path).expanduser()


def _annotations(given: Hints | None) -> Annotations | None:
    return given if given is None or isinstance(given, Annotations) else Annotations.model_validate(given)


@functools.cache
def _builtin() -> mimetypes.MimeTypes:
    """Return the standard library's built-in table, without the types that this machine adds."""
    return mimetypes.MimeTypes()


def _type_of_name(name: str | PurePath, *, kind: str | None = None) -> str:
    """Return a file's media type by its extension. If `kind` is set (`image`, `audio`), return only a type of that
    kind.
    """
    suffix = PurePath(name).suffix.lower()
    found = _BY_KIND.get((kind or "", suffix)) or _BY_EXTENSION.get(suffix)
    if found is None:
        guessed, encoding = _builtin().guess_type(f"file{suffix}")
        found = _ENCODED.get(encoding, UNKNOWN) if encoding is not None else guessed
    if found is None or (kind is not None and not found.startswith(f"{kind}/")):
        return UNKNOWN
    return found


def _type_of_format(format: str, *, kind: str | None = None) -> str:
    """Return the media type for a format: `jpg`, `pdf`, `.csv`, or a complete type such as `text/csv`."""
    word = format.strip().lower().removeprefix(".")
    if "/" in word:
        return word
    found = _type_of_name(f"file{_BY_WORD.get(word, f'.{word}')}", kind=kind)
    return found if found != UNKNOWN else f"{kind or 'application'}/{word}"


def _extension_of(format: str | None, mime_type: str) -> str:
    """Return the file extension for a format. If the format has none, return the extension for the media type."""
    word = (format or "").strip().lower().removeprefix(".")
    if word and "/" not in word:
        return _BY_WORD.get(word, f".{word}")
    bare = mime_type.partition(";")[0].strip()
    known = next((extension for extension, known in _BY_EXTENSION.items() if known == bare), None)
    return known or _builtin().guess_extension(bare) or ".bin"
