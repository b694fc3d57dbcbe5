"""Tools of one server: every version of each, and those that clients see."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import Tool as WireTool

from roundtrip.server.tools.registered import RegisteredTool
from roundtrip.server.tools.versions import VersionKey, version_key
from roundtrip.server.visibility import Visibility

if TYPE_CHECKING:
    from roundtrip.server.visibility_gates import VisibilityGate

__all__ = ["OnDuplicate", "ToolRegistry", "UnknownTool", "unknown_tool"]

logger = logging.getLogger("roundtrip")

OnDuplicate = Literal["warn", "error", "replace", "ignore"]
"""Treatment of a second tool of the same name and version."""

_Versions = dict[VersionKey | None, RegisteredTool]


class _Seen(NamedTuple):
    """Snapshot of the tools that clients see; replaced as a whole, so that no reader meets half a change."""

    tools: Mapping[str, RegisteredTool] = MappingProxyType({})
    """The highest version of each tool."""
    versions: Mapping[tuple[str, VersionKey | None], RegisteredTool] = MappingProxyType({})
    listing: tuple[WireTool, ...] = ()
    """The tools as seen by requests that open every visibility gate."""
    gates: "tuple[VisibilityGate, ...]" = ()
    by_request: Mapping[str, tuple[RegisteredTool, ...]] = MappingProxyType({})
    """Versions of each tool that has several, or a visibility gate; the highest first."""
    has_gates: bool = False
    """True if any tool, even a hidden one, has a visibility gate."""


class ToolRegistry:
    """Tools by name and version. Any thread may change it while calls and lists go on."""

    def __init__(self, on_duplicate: OnDuplicate, visibility: Visibility) -> None:
        if on_duplicate not in ("warn", "error", "replace", "ignore"):
            raise ValueError(f"on_duplicate_tools={on_duplicate!r}: 'warn', 'error', 'replace' or 'ignore'")
        self._on_duplicate = on_duplicate
        self._visibility = visibility
        self._registered: dict[str, _Versions] = {}
        self._allowed: frozenset[str] | None = None
        self._allowed_is_checked = True
        self._seen: _Seen | None = None
        self._lock = Lock()

    @property
    def seen(self) -> Mapping[str, RegisteredTool]:
        """The tools that clients see, by name, in their highest versions."""
        return self._view().tools

    @property
    def listing(self) -> tuple[WireTool, ...]:
        """The list of tools as clients see it."""
        if not self._allowed_is_checked:
            self._check_allowed()
        return self._view().listing

    @property
    def gates(self) -> "tuple[VisibilityGate, ...]":
        """Visibility gates of the tools that are not hidden from all clients."""
        return self._view().gates

    @property
    def by_request(self) -> Mapping[str, Sequence[RegisteredTool]]:
        """Versions of each tool that has several, or a visibility gate; the highest first."""
        return self._view().by_request

    def __contains__(self, name: str) -> bool:
        return name in self._registered

    @property
    def registered(self) -> Iterator[RegisteredTool]:
        """Every version of every tool, hidden or not."""
        with self._lock:
            return iter([tool for versions in self._registered.values() for tool in versions.values()])

    def is_for_everyone(self, tool: RegisteredTool) -> bool:
        """Return True if every client sees a tool."""
        return (
            tool.visibility_gate is None and self._view().versions.get((tool.name, version_key(tool.version))) is tool
        )

    @property
    def has_gates(self) -> bool:
        """True if any tool, even a hidden one, has a visibility gate."""
        return self._view().has_gates

    def listing_for(self, opened: "Collection[VisibilityGate]") -> list[WireTool]:
        """Return the tools as seen by a request that opens the given visibility gates."""
        view = self._view()
        listing: list[WireTool] = []
        for tool in view.listing:
            versions = view.by_request.get(tool.name)
            if versions is None:
                listing.append(tool)
            elif shown := [one for one in versions if one.visibility_gate is None or one.visibility_gate in opened]:
                listing.append(_listed(shown))
        return listing

    def find(self, name: str, version: str | None = None) -> RegisteredTool:
        """Return a tool that clients see: the given version, or the highest.

        Raises:
            ToolError: The tool does not exist, or is hidden; the message does not say which.
        """
        seen = self._view()
        tool = seen.tools.get(name) if version is None else seen.versions.get((name, version_key(version)))
        if tool is None:
            raise unknown_tool(name)
        return tool

    def registered_as(self, name: str, version: str | None) -> RegisteredTool:
        """Return a tool, hidden or not: the given version, or the highest.

        Raises:
            ToolError: The tool does not exist.
        """
        with self._lock:
            versions = self._registered.get(name, {})
        key = version_key(version)
        if version is None and versions and None not in versions:
            key = max(key for key in versions if key is not None)
        if key not in versions:
            raise unknown_tool(name)
        return versions[key]

    def begun_by(self, name: str, version: str | None) -> RegisteredTool | None:
        """Return the tool of that name and version, if clients see it."""
        try:
            return self.find(name, version)
        except ToolError:
            return None

    def add(self, tool: RegisteredTool) -> bool:
        """Register a tool; return True if that changes the tools that clients see.

        Raises:
            ValueError: The name is taken, and duplicates are errors; or only one of the two has a version.
        """
        key = version_key(tool.version)
        with self._lock:
            versions = self._registered.get(tool.name, {})
            if versions and (key is None) != (None in versions):
                raise ValueError(
                    f"tool {tool.name!r} is registered both with and without a version; give every one of them a "
                    "version=, or none"
                )
            if key in versions and (other := versions[key].version) != tool.version:
                raise ValueError(
                    f"tool {tool.name!r}: version {tool.version!r} must differ from {other!r}, which is registered and "
                    "is the same version spelled otherwise; spell it one way"
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
        """Remove a tool, one version or all; return True if that changes the tools that clients see.

        Raises:
            ToolError: No tool has that name and version, hidden or not.
        """
        with self._lock:
            versions = self._registered.get(name, {})
            key = version_key(version)
            if not versions or (version is not None and key not in versions):
                raise unknown_tool(name)
            left = {} if version is None else {other: tool for other, tool in versions.items() if other != key}
            if left:
                self._registered[name] = left
            else:
                del self._registered[name]
            self._seen = None
        return any(self.sees(tool) for other, tool in versions.items() if other not in left)

    def allow(self, names: Iterable[str] | None) -> None:
        """Show only these tools, even if others are enabled; None lifts the limit. Call `refresh` afterwards.

        Raises:
            TypeError: The names are one string, or not an iterable of strings.
        """
        if isinstance(names, str | bytes):
            raise TypeError(f"allow_tools({names!r}) takes an iterable of names: allow_tools([{names!r}])")
        allowed = None if names is None else frozenset(names)
        if allowed is not None and (strangers := [name for name in allowed if not isinstance(name, str)]):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"allow_tools() takes the names of tools, not {strangers[0]!r}")
        with self._lock:
            self._allowed, self._allowed_is_checked = allowed, allowed is None

    def _check_allowed(self) -> None:
        """Log allowed names without a tool at the first listing, as tools may be registered after `allow`."""
        with self._lock:
            self._allowed_is_checked = True
            unknown = (self._allowed or frozenset()).difference(self._registered)
            known = ", ".join(sorted(self._registered)) or "none"
        if unknown:
            logger.warning(
                "allow_tools() was given names of no tool: %s. The tools are: %s", ", ".join(sorted(unknown)), known
            )

    def sees(self, tool: RegisteredTool) -> bool:
        """Return True if some client may see the tool."""
        allowed = self._allowed
        return (allowed is None or tool.name in allowed) and self._visibility.sees(tool.component)

    def refresh(self) -> None:
        """Make the snapshot again after a change."""
        with self._lock:
            self._seen = self._look()

    @property
    def seen_versions(self) -> Mapping[tuple[str, VersionKey | None], RegisteredTool]:
        """Every version that clients see, to compare after a change."""
        return self._view().versions

    def _view(self) -> _Seen:
        seen = self._seen
        if seen is None:
            with self._lock:
                # Made on first read: a server registers many tools before the first request.
                seen = self._seen = self._look()
        return seen

    def _look(self) -> _Seen:
        rules, allowed = self._visibility.rules, self._allowed
        tools: dict[str, RegisteredTool] = {}
        by_version: dict[tuple[str, VersionKey | None], RegisteredTool] = {}
        listing: list[WireTool] = []
        gates: list[VisibilityGate] = []
        by_request: dict[str, tuple[RegisteredTool, ...]] = {}
        for name, versions in self._registered.items():
            if allowed is not None and name not in allowed:
                continue
            shown = {key: tool for key, tool in versions.items() if rules.sees(tool.component)}
            if not shown:
                continue
            keys = sorted((key for key in shown if key is not None), reverse=True)
            ordered = tuple(shown[key] for key in keys) or tuple(shown.values())
            tools[name] = ordered[0]
            by_version.update({(name, key): tool for key, tool in shown.items()})
            listing.append(_listed(ordered))
            some = [tool.visibility_gate for tool in ordered if tool.visibility_gate is not None]
            gates.extend(some)
            if some or len(ordered) > 1:
                by_request[name] = ordered
        return _Seen(
            MappingProxyType(tools),
            MappingProxyType(by_version),
            tuple(listing),
            tuple(gates),
            MappingProxyType(by_request),
            any(
                tool.visibility_gate is not None for versions in self._registered.values() for tool in versions.values()
            ),
        )


def _listed(shown: Sequence[RegisteredTool]) -> WireTool:
    """Return the highest of some versions, as clients see it."""
    return shown[0].listed_with(shown[1:])


class UnknownTool(ToolError):
    """A tool that does not exist, or that the client may not see."""


def unknown_tool(name: str) -> ToolError:
    """Return the one error for missing tools and for tools that the client may not see."""
    return UnknownTool(f"Unknown tool: {name}")
