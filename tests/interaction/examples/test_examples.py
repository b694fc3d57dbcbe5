"""The bookshop's four steps, each through a real client on both eras."""

from typing import Any, Final

import pytest

from examples.bookshop import ask, build_on, look_up, take_no
from roundtrip import Server
from roundtrip.testing import CANCEL, DECLINE, Answers, Era, User
from tests.kit.players import connect

pytestmark = pytest.mark.anyio

STEPS: Final[dict[str, Server[Any]]] = {
    "look_up.py": look_up.server,
    "build_on.py": build_on.server,
    "ask.py": ask.server,
    "take_no.py": take_no.server,
}
WAITS: Final[Answers] = {"ask_for_patience": {"will_wait": True}}
LEAVES: Final[Answers] = {"ask_for_patience": {"will_wait": False}}
ORDERED: Final = "Middlemarch is ordered from the publisher."
OTHER: Final = "Middlemarch is not ordered. Readers of it also like Persuasion."
UNRESOLVED: Final = "Error executing tool order: Resolver for parameter 'patience' could not resolve: elicitation was "

SAID: Final[list[tuple[str, str, Answers | None, str]]] = [
    ("look_up.py", "Persuasion", None, "A copy of Persuasion is set aside; 2 left."),
    ("look_up.py", "Middlemarch", None, "There is no copy of Middlemarch left."),
    ("build_on.py", "Persuasion", None, "Persuasion comes from our shelf and is ready in 1 day(s)."),
    ("build_on.py", "Middlemarch", None, "Middlemarch comes from the publisher and is ready in 14 day(s)."),
    ("ask.py", "Persuasion", None, "Persuasion is yours today."),
    ("ask.py", "Middlemarch", WAITS, ORDERED),
    ("ask.py", "Middlemarch", LEAVES, "Middlemarch is not ordered."),
    ("ask.py", "Middlemarch", {"ask_for_patience": DECLINE}, f"{UNRESOLVED}decline"),
    ("ask.py", "Middlemarch", {"ask_for_patience": CANCEL}, f"{UNRESOLVED}cancel"),
    ("take_no.py", "Persuasion", None, "Persuasion is yours today."),
    ("take_no.py", "Middlemarch", WAITS, ORDERED),
    ("take_no.py", "Middlemarch", LEAVES, OTHER),
    ("take_no.py", "Middlemarch", {"ask_for_patience": DECLINE}, OTHER),
    ("take_no.py", "Middlemarch", {"ask_for_patience": CANCEL}, "Nothing is ordered; ask again whenever it suits."),
]


async def test_every_step_answers_every_customer(era: Era) -> None:
    said: list[str] = []
    for step, title, answers, _ in SAID:
        tool = "set_aside" if step == "look_up.py" else "order"
        said.append((await User(STEPS[step], answers, era=era).call(tool, title=title)).text)
    assert said == [text for *_, text in SAID]


async def test_the_model_sees_the_title_and_nothing_else() -> None:
    seen: dict[str, list[str]] = {}
    for step, server in STEPS.items():
        async with connect(server, Era.RETRY) as client:
            (tool,) = (await client.list_tools()).tools
        seen[step] = list(tool.input_schema["properties"])
    assert seen == {step: ["title"] for step in STEPS}
