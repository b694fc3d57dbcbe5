"""Track the visibility of the prompts, resources and templates of one server; the SDK keeps the items themselves."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Lock
from typing import Final, Literal, NamedTuple

from roundtrip.server.visibility import Component, Visibility, VisibilityGate

__all__ = ["Catalog", "Listed", "Shelf"]

Shelf = Literal["prompt", "resource"]
"""A template is a resource, known by its URI template."""

Listed = Literal["prompts", "resources", "templates"]
"""A list that clients request; templates and resources are read in one way, and listed in two."""

_LISTS: Final[tuple[Listed, ...]] = ("prompts", "resources", "templates")

_Hidden = dict[Shelf, frozenset[str]]


class _CatalogEntry(NamedTuple):
    component: Component
    gate: VisibilityGate | None
    listed: Listed


class Catalog:
    """Catalog of visible items, so that lists and lookups walk no rules. Any thread may change it."""

    def __init__(self, visibility: Visibility) -> None:
        self._visibility = visibility
        self._entries: dict[tuple[Shelf, str], _CatalogEntry] = {}
        self._hidden: _Hidden = {"prompt": frozenset(), "resource": frozenset()}
        self._gates: dict[Listed, tuple[VisibilityGate, ...]] = dict.fromkeys(_LISTS, ())
        self._gated_kinds: frozenset[Shelf] = frozenset()
        self._lock = Lock()

    @contextmanager
    def adding(
        self,
        kind: Shelf,
        identifier: str,
        *,
        name: str | None = None,
        tags: str | Iterable[str] | None = None,
        enabled: bool = True,
        gate: VisibilityGate | None = None,
        template: bool = False,
    ) -> Generator[None]:
        """Enter a prompt by its name, or a resource or template by its URI, while it is registered.

        As in the SDK, a second template of one URI replaces the first; other second items are ignored.

        Args:
            kind: The kind of item.
            identifier: Its name or URI.
            name: The name of a resource.
            tags: Labels to enable and disable by.
            enabled: False hides it until it is enabled.
            gate: Its visibility gate.
            template: True for a template.
        """
        key = (kind, identifier)
        before = self._entries.get(key)
        if before is None or template:
            component = Component(
                kind=kind,
                name=name or identifier,
                uri=identifier if kind == "resource" else None,
                tags=frozenset([tags] if isinstance(tags, str) else tags or ()),
                since=self._visibility.stamp(),
                enabled=enabled,
            )
            listed: Listed = "prompts" if kind == "prompt" else "templates" if template else "resources"
            self._put(key, _CatalogEntry(component, gate, listed))
        try:
            yield
        except BaseException:
            self._put(key, before)
            raise

    def _put(self, key: tuple[Shelf, str], entry: _CatalogEntry | None) -> None:
        with self._lock:
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry
            self._look()

    def remove(self, kind: Shelf, identifier: str) -> bool:
        """Remove an item; return True if clients saw it."""
        seen = self.sees(kind, identifier)
        self._put((kind, identifier), None)
        return seen

    def sees(self, kind: Shelf, identifier: str) -> bool:
        """Return True if clients may see an item, its visibility gate aside."""
        return identifier not in self._hidden[kind]

    def knows(self, kind: Shelf, identifier: str) -> bool:
        """Return True if an item is registered."""
        return (kind, identifier) in self._entries

    def gate_of(self, kind: Shelf, identifier: str) -> VisibilityGate | None:
        """Return the visibility gate of an item, if it has one."""
        entry = self._entries.get((kind, identifier))
        return None if entry is None else entry.gate

    def gates_of(self, listed: Listed) -> tuple[VisibilityGate, ...]:
        """Return the visibility gates of the items in a list that are not hidden from all clients."""
        return self._gates[listed]

    def has_gates(self, kind: Shelf) -> bool:
        """Return True if any item of the kind has a visibility gate."""
        return kind in self._gated_kinds

    def refresh(self) -> list[Shelf]:
        """Apply the current rules; return the kinds whose visible items changed."""
        with self._lock:
            before = self._hidden
            self._look()
            return [kind for kind, hidden in self._hidden.items() if hidden != before[kind]]

    def _look(self) -> None:
        rules = self._visibility.rules
        hidden: dict[Shelf, set[str]] = {"prompt": set(), "resource": set()}
        gates: dict[Listed, list[VisibilityGate]] = {listed: [] for listed in _LISTS}
        for (kind, identifier), entry in self._entries.items():
            if not rules.sees(entry.component):
                hidden[kind].add(identifier)
            elif entry.gate is not None:
                gates[entry.listed].append(entry.gate)
        self._hidden = {kind: frozenset(identifiers) for kind, identifiers in hidden.items()}
        self._gates = {listed: tuple(some) for listed, some in gates.items()}
        self._gated_kinds = frozenset(kind for (kind, _), entry in self._entries.items() if entry.gate is not None)
