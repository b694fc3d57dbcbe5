"""Decide which tools, prompts and resources clients may see, by the rules of `enable` and `disable`.

Everything is visible until a rule hides it. The latest rule that matches a component decides, also for components that
are registered after it. Registering with `enabled=False` hides the one component until a later rule shows it.

A visibility gate decides for each request; see `gates.py`.

Lists and calls do not walk rules: a registry applies `rules` after a change, and keeps the result.
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
else:
    load_on_use(globals(), "roundtrip.visibility.gates")

Kind = Literal["tool", "prompt", "resource"]
"""The kind of a component; a resource template is a resource."""

Listing = Literal["tools", "prompts", "resources"]
"""A list that clients cache; templates are listed with the resources."""

Enabled = bool | Callable[..., Any] | Marker
"""Type of `enabled=`: a constant, or a function that decides for each request."""

Strings = str | Iterable[str]
"""One string, or several."""

_PREFIXES: Final = {"tool": "tool", "prompt": "prompt", "resource": "resource", "template": "resource"}
_FORMS: Final = "tool:NAME, tool:NAME@VERSION, prompt:NAME, resource:URI, template:URI_TEMPLATE"


def read_enabled(
    enabled: Enabled | None, *, owner: str, reject: Reject = accept
) -> tuple[bool, gates.VisibilityGate | None]:
    """Read `enabled=`: return False for an item that is hidden at first, and the gate that decides for each request.

    Raises:
        InvalidSignature: It is not a bool, a function or `Depends`, or the gate can never be evaluated.
    """
    if enabled is None or isinstance(enabled, bool):
        return enabled is not False, None
    return True, gates.read_gate(enabled, owner=owner, reject=reject)


class Component(NamedTuple):
    """Facts about an item that rules match."""

    kind: Kind
    name: str
    uri: str | None = None
    """The URI of a resource, or the URI template of a template."""
    tags: frozenset[str] = frozenset()
    version: str | None = None
    since: int = 0
    """The serial of its registration, from `Visibility.stamp`."""
    enabled: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that select it."""
        key = f"{self.kind}:{self.name if self.uri is None else self.uri}"
        return (key,) if self.version is None else (key, f"{key}@{_canonical_version(self.version)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that select it."""
        return (self.name,) if self.uri is None else (self.name, self.uri)


class VisibilityChoice(TypedDict, total=False):
    """Arguments of `Server.enable` and `Server.disable`."""

    keys: Strings | None
    names: Strings | None
    tags: Strings | None
    only: bool


class Criteria(NamedTuple):
    """Criteria of a rule. A component must match all that are given, and of each any of the strings."""

    keys: frozenset[str] | None
    names: frozenset[str] | None
    tags: frozenset[str] | None

    def match(self, component: Component) -> bool:
        """Return True if a component matches."""
        own = (component.keys, component.names, component.tags)
        return all(given is None or not given.isdisjoint(some) for given, some in zip(self, own, strict=True))

    def cover(self, other: Criteria) -> bool:
        """Return True if everything that matches the others matches these, too."""
        pairs = zip(self, other, strict=True)
        return all(own is None or (theirs is not None and theirs <= own) for own, theirs in pairs)


class _Rule(NamedTuple):
    serial: int
    criteria: Criteria
    enabled: bool


class Rules(NamedTuple):
    """Rules so far; each change makes another object."""

    otherwise: bool = True
    """The decision for a component that no rule matches."""
    since: int = 0
    """The serial of the rule that decided so."""
    latest_first: tuple[_Rule, ...] = ()

    def sees(self, component: Component) -> bool:
        """Return True if clients may see a component."""
        hidden_at = -1 if component.enabled else component.since
        for rule in self.latest_first:
            if rule.serial < hidden_at:
                return False
            if rule.criteria.match(component):
                return rule.enabled
        return self.otherwise and self.since > hidden_at

    def having(self, rule: _Rule, *, only: bool) -> Rules:
        """Return these rules with a later one."""
        if only:
            return Rules(not rule.enabled, rule.serial, (rule,))
        # Drop rules whose every component matches the later one.
        rest = tuple(earlier for earlier in self.latest_first if not rule.criteria.cover(earlier.criteria))
        return Rules(self.otherwise, self.since, (rule, *rest))


class Visibility:
    """Rules of one server. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        self.rules = Rules()
        """The rules of this moment; another object after every change."""

    def stamp(self) -> int:
        """Return the serial of a registration made now, for `Component.since`."""
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
        """Show or hide the components that match all of the criteria; with `only`, do the opposite to all others.

        Raises:
            ValueError: No criterion is given, or a key has none of the forms.
        """
        if keys is None and names is None and tags is None:
            word = "enable" if enabled else "disable"
            raise ValueError(f"{word}() must get keys= ({_FORMS}), names= or tags=, or several of them")
        read_keys = _strings("keys", keys)
        criteria = Criteria(
            None if read_keys is None else frozenset(map(_read_key, read_keys)),
            _strings("names", names),
            _strings("tags", tags),
        )
        with self._lock:
            rule = _Rule(next(self._serials), criteria, enabled)
            self.rules = self.rules.having(rule, only=only)

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
    """Return the canonical spelling of a version."""
    from packaging.utils import canonicalize_version

    try:
        return canonicalize_version(text)
    except ValueError:
        return text
