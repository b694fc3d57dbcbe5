"""The prompts, resources and templates of one server as visibility knows them; the SDK keeps the things themselves."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Lock
from typing import Literal

from roundtrip.server.visibility import Component, Visibility

__all__ = ["Catalog", "Shelf"]

Shelf = Literal["prompt", "resource"]
"""A template is a resource, known by its URI template."""

_Hidden = dict[Shelf, frozenset[str]]


class Catalog:
    """Tells what clients see without walking rules. It may be changed from any thread."""

    def __init__(self, visibility: Visibility) -> None:
        self._visibility = visibility
        self._components: dict[tuple[Shelf, str], Component] = {}
        self._hidden: _Hidden = {"prompt": frozenset(), "resource": frozenset()}
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
        replaces: bool = False,
    ) -> Generator[None]:
        """Note a prompt by its name, or a resource or template by its URI, while it is registered.

        Args:
            kind: What it is.
            identifier: Its name or URI.
            name: The name of a resource.
            tags: Labels to enable and disable by.
            enabled: False hides it until it is enabled.
            replaces: Whether it takes the place of one that is known already, as a template does.
        """
        key = (kind, identifier)
        before = self._components.get(key)
        if before is None or replaces:
            component = Component(
                kind=kind,
                name=name or identifier,
                uri=identifier if kind == "resource" else None,
                tags=frozenset([tags] if isinstance(tags, str) else tags or ()),
                since=self._visibility.stamp(),
                enabled=enabled,
            )
            self._put(key, component)
        try:
            yield
        except BaseException:
            self._put(key, before)
            raise

    def _put(self, key: tuple[Shelf, str], component: Component | None) -> None:
        with self._lock:
            if component is None:
                self._components.pop(key, None)
            else:
                self._components[key] = component
            self._look()

    def remove(self, kind: Shelf, identifier: str) -> bool:
        """Forget it; whether that changes what clients see."""
        seen = self.sees(kind, identifier)
        self._put((kind, identifier), None)
        return seen

    def sees(self, kind: Shelf, identifier: str) -> bool:
        """Whether clients may see it."""
        return identifier not in self._hidden[kind]

    def refresh(self) -> list[Shelf]:
        """Look again at what clients see; where that has changed."""
        with self._lock:
            before = self._hidden
            self._look()
            return [kind for kind, hidden in self._hidden.items() if hidden != before[kind]]

    def _look(self) -> None:
        rules = self._visibility.rules
        hidden: dict[Shelf, set[str]] = {"prompt": set(), "resource": set()}
        for (kind, identifier), component in self._components.items():
            if not rules.sees(component):
                hidden[kind].add(identifier)
        self._hidden = {kind: frozenset(identifiers) for kind, identifiers in hidden.items()}
