"""`assert_same_on_both_eras`: compare a call on both eras."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_types import Root
from pydantic import BaseModel

from roundtrip.client.legs import ERAS
from roundtrip.testing.conversations import Conversation
from roundtrip.testing.networks.fleet import Target
from roundtrip.testing.scripts import AnswersBy, MatcherT
from roundtrip.testing.users import PageT, User
from roundtrip.testing.visits import VisitsBy

__all__ = ["assert_same_on_both_eras"]


async def assert_same_on_both_eras(
    server: Target,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: AnswersBy[MatcherT] | None = None,
    visits: VisitsBy[PageT] | None = None,
    roots: Sequence[Root] | None = None,
) -> Conversation:
    """Make a call on each era, and compare the results, the questions and the states.

    With a function that makes the server, as `User` takes it, each call has a server of its own.

    Raises:
        AssertionError: They differ.
    """
    retry, live = [
        await User(server, answers, visits=visits, era=era, roots=roots).call(tool, arguments) for era in ERAS
    ]
    pairs: dict[str, tuple[Any, Any]] = {
        "results": (_plain(retry.result), _plain(live.result)),
        "questions": (
            [question.message for question in retry.questions],
            [question.message for question in live.questions],
        ),
        "contents of questions": (
            [question.shown for question in retry.questions],
            [question.shown for question in live.questions],
        ),
        "states": (retry.states, live.states),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise AssertionError(f"the {name} differ\n  retry era: {one}\n  live era:  {other}")
    return retry


def _plain(result: BaseModel) -> Any:
    return result.model_dump(mode="json", by_alias=True, include={"content", "structured_content", "is_error"})
