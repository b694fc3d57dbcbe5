"""Which tools, prompts and resources clients may see: what is registered, and the enabling and disabling since.

Everything is visible until a rule says otherwise, and the latest rule that has something to say of a component decides.
Rules stand for what is registered after them too. Registering with `enabled=False` is an event among the rules: it
hides the one component from all but the rules made later.

Lists and calls must not walk rules: a registry takes `rules` after a change, and keeps what they say.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from mcp.server.mcpserver import Context as SdkContext

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.annotations import asking_arms
from roundtrip.resolvers.markers import Dependency, Marker, SdkResolve
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.planner import Replacements, make_plan
from roundtrip.resolvers.signatures import hints_of, returns_input_required
from roundtrip.server.overrides import Planned
from roundtrip.server.tools.versions import canonical_version

__all__ = [
    "Component",
    "Enabled",
    "Kind",
    "Rules",
    "Strings",
    "Visibility",
    "VisibilityGate",
    "plan_gates",
    "read_enabled",
]

Kind = Literal["tool", "prompt", "resource"]
"""What a component is; a resource template is a resource."""

Enabled = bool | Callable[..., Any] | Marker
"""Type of `enabled=`: a constant, or a function that decides for each request."""

Strings = str | Iterable[str]
"""One string, or some."""

_PREFIXES: Final = {"tool": "tool", "prompt": "prompt", "resource": "resource", "template": "resource"}
_FORMS: Final = "tool:NAME, tool:NAME@VERSION, prompt:NAME, resource:URI, template:URI_TEMPLATE"


@dataclass(frozen=True, slots=True, eq=False)
class VisibilityGate:
    """Function of `enabled=` that decides for each request if one item exists."""

    owner: str
    marker: Marker
    planned: Planned

    @property
    def enters(self) -> bool:
        """Return True if it enters a context manager, to be left when the item has been served."""
        return self.planned.plan.enters


def read_enabled(enabled: Enabled | None, *, owner: str) -> tuple[bool, VisibilityGate | None]:
    """Read `enabled=`: return False for an item that is hidden at first, and the gate that decides for each request.

    Args:
        enabled: The author's argument.
        owner: The item, for messages: `tool 'forecast'`.

    Raises:
        InvalidSignature: It is no bool, function or `Depends`, or the gate can never be evaluated.
    """
    if enabled is None or isinstance(enabled, bool):
        return enabled is not False, None
    if isinstance(enabled, SdkResolve | Dependency):
        marker: Marker = enabled
    elif callable(cast("object", enabled)):
        marker = Dependency(enabled)
    else:
        raise InvalidSignature(f"{owner}: enabled= must be a bool, a function or Depends, got {enabled!r}")
    roots = {owner: marker}
    planned = Planned(lambda replacements: plan_gates(f"the visibility gate of {owner}", roots, replacements))
    return True, VisibilityGate(owner, marker, planned)


def plan_gates(owner: str, roots: Mapping[str, Marker], replacements: Replacements) -> Plan:
    """Plan visibility gates together.

    Raises:
        InvalidSignature: A gate asks, keeps a value for a whole call, or has a parameter that nothing can fill.
    """
    plan = make_plan(
        None,
        owner=f"{owner} (which is evaluated before there are arguments)",
        arguments={},
        context_types=(SdkContext,),
        resolved={root: (marker, False) for root, marker in roots.items()},
        replacements=replacements,
    )
    for node in plan.nodes:
        if _asks(node.fn):
            raise InvalidSignature(
                f"{owner} may not ask, and {node.label!r} returns a question: a list has to be answered at once. Ask "
                "in a resolver of the function itself, or use confirm="
            )
        if node.once:
            raise InvalidSignature(
                f"{owner} is evaluated for every request, and Resolve({node.label}, once=True) would keep its value "
                "for a whole call; leave once= out"
            )
    return plan


def _asks(fn: Callable[..., Any]) -> bool:
    returns = fn if inspect.isclass(fn) else hints_of(fn).get("return")
    return bool(asking_arms(returns)) or returns_input_required(fn)


class Component(NamedTuple):
    """What rules look at."""

    kind: Kind
    name: str
    uri: str | None = None
    """Of a resource; of a template, its URI template."""
    tags: frozenset[str] = frozenset()
    version: str | None = None
    since: int = 0
    """The serial of its registration, from `Visibility.stamp`."""
    enabled: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that select it."""
        key = f"{self.kind}:{self.name if self.uri is None else self.uri}"
        return (key,) if self.version is None else (key, f"{key}@{canonical_version(self.version)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names that select it."""
        return (self.name,) if self.uri is None else (self.name, self.uri)


class Criteria(NamedTuple):
    """What a rule is about: within each criterion any of its strings, and all of the criteria that are given."""

    keys: frozenset[str] | None
    names: frozenset[str] | None
    tags: frozenset[str] | None

    def match(self, component: Component) -> bool:
        """Whether a component is meant."""
        return (
            (self.keys is None or not self.keys.isdisjoint(component.keys))
            and (self.names is None or not self.names.isdisjoint(component.names))
            and (self.tags is None or not self.tags.isdisjoint(component.tags))
        )

    def cover(self, other: "Criteria") -> bool:
        """Whether these mean everything that the others mean."""
        return _covers(self.keys, other.keys) and _covers(self.names, other.names) and _covers(self.tags, other.tags)


class _Rule(NamedTuple):
    serial: int
    criteria: Criteria
    enabled: bool


class Rules(NamedTuple):
    """All that was enabled and disabled so far; each change makes another one."""

    otherwise: bool = True
    """What holds for a component that no rule means."""
    since: int = 0
    """The serial of the call that decided so."""
    latest_first: tuple[_Rule, ...] = ()

    def sees(self, component: Component) -> bool:
        """Whether clients may see a component."""
        hidden_at = -1 if component.enabled else component.since
        for rule in self.latest_first:
            if rule.serial < hidden_at:
                return False
            if rule.criteria.match(component):
                return rule.enabled
        return self.otherwise and self.since > hidden_at

    def having(self, rule: _Rule, *, only: bool) -> "Rules":
        """These rules and a later one."""
        if only:
            return Rules(not rule.enabled, rule.serial, (rule,))
        # A rule whose every component a later one means has nothing left to say.
        rest = tuple(earlier for earlier in self.latest_first if not rule.criteria.cover(earlier.criteria))
        return Rules(self.otherwise, self.since, (rule, *rest))


class Visibility:
    """Keeps the rules of one server. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serial = 0
        self._rules = Rules()

    @property
    def rules(self) -> Rules:
        """The rules of this moment; another object after every change."""
        return self._rules

    def stamp(self) -> int:
        """The serial of a registration made now, for `Component.since`."""
        with self._lock:
            return self._next_serial()

    def enable(
        self,
        *,
        keys: Strings | None = None,
        names: Strings | None = None,
        tags: Strings | None = None,
        only: bool = False,
    ) -> None:
        """Let clients see what matches all of the criteria.

        Args:
            keys: Any of these: `tool:NAME`, `tool:NAME@VERSION`, `prompt:NAME`, `resource:URI`,
                `template:URI_TEMPLATE`.
            names: Any of these, of a tool, a prompt or a resource, or the URI of a resource.
            tags: Any of these.
            only: From here on let them see nothing else.

        Raises:
            ValueError: No criterion is given, or a key has none of the forms.
        """
        self._decide(True, keys, names, tags, only=only)

    def disable(
        self,
        *,
        keys: Strings | None = None,
        names: Strings | None = None,
        tags: Strings | None = None,
        only: bool = False,
    ) -> None:
        """Hide from clients what matches all of the criteria; with `only`, nothing else.

        Raises:
            ValueError: No criterion is given, or a key has none of the forms.
        """
        self._decide(False, keys, names, tags, only=only)

    def sees(self, component: Component) -> bool:
        """Whether clients may see a component."""
        return self._rules.sees(component)

    def _decide(
        self, enabled: bool, keys: Strings | None, names: Strings | None, tags: Strings | None, *, only: bool
    ) -> None:
        if keys is None and names is None and tags is None:
            word = "enable" if enabled else "disable"
            raise ValueError(
                f"{word}() was not told what to {word}: pass keys= ({_FORMS}), names= or tags=, or several of them"
            )
        read_keys = _strings("keys", keys)
        criteria = Criteria(
            None if read_keys is None else frozenset(map(_read_key, read_keys)),
            _strings("names", names),
            _strings("tags", tags),
        )
        with self._lock:
            rule = _Rule(self._next_serial(), criteria, enabled)
            self._rules = self._rules.having(rule, only=only)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial


def _covers(mine: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    return mine is None or (other is not None and other <= mine)


def _strings(criterion: str, given: Strings | None) -> frozenset[str] | None:
    if given is None:
        return None
    strings = frozenset([given] if isinstance(given, str) else given)
    if not strings:
        raise ValueError(f"{criterion}= is empty, and would match nothing; leave it out to choose by the others")
    for item in strings:
        if not isinstance(item, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{criterion}= takes a string or an iterable of strings, not one of {type(item).__name__}")
    return strings


def _read_key(key: str) -> str:
    prefix, colon, identifier = key.partition(":")
    kind = _PREFIXES.get(prefix)
    if kind is None or not colon or not identifier:
        raise ValueError(f"{key!r} is no key, and would match nothing; the forms are {_FORMS}")
    name, at, version = identifier.rpartition("@")
    if kind == "tool" and at:
        identifier = f"{name}@{canonical_version(version)}"
    return f"{kind}:{identifier}"
