"""Calls with repeated requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from roundtrip.ledger import MemoryLedger
from roundtrip.testing import LegByLeg
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace.features import GUESTS, ROOM, Effect, serve
from tests.interaction.trace.transcribed import calls_of

Answers = dict[str, Any] | None


@dataclass(frozen=True)
class Story:
    """Legs after the first, each with the round of its token and its answers; and the expected explanations."""

    tool: str
    legs: Sequence[tuple[int, Answers]]
    told: str
    """The answers of the duplicate."""
    bodies: int
    untold: str = ""


OTHERS: Final = {**GUESTS, "adults": 3}


STORIES: Final = {
    "recalled": Story(
        "exactly_once",
        [(0, {"guests": GUESTS}), (0, {"guests": GUESTS})],
        "the ledger returned the recorded result, and its body did not run again",
        1,
        untold="other answers",
    ),
    "recalled_round_without_questions": Story(
        "exactly_once_plain", [(0, None), (0, None)], "its body did not run again", 1, "answers"
    ),
    "ended_with_other_answers": Story(
        "exactly_once",
        [(0, {"guests": GUESTS}), (0, {"guests": OTHERS})],
        "the call had ended with other answers, so it was rejected, and its body did not run again",
        1,
    ),
    "earlier_token_without_answers": Story(
        "resolver",
        [(0, {"guests": GUESTS}), (1, {"room": ROOM}), (0, None)],
        ", but without its answers; its body did not run again",
        1,
        untold="other answers",
    ),
    "lost_response": Story(
        "resolver",
        [(0, {"guests": GUESTS}), (1, {"room": ROOM}), (1, {"room": ROOM})],
        "everything a body does must be safe to do twice",
        2,
        untold="other answers",
    ),
    "went_back": Story(
        "resolver",
        [(0, {"guests": OTHERS}), (0, {"guests": GUESTS}), (2, {"room": ROOM})],
        "and with other answers; its body did not run again",
        1,
    ),
}


async def recorded(story: Story, path: Path) -> TracedCall:
    effect = Effect()
    legs = LegByLeg([serve(MemoryLedger(), effect, trace=Recorder(path, reveal="all"))])
    await legs.leg(story.tool, {"hotel": "Ritz"})
    for round_, answers in story.legs:
        token = legs.rounds[round_].request_state
        await legs.leg(story.tool, {"hotel": "Ritz"}, answers=answers, state=token)
    assert len(effect) == story.bodies
    (call,) = calls_of(path)
    return call
