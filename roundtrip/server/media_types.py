"""MIME types by a file's extension or a short name of its format, the same on every machine."""

import functools
import mimetypes
from pathlib import PurePath
from typing import Final

__all__ = ["UNKNOWN", "extension_of", "type_of_format", "type_of_name"]

UNKNOWN: Final = "application/octet-stream"

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
_BY_KIND: Final = {
    ("audio", ".mp4"): "audio/mp4",
    ("audio", ".ogx"): "audio/ogg",
    ("audio", ".webm"): "audio/webm",
}
_BY_WORD: Final = {"markdown": ".md", "plain": ".txt", "text": ".txt"}
_ENCODED: Final = {"bzip2": "application/x-bzip2", "gzip": "application/gzip", "xz": "application/x-xz"}


@functools.cache
def _builtin() -> mimetypes.MimeTypes:
    """Return the standard library's own table, without additions of the machine."""
    return mimetypes.MimeTypes()


def type_of_name(name: str | PurePath, *, kind: str | None = None) -> str:
    """Return the type of a file by its extension; with a `kind` (`image`, `audio`), only a type of that kind."""
    suffix = PurePath(name).suffix.lower()
    found = _BY_KIND.get((kind or "", suffix)) or _BY_EXTENSION.get(suffix)
    if found is None:
        guessed, encoding = _builtin().guess_type(f"file{suffix}")
        found = _ENCODED.get(encoding, UNKNOWN) if encoding is not None else guessed
    if found is None or (kind is not None and not found.startswith(f"{kind}/")):
        return UNKNOWN
    return found


def type_of_format(format: str, *, kind: str | None = None) -> str:
    """Return the type of a format: `jpg`, `pdf`, `.csv`, or a whole type such as `text/csv`."""
    word = format.strip().lower().removeprefix(".")
    if "/" in word:
        return word
    found = type_of_name(f"file{_BY_WORD.get(word, f'.{word}')}", kind=kind)
    return found if found != UNKNOWN else f"{kind or 'application'}/{word}"


def extension_of(format: str | None, mime_type: str) -> str:
    """Return the extension for a format, or for a type if the format gives none."""
    word = (format or "").strip().lower().removeprefix(".")
    if word and "/" not in word:
        return _BY_WORD.get(word, f".{word}")
    bare = mime_type.partition(";")[0].strip()
    known = next((extension for extension, known in _BY_EXTENSION.items() if known == bare), None)
    return known or _builtin().guess_extension(bare) or ".bin"
