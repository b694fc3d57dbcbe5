"""Golden recordings for authors of clients: a conversation is written down, and played back without its server."""

from roundtrip.testing.recordings.document import BrokenRecording, RecordedMessage
from roundtrip.testing.recordings.pairing import Unrecordable
from roundtrip.testing.recordings.recorder import record
from roundtrip.testing.recordings.replaying import Mismatch, Replayed, replay

__all__ = ["BrokenRecording", "Mismatch", "RecordedMessage", "Replayed", "Unrecordable", "record", "replay"]
