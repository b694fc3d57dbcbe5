"""Compare calls with syrupy's snapshot files: one file per assertion, with redacted fields."""

from dataclasses import fields
from typing import Any, Self

from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.types import PropertyFilter, PropertyMatcher

from roundtrip.testing.conversations import Conversation
from roundtrip.testing.snapshots.texts import Sieve, call_text, wire_text


class CallSnapshotExtension(SingleFileSnapshotExtension):
    """A syrupy extension that writes calls as readable texts."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"
    to_text = staticmethod(call_text)

    def __init__(self) -> None:
        super().__init__()
        self.redacted: set[str] = set()
        """Names of the fields whose values are omitted."""

    def serialize(
        self,
        data: Any,
        *,
        exclude: PropertyFilter | None = None,
        include: PropertyFilter | None = None,
        matcher: PropertyMatcher | None = None,
    ) -> str:
        """Return the text of a call."""
        if not isinstance(data, Conversation):
            raise TypeError(
                f"a snapshot of a call must be compared with a Conversation, got a {type(data).__name__}; "
                "compare the value that `await User(...).call(...)` returns"
            )
        return self.to_text(data, redacting=self.redacted, sieve=Sieve(exclude, include, matcher))


class WireSnapshotExtension(CallSnapshotExtension):
    """A syrupy extension that writes every JSON-RPC message of a call."""

    # With the same file extension, each kind would treat the other's files as its own.
    file_extension = "wire"
    to_text = staticmethod(wire_text)


class CallSnapshot(SnapshotAssertion):
    """A syrupy assertion that can omit the values of fields."""

    @classmethod
    def like(cls, snapshot: SnapshotAssertion, extension_class: type[CallSnapshotExtension]) -> Self:
        """Return an assertion for the same test, with the same settings."""
        # The settings differ between versions of syrupy.
        given: dict[str, Any] = {field.name: getattr(snapshot, field.name) for field in fields(snapshot) if field.init}
        given["extension_class"] = extension_class
        return cls(**given)

    def redacting(self, *names: str) -> Self:
        """Omit the values of fields in all later comparisons of this test.

        They are omitted in arguments, answers, results, and in defaults and choices of forms. Copies of a value of at
        least four characters are redacted in other texts. If a question has one of the names, its whole answer is
        omitted.

        Args:
            *names: Names of fields, at any depth.
        """
        extension = self.extension
        if isinstance(extension, CallSnapshotExtension):
            extension.redacted.update(names)
        return self

    def with_defaults(self, **options: Any) -> "CallSnapshot":
        """Return syrupy's assertion with these defaults, with the same redacted names."""
        other = super().with_defaults(**options)
        if not isinstance(other, CallSnapshot):
            raise TypeError("syrupy made a snapshot of another class")
        if isinstance(self.extension, CallSnapshotExtension):
            other.redacting(*self.extension.redacted)
        return other
