"""Golden recordings for authors of clients: a conversation is written down, and played back without its server."""

from roundtrip.testing.recordings.document import BrokenRecording, Message
from roundtrip.testing.recordings.pairing import Unrecordable
from roundtrip.testing.recordings.recorder import record
from roundtrip.testing.recordings.replaying import Mismatch, Replayed, replay

__all__ = ["BrokenRecording", "Message", "Mismatch", "Replayed", "Unrecordable", "record", "replay"]
