"""Test overrides of resolvers, dependencies and visibility gates: `server.overrides`."""

from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from roundtrip.legs.functions import Planned
from roundtrip.resolvers.planner import Replacements
from roundtrip.resolvers.signatures import display_name, identity

Function = Callable[..., Any]
Pairs = dict[Hashable, tuple[Function, Function]]


class Overrides(MutableMapping[Function, Function]):
    """Mapping from resolvers, dependencies and visibility gates to their replacements.

    Example:
        ```python
        server.overrides[current_account] = lambda: Account("ada")

        with server.overrides({current_account: lambda: Account("ada")}):
            ...
        ```
    """

    def __init__(self, planned: Collection[Planned]) -> None:
        self._planned = planned
        self._pairs: Pairs = {}
        """Each replaced function with its replacement, keyed by the replaced function's identity."""
        self.replacements: Replacements = {}
        """The current replacements. Each change assigns a new dictionary."""

    @contextmanager
    def __call__(self, replacements: Mapping[Function, Function]) -> Generator["Overrides"]:
        """Replace functions inside a `with` block."""
        before = self._pairs
        self.update_all(replacements)
        try:
            yield self
        finally:
            pairs = dict(self._pairs)
            for fn, other in replacements.items():
                key = identity(fn)
                # If code inside the block replaced the same function, keep that replacement.
                if key in pairs and pairs[key][1] is other:
                    del pairs[key]
                    if key in before:
                        pairs[key] = before[key]
            self._change(pairs)

    def __getitem__(self, fn: Function) -> Function:
        return self._pairs[identity(fn)][1]

    def __setitem__(self, fn: Function, other: Function) -> None:
        self._change({**self._pairs, self._identity_of(fn): (fn, other)})

    def __delitem__(self, fn: Function) -> None:
        key = identity(fn)
        if key not in self._pairs:
            raise KeyError(fn)
        self._change({other: pair for other, pair in self._pairs.items() if other != key})

    def __iter__(self) -> Iterator[Function]:
        return iter([fn for fn, _ in self._pairs.values()])

    def __len__(self) -> int:
        return len(self._pairs)

    def clear(self) -> None:
        """Restore all functions."""
        self._change({})

    def update_all(self, replacements: Mapping[Function, Function]) -> None:
        """Replace all given functions. If one replacement is invalid, replace none of them.

        Raises:
            KeyError: A function is not part of any plan.
            InvalidSignature: A parameter of a replacement cannot be filled.
        """
        self._change(self._pairs | {self._identity_of(fn): (fn, other) for fn, other in replacements.items()})

    def _identity_of(self, fn: Function) -> Hashable:
        key = identity(fn)
        functions = {key: fn for planned in self._planned for key, fn in planned.functions.items()}
        functions |= {key: fn for planned in self._planned for key, fn in planned.plan.functions.items()}
        if key not in functions:
            names = ", ".join(sorted({display_name(known) for known in functions.values()})) or "none"
            raise KeyError(
                f"{display_name(fn)!r} must fill a parameter or be part of a visibility gate on this server; functions "
                f"that can be replaced: {names}"
            )
        return key

    def _change(self, pairs: Pairs) -> None:
        replacements = {key: other for key, (_, other) in pairs.items()}
        changed: list[tuple[Planned, Replacements]] = []
        try:
            for planned in list(self._planned):
                before = planned.replacements
                planned.replace(replacements)
                changed.append((planned, before))
        except Exception:
            for planned, before in changed:
                planned.replace(before)
            raise
        self._pairs, self.replacements = pairs, replacements
