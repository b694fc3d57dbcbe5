"""Visibility of a server's prompts, resources and templates. The SDK stores the items themselves."""

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from mcp.server.context import ServerRequestContext

from roundtrip.legs.parts import Effects
from roundtrip.sdk import Shelf
from roundtrip.visibility.rules import Component, Visibility

if TYPE_CHECKING:
    from roundtrip.visibility.gates import GateEvaluator, VisibilityGate

Listed = Literal["prompts", "resources", "templates"]
"""A list that clients request. Templates and resources are read in the same way, but listed separately."""

_ALL_LISTS: Final[tuple[Listed, ...]] = ("prompts", "resources", "templates")

_Key = tuple[Shelf, str]

T = TypeVar("T")


class _CatalogEntry(NamedTuple):
    component: Component
    gate: "VisibilityGate | None"
    listed: Listed
    filled: frozenset[str]
    in_legs: bool


_UNREGISTERED: Final = _CatalogEntry(Component("resource", ""), None, "resources", frozenset(), in_legs=False)


class Catalog:
    """Catalog of visible items, so that lists and lookups need not apply rules. Any thread may change it."""

    def __init__(self, visibility: Visibility, effects: Effects, gates: "Callable[[], GateEvaluator]") -> None:
        self._visibility = visibility
        self._effects = effects
        self._gate_evaluator = gates
        self._entries: dict[_Key, _CatalogEntry] = {}
        self._hidden: frozenset[_Key] = frozenset()
        self._gates: dict[Listed, tuple[VisibilityGate, ...]] = dict.fromkeys(_ALL_LISTS, ())
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
        gate: "VisibilityGate | None" = None,
        template: bool = False,
        filled: Iterable[str] = (),
        in_legs: bool = False,
    ) -> Generator[None]:
        """Add a prompt under its name, or a resource or template under its URI. If the caller fails to register it,
        undo that.

        As in the SDK, a second template with the same URI replaces the first. Other duplicates are ignored.
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
            self._put(key, _CatalogEntry(component, gate, listed, frozenset(filled), in_legs))
        try:
            yield
        except BaseException:
            self._put(key, before)
            raise

    def _put(self, key: _Key, entry: _CatalogEntry | None) -> None:
        with self._lock:
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry
            self._apply_rules()

    def remove(self, kind: Shelf, identifier: str) -> bool:
        """Remove an item. Return True if the rules let clients see the item."""
        seen = self.sees(kind, identifier)
        self._put((kind, identifier), None)
        return seen

    def sees(self, kind: Shelf, identifier: str) -> bool:
        """Return True if the rules let clients see an item, without evaluating its visibility gate."""
        return (kind, identifier) not in self._hidden

    def knows(self, kind: Shelf, identifier: str) -> bool:
        """Return True if an item is registered."""
        return (kind, identifier) in self._entries

    def filled_in(self, kind: Shelf, identifier: str) -> frozenset[str]:
        """Return an item's parameters that clients do not fill."""
        return self._entry(kind, identifier).filled

    def is_served_in_legs(self, kind: Shelf, identifier: str) -> bool:
        """Return True if an item is served in legs, so that it can ask questions."""
        return self._entry(kind, identifier).in_legs

    def has_gates(self, kind: Shelf) -> bool:
        """Return True if any item of this kind has a visibility gate."""
        return kind in self._gated_kinds

    def is_visible(self, kind: Shelf, identifier: str) -> bool:
        """Return True if the current request may see an item."""
        if self._effects.dry_run is not None:
            return True
        if not self.sees(kind, identifier):
            return False
        gate = self._entry(kind, identifier).gate
        return gate is None or self._gate_evaluator().opened_here(gate) is not None

    async def serve(
        self,
        kind: Shelf,
        candidates: Iterable[str],
        work: Callable[[], Awaitable[T]],
        unseen: ServerRequestContext[Any, Any] | None = None,
    ) -> T:
        """Serve a request with the first candidate that is visible to it. If none is visible, serve the request with
        all gates closed.

        Args:
            kind: The kind of item.
            candidates: Names or URIs of items.
            work: Serves the request.
            unseen: The request, if no roundtrip middleware has processed it; otherwise None.
        """
        if not self.has_gates(kind):
            return await work()
        dry_run = self._effects.dry_run
        for identifier in candidates:
            if not self.sees(kind, identifier) and dry_run is None:
                continue
            gate = self._entry(kind, identifier).gate
            if gate is None:
                return await work()
            opened = await self._gate_evaluator().open(gate, unseen)
            if opened is not None:
                return await opened.around(work())
            if dry_run is not None:
                # A dry run has no user for whom a gate could open.
                dry_run.let_in(f"{kind} {identifier!r}")
                return await work()
        return await self._gate_evaluator().serve_unseen(work())

    async def serve_list(self, listed: Listed, work: Callable[[], Awaitable[T]]) -> T:
        """Serve a list with only the items that the request may see."""
        gates = self._gates[listed]
        if not gates:
            return await work()
        return await (await self._gate_evaluator().open_all(gates)).around(work())

    def refresh(self) -> list[Shelf]:
        """Apply the current rules. Return the kinds whose visible items have changed."""
        with self._lock:
            before = self._hidden
            self._apply_rules()
            return list({kind for kind, _ in self._hidden ^ before})

    def _entry(self, kind: Shelf, identifier: str) -> _CatalogEntry:
        return self._entries.get((kind, identifier), _UNREGISTERED)

    def _apply_rules(self) -> None:
        rules, entries = self._visibility.rules, self._entries.items()
        hidden = frozenset[_Key](key for key, entry in entries if not rules.sees(entry.component))
        gated = [(entry.listed, entry.gate) for key, entry in entries if entry.gate is not None and key not in hidden]
        self._hidden = hidden
        self._gates = {listed: tuple(gate for own, gate in gated if own == listed) for listed in _ALL_LISTS}
        self._gated_kinds = frozenset[Shelf](kind for (kind, _), entry in entries if entry.gate is not None)
