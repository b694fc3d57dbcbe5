"""Snapshots of calls in syrupy's files: one file for each assertion, and a fixture that redacts."""

from dataclasses import fields
from typing import Any, Self

from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.types import PropertyFilter, PropertyMatcher

from roundtrip.testing.conversations import Conversation
from roundtrip.testing.snapshots.sifting import Sieve
from roundtrip.testing.snapshots.texts import call_text, wire_text

__all__ = ["CallSnapshot", "CallSnapshotExtension", "WireSnapshotExtension"]


class CallSnapshotExtension(SingleFileSnapshotExtension):
    """Writes calls as readable texts."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"
    to_text = staticmethod(call_text)

    def __init__(self) -> None:
        super().__init__()
        self.redacted: set[str] = set()
        """Names of the fields whose values are left out."""

    def serialize(
        self,
        data: Any,
        *,
        exclude: PropertyFilter | None = None,
        include: PropertyFilter | None = None,
        matcher: PropertyMatcher | None = None,
    ) -> str:
        """The text of a call.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(data, Conversation):
            raise TypeError(f"compare what `await User(...).call(...)` gave; this is a {type(data).__name__}")
        return self.to_text(data, redacting=self.redacted, sieve=Sieve(exclude, include, matcher))


class WireSnapshotExtension(CallSnapshotExtension):
    """Writes every JSON-RPC message of a call."""

    # Another one, or either kind would take the other's files for its own.
    file_extension = "wire"
    to_text = staticmethod(wire_text)


class CallSnapshot(SnapshotAssertion):
    """syrupy's assertion, which can leave out what fields hold."""

    @classmethod
    def like(cls, snapshot: SnapshotAssertion, extension_class: type[CallSnapshotExtension]) -> Self:
        """One for the same test, with the same settings."""
        # What there is to give differs from one version of syrupy to the next.
        given: dict[str, Any] = {field.name: getattr(snapshot, field.name) for field in fields(snapshot) if field.init}
        given["extension_class"] = extension_class
        return cls(**given)

    def redacting(self, *names: str) -> Self:
        """Leave out the values of fields, in all that this fixture compares from now on in this test.

        They are left out of arguments, answers, results and the defaults and choices of forms. Texts that repeat a
        value of four characters or more are redacted as well. A question of that name has its whole answer left out.

        Args:
            *names: What the fields are called, wherever they are.
        """
        extension = self.extension
        if isinstance(extension, CallSnapshotExtension):
            extension.redacted.update(names)
        return self

    def with_defaults(self, **options: Any) -> "CallSnapshot":
        """As in syrupy; what is redacted stays so."""
        other = super().with_defaults(**options)
        if not isinstance(other, CallSnapshot):
            raise TypeError("syrupy made a snapshot of another class")
        if isinstance(self.extension, CallSnapshotExtension):
            other.redacting(*self.extension.redacted)
        return other
