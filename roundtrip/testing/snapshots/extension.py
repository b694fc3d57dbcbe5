"""syrupy extensions that store calls in snapshot files. Each assertion has its own file, and fields can be redacted."""

from dataclasses import fields
from typing import Any, Self

from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.types import PropertyFilter, PropertyMatcher

from roundtrip.testing.conversations import Conversation
from roundtrip.testing.snapshots.texts import Sieve, call_text, wire_text


class CallSnapshotExtension(SingleFileSnapshotExtension):
    """A syrupy extension that writes calls as readable text."""

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
        """Return a call's text."""
        if not isinstance(data, Conversation):
            raise TypeError(
                f"a call snapshot must be compared with a Conversation, got a {type(data).__name__}; "
                "compare the value that `await User(...).call(...)` returns"
            )
        return self.to_text(data, redacting=self.redacted, sieve=Sieve(exclude, include, matcher))


class WireSnapshotExtension(CallSnapshotExtension):
    """A syrupy extension that writes a call's JSON-RPC messages."""

    # The file extension must differ from `CallSnapshotExtension`'s. Otherwise, each class would claim the other class's
    # files.
    file_extension = "wire"
    to_text = staticmethod(wire_text)


class CallSnapshot(SnapshotAssertion):
    """A syrupy assertion that can redact fields."""

    @classmethod
    def like(cls, snapshot: SnapshotAssertion, extension_class: type[CallSnapshotExtension]) -> Self:
        """Return an assertion with the same test and the same settings as another assertion."""
        # Copy every field, because the fields differ between syrupy versions.
        settings: dict[str, Any] = {
            field.name: getattr(snapshot, field.name) for field in fields(snapshot) if field.init
        }
        settings["extension_class"] = extension_class
        return cls(**settings)

    def redacting(self, *names: str) -> Self:
        """Redact fields in all later comparisons in this test.

        Their values are redacted in arguments, answers, results, form defaults and form choices. If a value has at
        least four characters, copies of it in other texts are also redacted. If a question has one of the names, its
        whole answer is redacted.

        Args:
            *names: Field names, at any depth.
        """
        extension = self.extension
        if isinstance(extension, CallSnapshotExtension):
            extension.redacted.update(names)
        return self

    def with_defaults(self, **options: Any) -> "CallSnapshot":
        """Return an assertion with these syrupy defaults. It redacts the same fields as this assertion."""
        other = super().with_defaults(**options)
        if not isinstance(other, CallSnapshot):
            raise TypeError(f"syrupy's with_defaults() must return a CallSnapshot, got a {type(other).__name__}")
        if isinstance(self.extension, CallSnapshotExtension):
            other.redacting(*self.extension.redacted)
        return other
