"""Golden recordings for client authors: record a conversation, and replay it without its server."""

from roundtrip.testing.recordings.document import BrokenRecording, RecordedMessage
from roundtrip.testing.recordings.recorder import Unrecordable, record
from roundtrip.testing.recordings.replaying import Mismatch, Replayed, replay

__all__ = ["BrokenRecording", "Mismatch", "RecordedMessage", "Replayed", "Unrecordable", "record", "replay"]
