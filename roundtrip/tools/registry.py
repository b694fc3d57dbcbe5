"""Tool registry: all tool versions on a server, and the versions that clients see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import Tool as WireTool

from roundtrip.tools.registered import RegisteredTool
from roundtrip.visibility.rules import Rules, Visibility

if TYPE_CHECKING:
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.visibility.gates import VisibilityGate

logger = logging.getLogger("roundtrip")

OnDuplicate = Literal["warn", "error", "replace", "ignore"]
"""What to do with a second tool that has the same name and version."""

_MAX_VERSION_CHARS: Final = 256
"""Longest version that is parsed, in characters. A longer version is compared as plain text."""


VersionKey = tuple[int, Any]
"""Version sort key. PEP 440 versions sort by the rules of PEP 440; all other versions sort above them."""


def version_key(version: str | None) -> VersionKey | None:
    """Return a version's sort key; None for a tool without a version."""
    return None if version is None else order_of(version)


def order_of(version: str) -> VersionKey:
    """Return a version's sort key."""
    # Lazy: only servers with versions need this import.
    from packaging.version import Version

    try:
        # Clients also send versions, and parsing a long one is slow.
        return (0, Version(version)) if len(version) <= _MAX_VERSION_CHARS else (1, version)
    except ValueError:  # not a PEP 440 version, or a number with too many digits for Python
        return (1, version)


class _VisibleTools(NamedTuple):
    """Snapshot of the tools that clients see. It is replaced as a whole, so that no reader sees a partial change."""

    versions: Mapping[str, tuple[RegisteredTool, ...]]
    """Each tool's versions, sorted from high to low."""
    listing: tuple[WireTool, ...]
    """The tools as listed when every visibility gate is open."""
    gates: tuple[VisibilityGate, ...]
    """Visibility gates for all tools that at least some clients see."""
    has_gates: bool
    """True if any tool, even a hidden one, has a visibility gate."""


