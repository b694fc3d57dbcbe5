"""Versions of a tool: compare them, and find the one that a request names."""

from collections.abc import Mapping
from typing import Any, cast

from roundtrip.errors import InvalidSignature, RejectionReason
from roundtrip.server.requests import asking_request, token_rejection

__all__ = ["VersionKey", "canonical_version", "named_version", "requested_version", "version_key", "version_text"]

_OWN = "roundtrip/version"
_FASTMCP = "fastmcp"
_LONGEST = 256
"""Characters of a version; a longer one is compared as plain text."""


class VersionKey:
    """Sort key of a version: by PEP 440, and above those, any other version as plain text."""

    __slots__ = ("_order",)

    def __init__(self, text: str) -> None:
        # Few servers have versions, and importing counts.
        from packaging.version import Version

        try:
            # Clients name versions too, and parsing a long one is slow.
            self._order: tuple[int, Any] = (0, Version(text)) if len(text) <= _LONGEST else (1, text)
        except ValueError:  # no such version, or a number with more digits than Python reads
            self._order = (1, text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionKey) and self._order == other._order

    def __lt__(self, other: "VersionKey") -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self._order)


def version_text(version: object, *, tool: str) -> str | None:
    """Return an author's version as text.

    Raises:
        InvalidSignature: The version is invalid.
    """
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise InvalidSignature(f"tool {tool!r}: version={version!r} must be text, such as '1.10', or a whole number")
    text = str(version)
    if not text or "@" in text:
        raise InvalidSignature(f"tool {tool!r}: version={text!r} must not be empty or contain '@', which keys use")
    return text


def canonical_version(text: str) -> str:
    """Return the canonical spelling of a version."""
    from packaging.utils import canonicalize_version

    try:
        return canonicalize_version(text)
    except ValueError:
        return text


def version_key(version: str | None) -> VersionKey | None:
    """Return the sort key of a version; None for None."""
    return None if version is None else VersionKey(version)


def named_version(params: Mapping[str, Any] | None) -> str | None:
    """Return the version that a request names in its metadata, as `roundtrip/version` or as FastMCP's clients do."""
    meta = (params or {}).get("_meta")
    if not isinstance(meta, Mapping):
        return None
    known = cast("Mapping[str, Any]", meta)
    version = known.get(_OWN)
    if version is None and isinstance(other := known.get(_FASTMCP), Mapping):
        version = cast("Mapping[str, Any]", other).get("version")
    return None if version is None else str(version)


def requested_version(name: str) -> str | None:
    """Return the version that the current request calls: the one its call began with, or the one it names.

    Raises:
        MCPError: The request names another version than its call began with.
    """
    request = asking_request()
    if request is None or request.claimed or request.context.method != "tools/call":
        return None
    if (request.context.params or {}).get("name") != name:
        return None
    named = named_version(request.context.params)
    if request.journal is None:
        return named
    begun = request.journal.version
    if named is not None and version_key(named) != version_key(begun):
        request.reason = RejectionReason.OTHER_VERSION
        raise token_rejection()
    return begun
