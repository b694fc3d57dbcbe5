"""Readable snapshots of calls. Only the fixtures need syrupy."""

from roundtrip.testing.snapshots.texts import call_text, wire_text

__all__ = ["call_text", "wire_text"]
