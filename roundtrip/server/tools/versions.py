"""Versions of a tool: how they compare, and which one a request names."""

from collections.abc import Mapping
from typing import Any, cast

from roundtrip.errors import InvalidSignature, RejectionReason
from roundtrip.server.requests import asking_request, token_rejection

__all__ = ["VersionKey", "canonical_version", "named_version", "requested_version", "version_key", "version_text"]

_OWN = "roundtrip/version"
_FASTMCP = "fastmcp"
_LONGEST = 256
"""Characters; more of them are plain text, whatever they spell."""


class VersionKey:
    """How a version compares: by PEP 440; what that does not know is plain text, and above what it knows."""

    __slots__ = ("_order",)

    def __init__(self, text: str) -> None:
        # Few servers have versions, and importing counts.
        from packaging.version import Version

        try:
            # Clients name versions too, and reading one takes its time.
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
    """A version as an author may write it, as text.

    Raises:
        InvalidSignature: It is no version.
    """
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise InvalidSignature(f"tool {tool!r}: version={version!r} must be text, such as '1.10', or a whole number")
    text = str(version)
    if not text or "@" in text:
        raise InvalidSignature(f"tool {tool!r}: version={text!r} must not be empty nor hold '@', which keys use")
    return text


def canonical_version(text: str) -> str:
    """One spelling for all spellings of a version."""
    from packaging.utils import canonicalize_version

    try:
        return canonicalize_version(text)
    except ValueError:
        return text


def version_key(version: str | None) -> VersionKey | None:
    """How a version compares; None for none."""
    return None if version is None else VersionKey(version)


def named_version(params: Mapping[str, Any] | None) -> str | None:
    """The version that a request names in its metadata, as `roundtrip/version` or where FastMCP's clients put it."""
    meta = (params or {}).get("_meta")
    if not isinstance(meta, Mapping):
        return None
    known = cast("Mapping[str, Any]", meta)
    version = known.get(_OWN)
    if version is None and isinstance(other := known.get(_FASTMCP), Mapping):
        version = cast("Mapping[str, Any]", other).get("version")
    return None if version is None else str(version)


def requested_version(name: str) -> str | None:
    """The version of a tool that the request being served calls: the one its call began with, or else that it names.

    Raises:
        MCPError: It names another one than its call began with.
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
