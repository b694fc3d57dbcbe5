"""The texts that snapshots hold."""

from collections.abc import Collection
from typing import Final

from mcp_types import ElicitResult

from roundtrip.testing.conversations import Conversation
from roundtrip.testing.snapshots.placeholders import Placeholders
from roundtrip.testing.snapshots.redaction import SnapshotRedaction
from roundtrip.testing.snapshots.sifting import Sieve
from roundtrip.testing.snapshots.story import story_of
from roundtrip.testing.snapshots.wire import redacted, states_in, text_of_wire
from roundtrip.testing.snapshots.wording import text_of

__all__ = ["call_text", "wire_text"]

_ALL: Final = Sieve()


def call_text(call: Conversation, *, redacting: Collection[str] = (), sieve: Sieve = _ALL) -> str:
    """A call as a readable text, the same for every run that went the same way.

    Args:
        call: What came of it.
        redacting: Names of fields whose values are left out, wherever they are.
        sieve: What to leave out besides.
    """
    story = sieve.over(story_of(call, SnapshotRedaction(redacting)))
    return text_of(Placeholders(call.tokens, said=_said(call)).over(story))


def wire_text(call: Conversation, *, redacting: Collection[str] = (), sieve: Sieve = _ALL) -> str:
    """Every JSON-RPC message of a call, the same for every run that went the same way; as `call_text`.

    Besides what `Placeholders` says, these are replaced: request states, ids of pages and progress tokens by a number,
    versions of client and server, and the bytes of images by their size. Lists of tools have only the one called.

    Raises:
        ValueError: The messages were not kept.
    """
    if not call.messages:
        raise ValueError("the messages of this call were not kept: take the fixture wire_snapshot, or User(wired=True)")
    redaction = SnapshotRedaction(redacting)
    hidden = {question.message for question in call.questions if redaction.hides(question.key)}
    messages = sieve.over(redacted(call.messages, redaction, tool=call.first.name, hidden=hidden))
    placeholders = Placeholders(states_in(call.messages), said=_said(call))
    return text_of_wire([sender for sender, _ in call.messages], messages, placeholders)


def _said(call: Conversation) -> list[object]:
    """What the test itself has written, and so does not change."""
    answers = [question.answer for question in call.questions]
    contents = [answer.content for answer in answers if isinstance(answer, ElicitResult)]
    return [call.first.name, call.first.arguments, *contents]
