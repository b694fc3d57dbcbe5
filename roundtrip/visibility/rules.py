"""Visibility rules: `enable` and `disable` decide which tools, prompts and resources clients may see.

Everything is visible until a rule hides it. The latest rule that matches an item decides, even if the item is
registered after the rule. `enabled=False` at registration hides one item until a later rule shows it.

A visibility gate decides per request; see `gates.py`.

Lists and calls do not apply rules themselves. A registry applies `rules` after each change, and stores the result.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict

from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.annotations import Reject, accept
from roundtrip.resolvers.markers import Marker

if TYPE_CHECKING:
    from roundtrip.visibility import gates

load_on_use(globals(), "roundtrip.visibility.gates")

Kind = Literal["tool", "prompt", "resource"]
"""Component kind. A resource template has the kind "resource"."""

Listing = Literal["tools", "prompts", "resources"]
"""A list that clients cache. A changed template counts as a changed resource."""

Enabled = bool | Callable[..., Any] | Marker
"""Type of `enabled=`: a constant, or a function that decides per request."""

Strings = str | Iterable[str]
"""One string or several strings."""

_PREFIXES: Final = {"tool": "tool", "prompt": "prompt", "resource": "resource", "template": "resource"}
_FORMS: Final = "tool:NAME, tool:NAME@VERSION, prompt:NAME, resource:URI, template:URI_TEMPLATE"


def read_enabled(
    enabled: Enabled | None, *, owner: str, reject: Reject = accept
) -> tuple[bool, gates.VisibilityGate | None]:
    """For an `enabled=` value, return whether the item is visible at first, and the gate that decides per request.

    Raises:
        InvalidSignature: `enabled` is not a bool, a function or `Depends`, or the gate can never be evaluated.
    """
    if enabled is None or isinstance(enabled, bool):
        return enabled is not False, None
    return True, gates.read_gate(enabled, owner=owner, reject=reject)


class Component(NamedTuple):
    """Item properties that rules can match."""

    kind: Kind
    name: str
    uri: str | None = None
    """A resource's URI, or a template's URI template."""
    tags: frozenset[str] = frozenset()
    version: str | None = None
    since: int = 0
    """Serial number of the registration, from `Visibility.stamp`."""
    enabled: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that select the component."""
        key = f"{self.kind}:{self.name if self.uri is None else self.uri}"
        return (key,) if self.version is None else (key, f"{key}@{_canonical_version(self.version)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that select the component."""
        return (self.name,) if self.uri is None else (self.name, self.uri)


class VisibilityChoice(TypedDict, total=False):
    """Arguments of `Server.enable` and `Server.disable`."""

    keys: Strings | None
    names: Strings | None
    tags: Strings | None
    only: bool


class Criteria(NamedTuple):
    """A rule's criteria. A component must have at least one string from every criterion that is set."""

    keys: frozenset[str] | None
    names: frozenset[str] | None
    tags: frozenset[str] | None

    def match(self, component: Component) -> bool:
        """Return True if a component meets the criteria."""
        own = (component.keys, component.names, component.tags)
        return all(given is None or not given.isdisjoint(some) for given, some in zip(self, own, strict=True))

    def cover(self, other: Criteria) -> bool:
        """Return True if every component that meets the other criteria also meets these."""
        pairs = zip(self, other, strict=True)
        return all(own is None or (theirs is not None and theirs <= own) for own, theirs in pairs)


class _Rule(NamedTuple):
    serial: int
    criteria: Criteria
    enabled: bool


class Rules(NamedTuple):
    """Immutable sequence of rules. Each change creates a new object."""

    otherwise: bool = True
    """True if components without a matching rule are visible."""
    since: int = 0
    """Serial number of the rule that set `otherwise`."""
    latest_first: tuple[_Rule, ...] = ()

    def sees(self, component: Component) -> bool:
        """Return True if the rules let clients see a component."""
        hidden_at = -1 if component.enabled else component.since
        for rule in self.latest_first:
            if rule.serial < hidden_at:
                return False
            if rule.criteria.match(component):
                return rule.enabled
        return self.otherwise and self.since > hidden_at

    def with_rule(self, rule: _Rule, *, only: bool) -> Rules:
        """Return these rules followed by a later rule."""
        if only:
            return Rules(not rule.enabled, rule.serial, (rule,))
        # Drop each earlier rule that the new rule overrides completely.
        rest = tuple(earlier for earlier in self.latest_first if not rule.criteria.cover(earlier.criteria))
        return Rules(self.otherwise, self.since, (rule, *rest))


class Visibility:
    """A server's visibility rules. Any thread may call this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        self.rules = Rules()
        """Current rules. Each change replaces this object."""

    def stamp(self) -> int:
        """Return a serial number for a new registration, which becomes `Component.since`."""
        with self._lock:
            return next(self._serials)

    def _decide(
        self,
        enabled: bool,
        *,
        keys: Strings | None = None,
        names: Strings | None = None,
        tags: Strings | None = None,
        only: bool = False,
    ) -> None:
        """Show or hide the components that match all criteria. With `only`, do the opposite to all other components.

        Raises:
            ValueError: No criterion is set, or a key has an invalid form.
        """
        if keys is None and names is None and tags is None:
            word = "enable" if enabled else "disable"
            raise ValueError(f"{word}() must be given keys= ({_FORMS}), names=, tags= or several of them")
        read_keys = _strings("keys", keys)
        criteria = Criteria(
            None if read_keys is None else frozenset(map(_read_key, read_keys)),
            _strings("names", names),
            _strings("tags", tags),
        )
        with self._lock:
            rule = _Rule(next(self._serials), criteria, enabled)
            self.rules = self.rules.with_rule(rule, only=only)

    enable = partialmethod(_decide, True)
    disable = partialmethod(_decide, False)


def _strings(criterion: str, given: Strings | None) -> frozenset[str] | None:
    if given is None:
        return None
    strings = frozenset([given] if isinstance(given, str) else given)
    if not strings:
        raise ValueError(f"{criterion}= must not be empty: it would match nothing; leave it out")
    for item in strings:
        if not isinstance(item, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{criterion}= must be a string or an iterable of strings, got {type(item).__name__}")
    return strings


def _read_key(key: str) -> str:
    prefix, colon, identifier = key.partition(":")
    kind = _PREFIXES.get(prefix)
    if kind is None or not colon or not identifier:
        raise ValueError(f"keys= must have the forms {_FORMS}, got {key!r}")
    name, at, version = identifier.rpartition("@")
    if kind == "tool" and at:
        identifier = f"{name}@{_canonical_version(version)}"
    return f"{kind}:{identifier}"


def _canonical_version(text: str) -> str:
    """Return a version's canonical spelling."""
    from packaging.utils import canonicalize_version

    try:
        return canonicalize_version(text)
    except ValueError:
        return text