class ToolRegistry:
    """Tools by name and version. Any thread may change the registry while others call or list tools."""

    def __init__(self, on_duplicate: OnDuplicate, visibility: Visibility) -> None:
        if on_duplicate not in ("warn", "error", "replace", "ignore"):
            raise ValueError(f"on_duplicate_tools must be 'warn', 'error', 'replace' or 'ignore', got {on_duplicate!r}")
        self._on_duplicate = on_duplicate
        self._visibility = visibility
        self._registered: dict[str, dict[VersionKey | None, RegisteredTool]] = {}
        self._allowed: frozenset[str] | None = None
        self._allowed_is_checked = True
        self.relist: Callable[[RegisteredTool, WireTool], WireTool] | None = None
        """Hook that changes how clients see a tool."""
        self.always_allowed: frozenset[AskingFunction] = frozenset()
        """Functions of the tools that continue calls. `allow` cannot hide these tools, because results name them."""
        self._seen: _VisibleTools | None = None
        self._lock = Lock()

    @property
    def seen(self) -> _VisibleTools:
        """Return the snapshot that lists and calls read."""
        seen = self._seen
        if seen is None:
            with self._lock:
                # Build the snapshot on first read: a server registers many tools before its first request.
                seen = self._seen = self._build_snapshot()
        return seen

    def __contains__(self, name: str) -> bool:
        return name in self._registered

    @property
    def registered(self) -> list[RegisteredTool]:
        """Return every version of every tool, hidden or not."""
        with self._lock:
            return [tool for versions in self._registered.values() for tool in versions.values()]

    def is_for_everyone(self, tool: RegisteredTool) -> bool:
        """Return True if every client sees the tool."""
        return tool.visibility_gate is None and any(one is tool for one in self.seen.versions.get(tool.name, ()))

    def listing_for(self, opened: Collection[VisibilityGate]) -> list[WireTool]:
        """Return the tools as listed for a request that opens the given visibility gates."""
        listing: list[WireTool] = []
        for versions in self.seen.versions.values():
            shown = [tool for tool in versions if tool.visibility_gate is None or tool.visibility_gate in opened]
            if shown:
                listing.append(self._listed(shown))
        return listing

    def find(self, name: str, version: str | None = None) -> Sequence[RegisteredTool]:
        """Return a tool's visible versions, sorted from high to low. With `version`, return only that version.

        Raises:
            UnknownTool: The tool does not exist, or is hidden; the message does not say which of the two.
        """
        found = self.seen.versions.get(name, ())
        if (key := version_key(version)) is not None:
            found = [tool for tool in found if version_key(tool.version) == key]
        if not found:
            raise UnknownTool(name)
        return found

    def registered_as(self, name: str, version: str | None) -> RegisteredTool:
        """Return a tool, visible or hidden, in the given version. Without a version, return the highest.

        Raises:
            UnknownTool: The tool does not exist.
        """
        with self._lock:
            versions = self._registered.get(name, {})
        key = version_key(version)
        if version is None and versions and None not in versions:
            key = max(key for key in versions if key is not None)
        if key not in versions:
            raise UnknownTool(name)
        return versions[key]

    def add(self, tool: RegisteredTool) -> bool:
        """Register a tool. Return True if this changes the tools that clients see.

        Raises:
            ValueError: The tool exists and duplicates are errors, or only one of the two tools has a version.
        """
        key = version_key(tool.version)
        with self._lock:
            versions = self._registered.get(tool.name, {})
            if versions and (key is None) != (None in versions):
                raise ValueError(
                    f"tool {tool.name!r} is registered both with and without a version; give a version= to all "
                    "its registrations, or to none"
                )
            if key in versions and (other := versions[key].version) != tool.version:
                raise ValueError(
                    f"tool {tool.name!r}: version {tool.version!r} must differ from {other!r}, which is already "
                    "registered and is the same version; use one spelling"
                )
            if key in versions:
                label = tool.name if tool.version is None else f"{tool.name}@{tool.version}"
                if self._on_duplicate == "error":
                    raise ValueError(f"Tool already exists: {label}")
                if self._on_duplicate == "ignore":
                    return False
                if self._on_duplicate == "warn":
                    logger.warning("Tool already exists, and is replaced: %s", label)
            self._registered[tool.name] = {**versions, key: tool}
            self._seen = None
        replaced = versions.get(key)
        return any(self.sees(one) for one in (tool, replaced) if one is not None)

    def remove(self, name: str, version: str | None = None) -> bool:
        """Remove one version of a tool, or all versions if `version` is None. Return True if this changes the tools
        that clients see.

        Raises:
            UnknownTool: No tool, visible or hidden, has this name and version.
        """
        with self._lock:
            versions = self._registered.get(name, {})
            key = version_key(version)
            if not versions or (version is not None and key not in versions):
                raise UnknownTool(name)
            remaining = {} if version is None else {other: tool for other, tool in versions.items() if other != key}
            if remaining:
                self._registered[name] = remaining
            else:
                del self._registered[name]
            self._seen = None
        return any(self.sees(tool) for other, tool in versions.items() if other not in remaining)

    def allow(self, names: Iterable[str] | None) -> None:
        """Show only the named tools, even if other tools are enabled; None removes this limit. Call `refresh`
        afterwards.

        Raises:
            TypeError: The names are a single string, or not an iterable of strings.
        """
        if isinstance(names, str | bytes):
            raise TypeError(
                f"allow_tools() must be given an iterable of names, got {names!r}; write allow_tools([{names!r}])"
            )
        allowed = None if names is None else frozenset(names)
        if allowed is not None and (invalid := [name for name in allowed if not isinstance(name, str)]):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"allow_tools() must be given tool names, got {invalid[0]!r}")
        with self._lock:
            self._allowed, self._allowed_is_checked = allowed, allowed is None

    def check_allowed(self) -> None:
        """Log the names that were passed to `allow` but do not match a tool. Called at the first listing, when all
        tools are registered.
        """
        if self._allowed_is_checked:
            return
        with self._lock:
            self._allowed_is_checked = True
            unknown = (self._allowed or frozenset()).difference(self._registered)
            known = ", ".join(sorted(self._registered)) or "none"
        if unknown:
            logger.warning(
                "allow_tools() names tools that do not exist: %s. The tools are: %s", ", ".join(sorted(unknown)), known
            )

    def sees(self, tool: RegisteredTool, rules: Rules | None = None) -> bool:
        """Return True if at least some clients may see the tool, by the given rules or the current ones."""
        is_allowed = self._allowed is None or tool.name in self._allowed or tool.function in self.always_allowed
        return is_allowed and (rules or self._visibility.rules).sees(tool.component)

    def refresh(self) -> None:
        """Rebuild the snapshot after a change."""
        with self._lock:
            self._seen = self._build_snapshot()

    def _build_snapshot(self) -> _VisibleTools:
        seen: dict[str, tuple[RegisteredTool, ...]] = {}
        has_gates = False
        # Another thread may replace the rules meanwhile.
        rules = self._visibility.rules
        for name, versions in self._registered.items():
            has_gates = has_gates or any(tool.visibility_gate is not None for tool in versions.values())
            shown = {key: tool for key, tool in versions.items() if self.sees(tool, rules)}
            keys = sorted((key for key in shown if key is not None), reverse=True)
            if shown:
                seen[name] = tuple(shown[key] for key in keys) or tuple(shown.values())
        gates = [tool.visibility_gate for versions in seen.values() for tool in versions]
        return _VisibleTools(
            versions=MappingProxyType(seen),
            listing=tuple(map(self._listed, seen.values())),
            gates=tuple(gate for gate in gates if gate is not None),
            has_gates=has_gates,
        )

    def _listed(self, shown: Sequence[RegisteredTool]) -> WireTool:
        """Return the list entry that clients get for a tool, given its visible versions."""
        listing = shown[0].listed_with(shown[1:])
        return listing if self.relist is None else self.relist(shown[0], listing)


class UnknownTool(ToolError):
    """A call to a tool that does not exist, or that the client may not see."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown tool: {name}")
