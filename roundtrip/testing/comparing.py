"""The same call on both eras: `assert_same_on_both_eras`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp.server import MCPServer
from mcp_types import Root
from pydantic import BaseModel

from roundtrip.clients.legs import ERAS
from roundtrip.testing.conversations import Conversation
from roundtrip.testing.scripts import Answers
from roundtrip.testing.users import User

__all__ = ["assert_same_on_both_eras"]


async def assert_same_on_both_eras(
    make_server: Callable[[], MCPServer[Any]],
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    roots: Sequence[Root] | None = None,
) -> Conversation:
    """Make a call on each era, each on a server of its own, and compare the results, the questions and the states.

    Raises:
        AssertionError: They differ.
    """
    retry, live = [await User(make_server(), answers, era=era, roots=roots).call(tool, arguments) for era in ERAS]
    pairs: dict[str, tuple[Any, Any]] = {
        "results": (_plain(retry.result), _plain(live.result)),
        "questions": (
            [question.message for question in retry.questions],
            [question.message for question in live.questions],
        ),
        "forms": (_forms(retry), _forms(live)),
        "states": (retry.states, live.states),
    }
    for what, (one, other) in pairs.items():
        if one != other:
            raise AssertionError(f"the {what} differ\n  retry era: {one}\n  live era:  {other}")
    return retry


def _forms(call: Conversation) -> list[Any]:
    # The SDK's client drops the title of a form on the retry era.
    return [
        {name: value for name, value in (question.schema or {}).items() if name != "title"}
        for question in call.questions
    ]


def _plain(result: BaseModel) -> Any:
    return result.model_dump(mode="json", by_alias=True, include={"content", "structured_content", "is_error"})
