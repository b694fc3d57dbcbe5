"""Readable snapshots of calls. What needs syrupy is imported by the fixtures alone."""

from roundtrip.testing.snapshots.texts import call_text, wire_text

__all__ = ["call_text", "wire_text"]
