"""Values that the server computes once per call: values from `remember=True` nodes and steps, and values that replace
answers.

The token carries these values sealed. If the body must run once, the ledger also stores the values from interrupted
legs.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from roundtrip.errors import ValueNotStorable
from roundtrip.machine.facts import Fixed, Watch
from roundtrip.machine.journal import Computed
from roundtrip.resolvers.plan import Node

STAND_IN: Final = "~"
"""Prefix for the names of values that replace answers."""


class NotedValue(NamedTuple):
    """A value that a leg has computed and the ledger stores."""

    revision: int
    """How many times a review had changed answers on this leg when the value was computed."""
    key: str
    value: Any


@dataclass(slots=True, eq=False, repr=False)
class ComputedValues:
    """One call's computed values, by their names in the journal."""

    values: dict[str, Computed]
    kept: set[str]
    """Names of values that the token or the ledger already stores."""
    watch: Watch | None = None
    revision: int = 0
    """How many times a review has changed answers on this leg."""
    _noted: Sequence[NotedValue] = ()
    _due: list[NotedValue] = field(default_factory=list[NotedValue])

    def fix(self, name: str, plain: Any) -> None:
        """Store a value (in JSON form) that stays the same for the rest of the call."""
        self.values[name] = Computed(plain)
        if self.watch is not None:
            self.watch(Fixed(name, plain))

    def remember(self, node: Node, value: Any) -> None:
        """Store the value that a remembered node has computed. See `storable` for the error."""
        with storable(node.key):
            plain = adapter_of(node).dump_python(value, mode="json", by_alias=True, warnings="error")
        self.fix(node.key, plain)

    def take_noted(self, noted: Sequence[NotedValue]) -> None:
        """Use values that were saved when this leg ran before.

        A value that was computed after a revision is used only after this run has reached that revision. Until then,
        the journal's value is used.
        """
        self._noted = noted
        self._take_revision()

    def unnoted(self) -> list[NotedValue]:
        """Return this leg's values that neither the token nor the ledger stores yet."""
        fresh = (
            NotedValue(self.revision, key, computed.value)
            for key, computed in self.values.items()
            if key not in self.kept
        )
        return [*self._due, *fresh]

    def revise(self, stale: Iterable[str]) -> None:
        """Forget values that depended on an answer that a review has changed."""
        self._due = self.unnoted()
        self.kept |= self.values.keys()
        self.revision += 1
        for name in stale:
            for key in (name, STAND_IN + name):
                self.values.pop(key, None)
                self.kept.discard(key)
        self._take_revision()

    def _take_revision(self) -> None:
        # Values that the ledger has saved replace the journal's, because they are newer.
        noted = {key: Computed(value) for revision, key, value in self._noted if revision == self.revision}
        self.values |= noted
        self.kept |= noted.keys()


def adapter_of(node: Node) -> TypeAdapter[Any]:
    """Return the adapter that converts a remembered node's value to JSON and back."""
    return node.computed if node.computed is not None else TypeAdapter(Any)


@contextmanager
def storable(key: str) -> Generator[None]:
    """Turn a failed JSON conversion into a ValueNotStorable error that does not contain the value.

    Raises:
        ValueNotStorable: The conversion failed. Clients may see the message, but they must not see the value.
    """
    try:
        yield
    except (PydanticSerializationError, PydanticUserError, ValueError) as error:
        # Drop the cause, because its traceback would show the value.
        raise ValueNotStorable(key, reason=_reason_without_value(error)) from None


def _reason_without_value(error: Exception) -> str:
    if isinstance(error, ValidationError):
        errors = error.errors(include_input=False, include_url=False, include_context=False)
        return "; ".join(": ".join([*(str(part) for part in entry["loc"]), entry["msg"]]) for entry in errors)
    text = str(error)
    return text if text.startswith("Unable to serialize unknown type") else "it does not fit its annotation"
